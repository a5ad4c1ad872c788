"""`wrap`: puts wrapper kernels around a `FunctionalEnv`. JAX can compile the result."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from types import CellType
from typing import TYPE_CHECKING, Any

import arrayferry as af
from arrayferry._utilities.caller import caller_level
from arrayferry._utilities.text import numbered
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._contract.errors import EnvResultError
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._engine.chains import chain_of
from arrayferry_gym.extending import Chain, Moments, memo_of
from arrayferry_gym.wrappers.kernels import Kernel, State

from .around import AroundEnv

if TYPE_CHECKING:
    from typing import Unpack

    from arrayferry.typing import Target
    from arrayferry_envs._contract.functional_env import Served, VectorServed


@dataclasses.dataclass(eq=False, repr=False)
class WrappedEnv(AroundEnv):
    """A `FunctionalEnv` with wrapper kernels around it, as returned by `wrap`.

    Attributes:
        env: the inner environment.
        kernels: the kernels, innermost first.
    """

    kernels: tuple[Kernel, ...] = ()

    def _set_spaces(self) -> None:
        chain, limit_is_known = self._any_chain()
        if limit_is_known:
            self.observation_space: Any = chain.outside.observation
            self.action_space: Any = chain.outside.action

    @property
    def base(self) -> FunctionalEnv:
        """The environment without the kernels."""
        return self.env

    def _rewards(self) -> tuple[tuple[int, ...], str | None]:
        return self._any_chain()[0].rewards(*super()._rewards())

    def _any_chain(self) -> tuple[Chain, bool]:
        """Return the chain of kernels, and whether it is for the step limit of the environment.

        If the kernels need a limit and the environment has none, the chain is for a limit of 1 instead.
        """
        try:
            return self.chain(self.max_episode_steps), True
        except Exception:  # a kernel may raise any error
            if self._limited(self.max_episode_steps) is not None:
                raise
            return self.chain(1), False

    if not TYPE_CHECKING:  # a visible __getattr__ would make type checkers accept any name

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("observation_space", "action_space"):
                message = (
                    f"the {name} of a wrapped environment is not known, because a wrapper needs a step limit. Set "
                    "max_episode_steps of the inner environment, or pass it to the function that runs the environment"
                )
            raise AttributeError(message, name=name, obj=self)

    def chain(self, limit: int | None) -> Chain:
        """Return the chain of kernels for episodes of at most `limit` steps. None means no limit."""
        return chain_of(self, limit)

    def make_vec(
        self, num_envs: int = 1, *, xp: Target = "numpy", **options: Unpack[VectorServed]
    ) -> Any:
        """Return a `FunctionalVectorEnv` that also has the attributes of the kernels.

        The options are those of `FunctionalEnv.make_vec`.
        """
        from arrayferry_envs._served.wrapped import WrappedVectorEnv

        if not self.kernels:
            return self.env.make_vec(num_envs, xp=xp, **options)
        return WrappedVectorEnv(self, num_envs, xp=xp, **options)

    def make(self, *, xp: Target = "numpy", **options: Unpack[Served]) -> Any:
        """Return a `FunctionalSingleEnv` that also has the attributes of the kernels.

        The options are those of `FunctionalEnv.make`.
        """
        from arrayferry_envs._served.wrapped import WrappedSingleEnv

        if not self.kernels:
            return self.env.make(xp=xp, **options)
        return WrappedSingleEnv(self, xp=xp, **options)

    def state_dict(self, env_state: AnyTree) -> dict[str, Any]:
        """Return the statistics of the kernels as plain numbers and lists, without loss of precision.

        Args:
            env_state: the `EnvState` of the environments, such as `carry.env_state` of a rollout.

        Returns:
            A dict from names, such as "obs_rms", to statistics. The same wrappers around an environment of Gymnasium
            have a `state_dict` of the same structure. If several kernels have statistics of one name, a number is
            appended to the later names: "obs_rms_2".

        Raises:
            arrayferry.OptionError: `env_state` contains several runs of `jax.vmap`, or is traced by `jax.jit`.
        """
        return self._numbers(env_state.wrappers)

    def _numbers(self, values: AnyTree) -> dict[str, Any]:
        """Check `values`, kernel states or a result of `state_dict`, and return them as a result of `state_dict`.

        Raises:
            arrayferry.OptionError: the values do not fit the kernels of this environment.
        """
        if isinstance(values, dict):
            self._named(values)
            return values
        self._check_states(values)
        return {name: values[index].lasting[own].read() for name, index, own in self._statistics()}

    def _statistics(self) -> list[tuple[str, int, str]]:
        """Return (unique name, index of the kernel, name in the kernel) for each statistic of the kernels."""
        pairs = [(index, x.statistics) for index, x in enumerate(self.kernels) if x.statistics]
        unique_names = numbered(stat for _, stat in pairs)
        return [(name, *pair) for name, pair in zip(unique_names, pairs, strict=True)]

    def _named(self, values: dict[str, Any]) -> list[tuple[str, int, str]]:
        """Check `values`, a result of `state_dict`, and return `_statistics()`. `values` may have further names.

        Raises:
            arrayferry.OptionError: a statistic is missing, or `values` has statistics and this environment has none.
        """
        statistics = self._statistics()
        names = [name for name, _, _ in statistics]
        if not values.keys() >= set(names) or (values and not names):
            raise af.OptionError(
                f"wrapper_state has the statistics {[*values]!r:.80}, but those of {type(self).__name__} are {names}",
                remedy="Pass the result of state_dict of an environment with the same wrappers.",
            )
        for moments in values.values():
            Moments.checked(moments)
        return statistics

    def wrapper_state(self, values: AnyTree) -> Any:
        """Return kernel states with the statistics in `values`. Only the field `lasting` of these states is meaningful.

        Args:
            values: the result of `state_dict`, or the kernel states of a rollout.

        Raises:
            arrayferry.OptionError: the values belong to other kernels.
        """
        import jax

        # the dtypes of kernel states depend on x64, so x64 is part of the key
        memo, memo_key = memo_of(self), ("wrappers", jax.config.jax_enable_x64)
        # the memo outlives a traced call, so it must contain arrays instead of tracers
        with jax.ensure_compile_time_eval():
            if memo_key not in memo:
                memo[memo_key] = self._any_chain()[0].init(jax.numpy, 1, None)
            return self.given(jax.numpy, memo[memo_key], values)

    def given(self, xp: Namespace, fresh: Any, values: AnyTree) -> Any:
        """Return the kernel states in `fresh` with the statistics in `values` as their field `lasting`.

        Args:
            xp: the namespace of the arrays.
            fresh: the kernel states before the first episode.
            values: the kernel states of a rollout, or the result of `state_dict`.

        Raises:
            arrayferry.OptionError: the values belong to other kernels.
        """
        states = list(fresh)
        if isinstance(values, dict):
            for name, index, statistic in self._named(values):
                lasting, of_rewards = states[index].lasting, "reward" in self.kernels[index].parts
                moments = lasting[statistic].given(xp, values[name], None, any_shape=of_rewards)
                states[index] = states[index]._replace(lasting={**lasting, statistic: moments})
            return tuple(states)
        self._check_states(values)
        for kernel, state, value in zip(self.kernels, states, values, strict=True):
            forms, given_form = _form(state.lasting), _form(value.lasting)
            if "reward" in kernel.parts and not any(shape for shape, _ in forms[1]):
                # before the first step, the shape of rewards is unknown, so shapes are not compared
                given_form = given_form[0], [((), dtype) for _, dtype in given_form[1]]
            if forms != given_form:
                raise af.OptionError(
                    f"wrapper_state has {value.lasting!r:.80} for {kernel!r:.60}, which is the state of another kernel",
                    remedy="Pass the state of one run of an environment with the same wrappers in the same order.",
                )
        return tuple(
            new._replace(lasting=old.lasting) for new, old in zip(states, values, strict=True)
        )

    def _check_states(self, values: AnyTree) -> None:
        fits_kernels = _is_state(values) and len(values) == len(self.kernels)
        statistics = self._statistics()
        if not fits_kernels or any(
            stat not in (values[index].lasting or {}) for _, index, stat in statistics
        ):
            raise af.OptionError(
                f"wrapper_state={values!r:.80} does not belong to this environment, which has {len(self.kernels)} kernels",
                remedy="Pass carry.env_state.wrappers of a rollout, or the result of env.state_dict(carry.env_state).",
            )

    def reset(self, *_given: Any, **_options: Any) -> Any:
        """Raise an error, since only the engine can apply the kernels."""
        raise EnvResultError(
            f"{self!r} has no methods reset(), step() and observe()",
            remedy="Use Functions, rollout, episode or evaluate, or serve it by make() or make_vec(). "
            "To call the methods of the inner environment, use .env.",
        )

    step: Any = reset
    observe: Any = reset

    def __repr__(self) -> str:
        return f"<wrap({self.env!r}, {', '.join(map(repr, self.kernels))})>"


def wrap(env: FunctionalEnv | type[FunctionalEnv], *kernels: Kernel) -> WrappedEnv:
    """Put wrappers around a `FunctionalEnv`, for `rollout`, `evaluate`, `Functions`, `make` and `make_vec`.

    Args:
        env: the environment, or its class.
        *kernels: wrappers without an environment, from `arrayferry_gym.wrappers.kernels`, innermost first.

    Returns:
        An environment with the same dynamics. Its spaces, observations, actions and rewards are those outside the
        outermost kernel. If a kernel needs a step limit and `env` has none, these spaces are unknown. Then pass
        `max_episode_steps` to the function that runs the environment.

    Raises:
        arrayferry.OptionError: an argument is not a kernel, or a function in a kernel has an array in its closure or
            defaults, or is a method of an object with an array. Compiled code would not see later changes of the array.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, rollout, wrap
        >>> from arrayferry_gym.wrappers import kernels
        >>> env = wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward())
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> carry, transitions = rollout(env, policy, None, jax.random.key(0), 100, 8)
        >>> env.state_dict(carry.env_state)["return_rms"]["count"]
        800
    """
    env = checked_env(env)
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise af.OptionError(
                f"wrap() needs kernels, but was given {kernel!r:.80}",
                remedy="Pass kernels, such as arrayferry_gym.wrappers.kernels.NormalizeObservation().",
            )
        for name, value in vars(kernel).items():
            _refuse_arrays(value, f"the {name} of {type(kernel).__name__}")
    if isinstance(env, WrappedEnv):
        env, kernels = env.env, (*env.kernels, *kernels)
    return WrappedEnv(env, kernels)


def _refuse_arrays(function: Any, name: str) -> None:
    """Refuse a function, method or object that contains arrays, since compiled code would not see their changes."""
    if isinstance(function, type) or not callable(function):
        return
    function = inspect.unwrap(function)
    owner = getattr(function, "__self__", function)
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
    # empty cells are skipped, since reading their contents would raise an error
    cell_contents = [cell.cell_contents for cell in cells if cell != CellType()]
    if af.flatten([*cell_contents, *defaults, getattr(owner, "__dict__", None)])[0]:
        raise af.OptionError(
            f"{name} contains an array, but compiled code would not see changes of that array",
            remedy="Compute the array inside the function, or write a kernel with the array in its state.",
        )


def freeze(wrapper_state: AnyTree) -> Any:
    """Return kernel states whose statistics are used, but no longer updated.

    To update them again, pass `wrapper_state=env.state_dict(carry.env_state)` to the next rollout.

    Args:
        wrapper_state: the kernel states, such as `carry.env_state.wrappers`, or None, which is returned.

    Raises:
        arrayferry.OptionError: the argument is not a tuple of kernel states.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, Functions, freeze, wrap
        >>> from arrayferry_gym.wrappers import kernels
        >>> functions = Functions(wrap(CartPole(), kernels.NormalizeObservation()))
        >>> env_state, observation = functions.reset(jax.random.key(0), 4)
        >>> env_state = env_state._replace(wrappers=freeze(env_state.wrappers))
        >>> bool(env_state.wrappers[0].lasting["obs_rms"].updating)
        False
    """
    import jax

    def frozen_part(part: Any) -> Any:
        is_moments = isinstance(part, Moments)
        return part._replace(updating=part.updating & False) if is_moments else part

    if wrapper_state is None:
        return None
    if not _is_state(wrapper_state):
        raise af.OptionError(
            f"freeze needs states of kernels, but was given {wrapper_state!r:.80}",
            remedy="Pass carry.env_state.wrappers of a rollout, or freeze(env.wrapper_state(statistics)).",
        )
    return jax.tree.map(frozen_part, wrapper_state, is_leaf=lambda part: isinstance(part, Moments))


def _is_state(value: AnyTree) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, State) for part in value)


def _form(tree: AnyTree) -> tuple[Any, ...]:
    """Return the structure of a tree of arrays, and the shape and dtype of each array."""
    import jax

    arrays, structure = jax.tree.flatten(tree)
    return structure, [(getattr(x, "shape", ()), getattr(x, "dtype", type(x))) for x in arrays]


def check_wrapped(env: Any, wrapper_state: Any) -> None:
    """Check that `wrapper_state` is None, or that `wrap` made the environment.

    Raises:
        arrayferry.OptionError: `wrapper_state` was passed, but the environment has no kernels.
    """
    if wrapper_state is not None and not isinstance(env, WrappedEnv):
        raise af.OptionError(
            f"wrapper_state was passed, but {env!r:.80} has no wrappers",
            remedy="Leave out wrapper_state.",
        )


def warn_if_fresh(env: Any, wrapper_state: Any) -> None:
    """Warn if the kernels have statistics, but `wrapper_state` is None, so that the statistics begin anew."""
    if wrapper_state is None and isinstance(env, WrappedEnv) and env._statistics():
        warnings.warn(
            f"{env!r:.80} begins with new statistics. To use trained statistics, pass wrapper_state=env.state_dict(carry.env_state)",
            stacklevel=caller_level(),
        )


def lasting_state(env: Any, wrapper_state: Any) -> Any:
    """Return `wrapper_state` as kernel states, or None if it is None. Compiled code later checks the states."""
    check_wrapped(env, wrapper_state)
    if _is_state(wrapper_state):
        return tuple(State(lasting=state.lasting) for state in wrapper_state)
    return None if wrapper_state is None else env.wrapper_state(wrapper_state)
