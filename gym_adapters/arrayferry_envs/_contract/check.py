"""`check_functional_env`: tries an environment in several libraries, and reports mistakes with their lines of code."""

from __future__ import annotations

import contextlib
import importlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector.utils import batch_space, iterate

import arrayferry as af
from arrayferry._utilities.caller import authors_line
from arrayferry.extending import dtype_name, map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym import make_rng
from arrayferry_gym.extending import batch_of_actions, cast_clipped, cast_fitting

from .checked import CheckedEnv
from .functional_env import FunctionalEnv, checked_env
from .mistakes import (
    Problem,
    Problems,
    explanation,
    first_line,
    last_line,
    merged,
    wrong_signatures,
)
from .params import Params, prepare
from .raw_random import NamedRows

LIBRARIES = ("numpy", "array_api_strict", "torch", "jax")
N = 5
STEPS = 12
LONG = 10_000
"""The number of steps after which a warning says that no episode ends."""
NO_IMAGE = (ModuleNotFoundError, DependencyNotInstalled, NotImplementedError)
"""Errors of `render` that are ignored, since images and the packages that draw them are optional."""

_FILTERING = threading.RLock()
"""A lock for changes of the warning filters. Threads share the filters, so a thread could undo another's changes."""


def check_functional_env(
    env: FunctionalEnv | type[FunctionalEnv],
    libraries: Iterable[str] = LIBRARIES,
    *,
    params: AnyTree = None,
) -> Problems:
    """Try an environment in several libraries, and return the problems that its author has to fix.

    Each method is called with a batch, in JAX inside `jit`. Results must have valid shapes and dtypes. In NumPy, they
    must also depend only on the arguments, and the result for an environment must not depend on its index, on the other
    environments in its batch, or on their number. Environments are reset after an episode. If there are no problems,
    steps with the kernels of `wrap` are also tried.

    Args:
        env: the environment, or its class.
        libraries: the libraries to try. Libraries that are not installed or not usable here are skipped. If the
            environment's `library` is not None, all other libraries are skipped too.
        params: parameters, or a dict of the parameters that differ from the defaults. None for the defaults.

    Returns:
        A list of the problems, empty if there are none. Printed, the list has a line for each problem, with the method,
        the line of code and the remedy.

    Raises:
        TypeError: `env` is not a `FunctionalEnv`.
        arrayferry.ArrayFerryError: there is no such library, or a parameter is invalid.

    Warns:
        UserWarning: no problem was found, but random actions in NumPy led to unusual episodes. Either every episode
            ended in its first step, or `max_episode_steps` is None and no episode ended within 10000 steps.

    Examples:
        >>> from arrayferry_envs import CartPole, check_functional_env
        >>> check_functional_env(CartPole)
        []
        >>> class Wrong(CartPole):
        ...     def step(self, xp, rng, state, action, params):
        ...         if state.angle > 0:
        ...             return state, 1.0, False
        ...         return state, 0.0, False
        >>> for problem in check_functional_env(Wrong, ["numpy"]):
        ...     print(problem.what)
        it asks whether an array is true, by if, while, and, or, not, min or max
    """
    wrapped_env = checked_env(env)
    functional = wrapped_env.base
    problems = [
        Problem(
            name, first_line(functional, name), "its signature does not match", f"Write {text}.", ()
        )
        for name, text in wrong_signatures(functional)
    ]
    warning_texts: list[str] = []
    dtypes: dict[str, list[tuple[str, str]]] = {}
    if not problems:
        for name in libraries:
            backend = _usable(name)
            if backend is None or functional.library not in (None, backend.name):
                continue
            trial = _Trial(functional, backend, params)
            problems += trial.problems()
            warning_texts += trial.warned
            dtypes[backend.name] = trial.dtypes
        problems += _different_dtypes(functional, dtypes)
    for name in dtypes if wrapped_env.kernels and not problems else ():
        problems += _problems_of_kernels(wrapped_env, name, params)
    for text in warning_texts if not problems else ():
        warnings.warn(text, stacklevel=2)
    return Problems(merged(problems))


def _usable(name: str) -> af.Backend | None:
    """Return the backend of a library, or None if the library is not usable here.

    Raises:
        arrayferry.ArrayFerryError: there is no such library.
    """
    try:
        backend = af.registry.backend(name)
    except af.ArrayFerryError as error:  # a library without a plugin is found by its module
        try:
            backend = af.registry.backend(importlib.import_module(name))
        except ImportError:
            if name in LIBRARIES:
                return None
            raise error from None
    return backend if backend.problem() is None else None


class _FoundError(Exception):
    """Ends the trial of a library. Its only argument is the problem that was found."""


class _Trial:
    """The trial of an environment in one library.

    Args:
        functional: the environment.
        backend: the library.
        params: the parameters.

    Attributes:
        dtypes: the paths and the dtypes of the arrays in a state.
        warned: warnings of unusual results that may be intended.
    """

    def __init__(self, functional: FunctionalEnv, backend: af.Backend, params: AnyTree) -> None:
        self.dtypes: list[tuple[str, str]] = []
        self.warned: list[str] = []
        self._dynamics = functional
        self._backend = backend
        self._params = self._prepared(params)
        self._env = CheckedEnv(functional, backend, N, functional.max_episode_steps)
        self._action_space = batch_of_actions(functional.action_space, N)
        self._env._results.cast = self._recorded  # type: ignore[method-assign]

    def _recorded(self, x: AnyArray, dtype: Any, what: str) -> Any:
        """Cast an array, and record the array, the name of the dtype, and a description of the array."""
        self._casts.append((x, dtype_name(dtype), what))
        return cast_clipped(x, dtype)

    def _prepared(self, params: AnyTree) -> Params:
        return prepare(params, self._dynamics.default_params, N, self._backend, None)

    def problems(self) -> list[Problem]:
        """Try all methods. Return a list with the first problem, or an empty list."""
        with _FILTERING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._try()
            except _FoundError as found_error:
                return list(found_error.args)
        return []

    def _try(self) -> None:
        in_numpy = self._backend.name == "numpy"
        if self._env.sampled is not None:
            self._called("sample_params", 0)
            if in_numpy:
                self._check_rows("sample_params", 0)
        state = self._called("reset", 0)
        leaves, layout = af.flatten(state)
        dtype_names = (dtype_name(x.dtype) for x in leaves)
        self.dtypes = list(zip(layout.paths, dtype_names, strict=True))
        self._env.adopt(state)
        self._action_space.seed(0)
        first_state, ages = state, np.zeros(N)
        rewards, states, ended_flags = [], [state], []
        for index in range(STEPS):
            arguments = state, self._action()
            results = {"observe": self._called("observe", index, *arguments)}
            results["info"] = self._called("info", index, *arguments)
            if in_numpy:
                self._check_observations(results["observe"])
            results["step"] = state, reward, *_ = self._called("step", index, *arguments)
            ages += 1
            is_over = _ended(results["step"]) | (ages == self._env.limit)
            if in_numpy:
                self._check_rows("reset", index)
                fresh = self._called("reset", index)
                ended_flags.append(_ended(self._called("step", index, fresh, arguments[1])))
                for trial_state in (arguments[0], fresh, self._mixed_in_time([fresh, *states])):
                    for method in results:
                        self._check_rows(method, index, trial_state, arguments[1])
                self._check_observations(self._called("observe", index, state))
            if is_over.any():
                state = self._env.select(self._backend.from_numpy(is_over), first_state, state)
                ages[is_over] = 0
            rewards.append(reward)
            states = [state, *states][:N]
        if in_numpy:
            self._check_not_nan(np.stack(rewards))
            self._check_batched_params(state)
            self._check_image(state)
            self._warn_of_lengths(np.stack(ended_flags))

    def _found(self, method: str, what: str, remedy: str, line: str | None = None) -> _FoundError:
        """Return the error for a problem. `line` is by default the first line of the method."""
        line = line or first_line(self._dynamics, method)
        return _FoundError(Problem(method, line, what, remedy, (self._backend.name,)))

    # Calls of methods.

    def _called(self, method: str, seed: int, state: AnyTree = None, action: AnyTree = None) -> Any:
        """Call a method, and check that numbers in its result fit the dtypes to which they are cast."""
        with self._explained(method):
            result = self._run(method, seed, state, action, self._params)
        for array, dtype, what in self._casts:
            x = np.asarray(af.convert(array, "numpy"))
            try:
                cast_fitting(
                    np.trunc(x) if x.dtype.kind == "f" else x, np.dtype(dtype), f"the {what}"
                )
            except af.NarrowingError as error:
                raise self._found(method, error.reason,
                                  "Clip the numbers, or choose a dtype with a sufficient range.") from None  # fmt: skip
        return result

    @contextlib.contextmanager
    def _explained(self, method: str) -> Iterator[None]:
        """In a block, convert errors to problems with an explanation."""
        try:
            yield
        except Exception as error:
            what, remedy = explanation(error, self._params.tree)
            line = last_line(self._dynamics, error, method)
            raise self._found(method, what, remedy, line) from None

    def _run(self, method: str, seed: int, state: AnyTree, action: AnyTree, params: Params) -> Any:
        """Run a method. In JAX, it is compiled. In NumPy, the arrays in its arguments are read-only."""
        leaves, layout = af.flatten((state, action))
        layouts: list[af.TreeSpec] = []
        self._casts = casts = list[tuple[Any, str, str]]()

        def call_method(rng: Any, leaves: Any) -> Any:
            inputs = layout.unflatten(leaves)
            result = _result(self._env, method, make_rng(self._backend, rng), inputs, params.tree)
            result_leaves, layout_of_result = af.flatten(result)
            layouts.append(layout_of_result)
            return result_leaves, [x for x, *_ in casts]

        if self._backend.name == "jax":
            import jax

            result_leaves, uncast_arrays = jax.jit(call_method)(jax.random.key(seed), leaves)
        else:
            leaves = [*map(_frozen, leaves)] if self._backend.name == "numpy" else leaves
            result_leaves, uncast_arrays = call_method(seed, leaves)
        casts[:] = [
            (x, dtype, what) for x, (_, dtype, what) in zip(uncast_arrays, casts, strict=True)
        ]
        return layouts[-1].unflatten(result_leaves)

    def _action(self) -> Any:
        return af.convert(self._action_space.sample(), self._backend, narrowing="allow")

    # Checks of results.

    def _check_observations(self, observation: AnyTree) -> None:
        """Check that observations are in their space."""
        space = self._dynamics.observation_space
        for observation_row in iterate(batch_space(space, N), observation):
            if not space.contains(observation_row):
                raise self._found("observe", f"the observation {observation_row!r:.120} is not in the space {space}",
                                  "Widen the bounds of the space, or clip the observation.")  # fmt: skip

    def _check_not_nan(self, rewards: AnyArray) -> None:
        """Raise an error if an element of the reward is NaN in all environments and all steps."""
        if rewards.dtype.kind == "f" and np.isnan(rewards).all(axis=(0, 1)).any():
            raise self._found("step", "the reward is always NaN", "Return a number for each environment.")  # fmt: skip

    def _warn_of_lengths(self, ended: AnyArray) -> None:
        """Record a warning if every episode ends in its first step, or if no episode ends.

        Args:
            ended: whether episodes ended in their first step, bool (steps, n).
        """
        step_location = f"{self._env.name}.step(), {first_line(self._dynamics, 'step')}"
        if ended.all():
            self.warned.append(f"{step_location}: every episode ended in its first step. If that is not intended, check terminated.")  # fmt: skip
        if ended.any() or self._env.limit is not None:
            return
        state = self._called("reset", 0)
        for step_index in range(LONG):
            state, *other_results = self._called("step", step_index, state, self._action())
            if _ended((state, *other_results)).any():
                return
        self.warned.append(f"{step_location}: no episode ended in {LONG} steps of random actions. Set max_episode_steps, or let "
                           "terminated become true.")  # fmt: skip

    def _check_image(self, state: AnyTree) -> None:
        """Check the shape and dtype of an image, if the environment can be rendered."""
        render, state = self._dynamics.render, self._env.shown(state)
        with self._explained("render"):
            try:
                image = render(state, 0)
            except NO_IMAGE:
                return
        if getattr(image, "dtype", None) != np.uint8 or np.ndim(image) != 3:
            found = f"{getattr(image, 'dtype', type(image).__name__)} of shape {np.shape(image)}"
            raise self._found("render", f"it returned {found}",
                              "Return an array of shape (height, width, 3) and dtype uint8.")  # fmt: skip

    def _check_batched_params(self, state: AnyTree) -> None:
        """Check that each float parameter may also be an array with one number for each environment."""
        leaves, layout = af.flatten(self._params.tree, everything=True)
        if not any(type(x) is float for x in leaves):
            return
        batched_leaves = [np.full(N, x) if type(x) is float else x for x in leaves]
        batched_params = self._prepared(layout.unflatten(batched_leaves))
        action = self._action()
        for method in ("reset", "step", "observe"):
            run_method = partial(self._run, method, 0, state, action)
            expected, difference = run_method(self._params), "the results differ"
            try:
                if _agree(expected, run_method(batched_params), floats=1e-4, others=False):
                    continue
            except Exception as error:
                difference = f"{type(error).__name__}: {error}"
            self._pure(method, partial(run_method, self._params))
            raise self._found(method,
                              f"with parameters of shape ({N},), one for each environment, {difference:.200}",
                              "A float parameter may have the shape (n,). Compute with columns of that shape, such as "
                              "action[:, 0], and stack them. To combine a parameter x with an array (n, d), use "
                              "xp.reshape(xp.asarray(x, dtype=xp.float32), (-1, 1)).")  # fmt: skip

    def _pure(self, method: str, call: Callable[[], Any]) -> None:
        """Check that 500 calls of a method return equal results, as hidden randomness may affect only a few calls."""
        result = call()
        if not all(_agree(result, call()) for _ in range(500)):
            raise self._found(method, "it returns different results for the same arguments",
                              "Draw all random numbers from rng, and store changes only in the state.")  # fmt: skip

    def _mixed_in_time(self, states: list[Any]) -> Any:
        """Return states whose rows are from different steps, as after resets of only some environments."""
        row_leaves = [self._env.leaves(states[row % len(states)]) for row in range(N)]
        columns = zip(*row_leaves, strict=True)
        return self._env.join(np.stack([x[row] for row, x in enumerate(xs)]) for xs in columns)

    def _check_rows(
        self, method: str, seed: int, state: AnyTree = None, action: AnyTree = None
    ) -> None:
        """Check that, given the same random numbers, an environment's results depend only on its own row."""

        def run_rows(rng: NamedRows, index: Any) -> Any:
            env, params = self._sized(len(index)), self._params.rows(index)
            inputs = map_arrays(_frozen, _rows((state, action), index))
            with self._explained(method):
                return _result(env, method, rng, inputs, params)

        all_rows = np.arange(N)

        def run_all() -> Any:
            return run_rows(NamedRows(seed, all_rows), all_rows)

        result = run_all()
        for cause, index in _BATCHES:
            rng = NamedRows(seed, index)
            actual, expected = run_rows(rng, index), _rows(result, index)
            if cause is None:  # one row was replaced: compare the others
                other_rows = np.flatnonzero(index == all_rows)
                if not _agree(_rows(actual, other_rows), _rows(expected, other_rows)):
                    self._pure(method, run_all)
                    raise self._found(method, "the result of an environment depends on the others in its batch",
                                      "Compute each row separately, without sums, means or sorting over axis 0. The "
                                      "number of random numbers must not depend on values.")  # fmt: skip
            elif rng.comparable and not _agree(actual, expected, floats=1e-4):
                self._pure(method, run_all)
                raise self._found(method, f"the result of an environment depends on {cause}",
                                  "Compute each row from its own state, action, parameters and random numbers, without "
                                  "xp.arange or constant arrays with a row for each environment.")  # fmt: skip

    def _sized(self, n: int) -> CheckedEnv:
        """Return the environment as a batch of `n` environments."""
        if n == N:
            return self._env
        env = CheckedEnv(self._dynamics, self._backend, n, None)
        env.layout, env.forms = self._env.layout, self._env.forms
        return env


def _result(env: CheckedEnv, method: str, rng: Any, pair: tuple[Any, Any], params: AnyTree) -> Any:
    """Call a method of an environment with a state and an action, and return its checked result."""
    state, action = pair
    if method == "sample_params":
        assert env.sampled is not None
        return env.sampled.draw(env.xp, rng, env.n, params)
    if method == "reset":
        return env.reset(rng, env.n, params)
    if method == "step":
        action = env.clip(action)
        if env.backend.name == "numpy":
            action = map_arrays(_frozen, action)  # clipping may have made new arrays
        results = env.step(rng, state, action, params)
        return tuple(part for part in results if part is not None)
    return (env.observe if method == "observe" else env.inform)(state, params)


def _ended(results: tuple[Any, ...]) -> Any:
    """Return whether episodes have ended, a bool NumPy array (n,), from the result of a step."""
    return np.any(af.convert(results[2:], "numpy"), axis=0)


def _problems_of_kernels(env: FunctionalEnv, library: Any, params: AnyTree) -> Iterator[Problem]:
    """Take steps in an environment with its kernels, and yield a problem if a step raises an error."""
    try:
        envs = env.make_vec(N, xp=library, params=params, max_episode_steps=env.max_episode_steps or STEPS)  # fmt: skip
        envs.action_space.seed(0)
        envs.reset(seed=0)
        for _ in range(STEPS):
            envs.step(envs.action_space.sample())
    except Exception as error:
        what, remedy = explanation(error, params)
        yield Problem(
            "wrap", authors_line(error.__cause__ or error) or repr(env), what, remedy, (library,)
        )


def _replaced(row: int) -> Any:
    """Return the indices of the rows of a batch, with the index of the next row in place of `row`."""
    index = np.arange(N)
    index[row] = (row + 1) % N
    return index


_BATCHES: list[tuple[str | None, Any]] = [
    *((None, _replaced(row)) for row in range(N)),
    ("its index in the batch", np.roll(np.arange(N), 1)),
    ("the number of environments", np.arange(3)),
    ("the number of environments", np.array([1])),
]
"""Batches whose results are compared with the whole batch, as (cause of a difference for messages, indices of rows).
The cause is None for batches with one replaced row, of which only the other rows are compared."""


def _frozen(x: AnyArray) -> Any:
    x = np.array(x)
    x.setflags(write=False)
    return x


def _rows(tree: AnyTree, index: Any) -> Any:
    """Return copies of rows of each array in a tree."""
    return map_arrays(lambda x: np.array(x)[index], tree)


def _agree(a: Any, b: Any, *, floats: float = 0.0, others: bool = True) -> bool:
    """Return whether two trees are equal. Floats may differ by `floats`. Without `others`, only floats are compared."""
    (a, layout), (b, other_layout) = af.flatten(a), af.flatten(b)
    return layout == other_layout and all(
        x.shape == y.shape and np.allclose(x, y, rtol=10 * floats, atol=floats, equal_nan=True)
        if x.dtype.kind == "f"
        else not others or np.array_equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


def _different_dtypes(
    functional: FunctionalEnv, dtypes: dict[str, list[tuple[str, str]]]
) -> Iterator[Problem]:
    """Yield a problem for each array in states whose dtype differs between libraries.

    JAX is not compared, since its dtypes have 32 bits by default.
    """
    by_library = {name: parts for name, parts in dtypes.items() if name != "jax" and parts}
    for parts in zip(*by_library.values(), strict=False):
        dtype_by_library = dict(zip(by_library, (dtype for _, dtype in parts), strict=True))
        if len(set(dtype_by_library.values())) > 1:
            text = ", ".join(f"{dtype} in {name}" for name, dtype in dtype_by_library.items())
            yield Problem("reset", first_line(functional, "reset"), f"state{parts[0][0]} is {text}",
                          "State the dtype, as in xp.zeros((n,), dtype=xp.float32).", tuple(by_library))  # fmt: skip
