"""`OnnxGraph`: a step of environments as an ONNX graph. This module imports ndonnx."""

from __future__ import annotations

import contextlib
import functools
import json
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.caller import authors_line
from arrayferry._utilities.options import count_of, limit_of, missing_package
from arrayferry.extending import dtype_name
from arrayferry_gym.extending import (
    Moments,
    autoreset_mode_of,
    before_resets,
    build,
    cast_clipped,
    leaves,
    mapped,
    namespace,
    select,
    split,
)
from arrayferry_gym.wrappers.kernels import Kernel
from arrayferry_translate import TranslationError

from ._around.wrapped import WrappedEnv, check_wrapped
from ._contract.checked import CheckedEnv
from ._contract.functional_env import FunctionalEnv
from ._contract.mistakes import last_line, line_of
from ._contract.params import prepare
from ._contract.plain_spaces import plain, space_in_json
from ._contract.raw_random import RawRandom
from ._engine.chains import chain_of
from ._engine.engine import Engine, EnvState, with_added

try:
    import ndonnx as ndx
except ImportError as _error:
    raise missing_package(f"{__package__}.export", "ndonnx", _error) from _error

from arrayferry.typing import AnyArray, AnyTree

from ._onnx_numbers import XP, exact
from ._onnx_policies import IN_ARRAY_API, acting, named, of_policy

Arrays = dict[str, Any]
"""A dict from the names of inputs or outputs to arrays."""

FEW = 64
"""The largest number of elements of a parameter whose value is stored in the metadata."""


class OnnxGraph:
    """A step of environments as a graph.

    Args:
        env: the environment to export.
        num_envs, env_params, param_inputs, max_episode_steps, autoreset_mode: as for `export`.
        library: the name of the library that computes a run: "ndonnx" for a graph.
    """

    def __init__(
        self, env: FunctionalEnv, num_envs: Any, env_params: AnyTree, param_inputs: bool, max_episode_steps: Any,
        autoreset_mode: Any, library: str = "ndonnx",
    ) -> None:  # fmt: skip
        base = env.base
        self.draws_keys = needs_jax = base.library == "jax"
        if base.library is not None and not needs_jax:
            raise af.OptionError(
                f"{env!r:.80} needs {base.library}, so it cannot be exported",
                remedy="Write the environment in Array API code or in JAX.",
            )
        self.env = env
        self.n = count_of("num_envs", num_envs)
        self.mode = autoreset_mode_of(autoreset_mode)
        self.limit = limit_of(max_episode_steps, env.max_episode_steps)
        backend = af.registry.backend(library)
        self.xp = XP if library == "ndonnx" else namespace(backend)
        env_backend = af.registry.backend("jax") if needs_jax else backend
        self.checked: Any = CheckedEnv(base, env_backend, self.n, self.limit)
        if needs_jax:
            from ._onnx_jax import RecordedEnv

            self.checked = RecordedEnv(self.checked, backend, self.xp)
        else:
            self.checked.xp = self.checked._results._xp = self.xp
        self.key: Any = None
        self.chain = chain_of(env, self.limit, _refuse)
        defaults, draws_params = env.default_params, env._draws_params
        self.params = prepare(env_params, defaults, self.n, env_backend, None, draws=draws_params)
        self.param_inputs = param_inputs
        self.engine = Engine(self.checked, self.mode, self.chain)
        self.kernels: Any = self.engine.kernel_states()
        self.act: Any = None
        self.inputs: Arrays = {}
        self.kinds: dict[str, str] = {}

    def use_statistics(self, values: AnyTree) -> None:
        """Use `values` as the statistics of wrappers, without updating them."""
        env = self.env
        check_wrapped(env, values)
        if isinstance(env, WrappedEnv) and (values is not None or env._statistics()):
            if values is None:
                raise af.OptionError(
                    f"{env!r:.80} has statistics, but wrapper_state is None, and an exported file does not update statistics",
                    remedy="Pass wrapper_state=, such as env.state_dict(carry.env_state) after a rollout.",
                )
            self.kernels = env.given(self.xp, self.kernels, env._numbers(values))

        def freeze(part: Any) -> Any:
            return part.switched(self.xp, False) if isinstance(part, Moments) else part

        self.kernels = tuple(
            state._replace(lasting={name: freeze(x) for name, x in (state.lasting or {}).items()})
            for state in self.kernels
        )

    def act_by(self, policy: Any, params: AnyTree) -> None:
        """Include a policy in the graph. The policy then chooses the actions."""
        draw_sample = sampler(self.chain.outside.observation, self.n)
        examples = draw_sample(), draw_sample()
        cached_act = functools.cache(lambda: acting(policy, params, examples))
        policy_file = getattr(getattr(policy, "__code__", None), "co_filename", None)

        def line_in(error: Exception) -> str:
            frames = traceback.extract_tb(error.__traceback__)
            numbers = [frame.lineno for frame in frames if frame.filename == policy_file]
            return f": in line {numbers[-1]}, " if numbers else ": "

        def act(observation: AnyTree, rng: Any) -> Any:
            # computations may overflow for random examples
            with _explained("the policy", line_in, IN_ARRAY_API), np.errstate(all="ignore"):
                return cached_act()(self.xp, observation, rng)

        self.act = act

    def _fitted(self, action: AnyTree) -> Any:
        """Check that a policy's actions have the shapes of their space, and return them in the dtypes of the space."""
        space = self.chain.outside.action

        def mismatch(value: AnyTree, path: str, wanted: str) -> af.OptionError:
            return of_policy(
                f"its action{path} is {value!r:.80}, but {space} requires {wanted}",
                "Let it return actions of this space. For a Discrete space, an action is a number, not logits.",
            )

        leaf_actions = []
        for x, (leaf, path) in zip(split(space, action, mismatch), leaves(space), strict=True):
            shape = self.n, *(leaf.shape or ())
            if not isinstance(x, (ndx.Array, np.ndarray)) or tuple(x.shape) != shape:
                raise mismatch(x, path, f"an array of shape {shape}")
            x = self.xp.asarray(x)
            needs_integers = not isinstance(leaf, spaces.Box) or leaf.dtype.kind != "f"
            if needs_integers and not self.xp.isdtype(x.dtype, ("bool", "integral")):
                raise mismatch(x, path, "whole numbers")
            leaf_actions.append(cast_clipped(x, getattr(self.xp, str(leaf.dtype))))
        return build(space, leaf_actions)

    def written(self) -> tuple[bytes, dict[str, Any]]:
        """Return the content of the file, and its metadata.

        Raises:
            arrayferry.OptionError: the graph cannot be exported.
        """
        outputs = self._outputs()
        model = ndx.build(self.inputs, outputs)
        if not self.draws_keys:
            outputs = self._outputs()
            first_model, model = model, ndx.build(self.inputs, outputs)
            if first_model.graph != model.graph:
                raise af.OptionError(
                    f"{self.env!r:.80} cannot be exported: it returns different results for the same arguments",
                    remedy="Draw all random numbers from rng. check_functional_env names the method that does not.",
                )
        # parameters that the environment replaces by drawn parameters are not needed as inputs
        for name in self.inputs.keys() - _read(model.graph):
            if name.startswith("params."):
                del self.inputs[name]
        model, metadata = ndx.build(self.inputs, outputs), self._metadata(outputs)
        prop = model.metadata_props.add()
        prop.key, prop.value = "arrayferry", json.dumps(metadata, allow_nan=False)
        return model.SerializeToString(), metadata

    def _outputs(self) -> Arrays:
        """Trace a run, set the inputs of the graph, and return its outputs.

        Raises:
            arrayferry.OptionError: the run cannot be exported.
        """

        def line_in(error: Exception) -> str:
            return f", because of {last_line(self.env.base, error, 'step')}: "

        remedy = OF_JAX if self.draws_keys else OF_XP
        with _explained(f"{self.env!r:.80}", line_in, remedy), exact():
            return self._traced()

    def _traced(self) -> Arrays:
        form = self._run(None)[1]
        outputs, next_form = self._run(form)
        # vector rewards change the shape of statistics in the first run, so a second run is traced
        if _form(next_form) != _form(form):
            outputs, next_form = self._run(next_form)
        return outputs

    def _run(self, form: Any) -> tuple[Arrays, Any]:
        """Trace one run. Return its outputs, and the arrays that it passes to the next run.

        `form` is an example of the arrays that the previous run passed. With None, only a reset is traced.
        """
        env, xp, engine = self.checked, self.xp, self.engine
        self.inputs = {}
        reset_mask = self._arguments({"reset": np.ones(self.n, bool)})["reset"]
        step_rng, wrappers_rng, policy_rng, reset_rng = (
            RawRandom(xp, name, self._raw) for name in ("step", "wrappers", "policy", "reset")
        )
        if self.draws_keys:
            last_inputs = np.zeros(2, np.uint32) if form is None else form["key"]
            last_inputs = self._arguments({"last": {"key": last_inputs}})["last"]["key"]
            self.key, step_rng, reset_rng = env.split(last_inputs)
        params = self._params()
        fresh_state = env.reset(reset_rng, self.n, params, self.params.pinned)
        if form is None:
            env_state, observation, _ = engine.reset(fresh_state, params, self.kernels)
            return {}, self._handed_on(env_state, observation)
        last_inputs = {name: x for name, x in form.items() if name != "key"}
        last_inputs = self._arguments({"last": last_inputs})["last"]
        kernel_states = tuple(
            state._replace(episode=episode)
            for state, episode in zip(self.kernels, last_inputs["wrappers"], strict=True)
        )
        # where an episode begins, the input state may be invalid, so it is replaced
        state = env.select(reset_mask, fresh_state, last_inputs["state"])
        env_state = EnvState(state, last_inputs["elapsed"], last_inputs["ended"], kernel_states)
        outputs: Arrays = {}
        if self.act is None:
            example = sampler(self.chain.outside.action, self.n)()
            action = self._arguments({"action": example})["action"]
        else:
            action = self._fitted(self.act(last_inputs["observation"], policy_rng))
            outputs = named({"action": action})

        def renew(mask: AnyArray, state: AnyTree, observation: AnyTree) -> Any:
            state = env.select(mask, fresh_state, state)
            return state, env.observe(state, params)

        env_state, outcome, additions = engine.step(
            step_rng, env_state, action, params, renew, wrappers_rng
        )
        outcome = with_added(outcome, additions)
        state = env.select(reset_mask, fresh_state, env_state.state)
        new_env_state, first_observation, reset_info = engine.reset(
            state, params, env_state.wrappers, env_state, reset_mask
        )
        observation = before_resets(xp, reset_mask, first_observation, outcome.observation)
        # where an episode begins, the results of the step are replaced by zeros
        step_results = [outcome.info, outcome.reward, outcome.terminated, outcome.truncated]
        added, reward, terminated, truncated = mapped(
            lambda x: select(xp, reset_mask, xp.zeros_like(x), x), step_results
        )
        infos = {**added, **reset_info}
        if env.masks_actions and "action_mask" not in infos:
            infos["action_mask"] = env.observe(state, params)["action_mask"]
        handed_on = self._handed_on(new_env_state, observation)
        outputs |= named({
            "observation": observation, "reward": reward, "terminated": terminated,
            "truncated": truncated, "info": infos, **handed_on,
            "final_observation": outcome.final_observation, "final_info": outcome.final_info,
        })  # fmt: skip
        return outputs, handed_on

    def _handed_on(self, env_state: EnvState, observation: AnyTree) -> dict[str, Any]:
        """Return the arrays that a run passes to the next run."""
        next_inputs = {
            "state": env_state.state, "elapsed": env_state.elapsed, "ended": env_state.ended,
            "wrappers": [state.episode for state in env_state.wrappers],
        }  # fmt: skip
        if self.act is not None:
            next_inputs["observation"] = observation
        if self.key is not None:
            next_inputs["key"] = self.key
        return next_inputs

    def _raw(self, name: str, kind: str, shape: Any, dtype: str) -> Any:
        """Add an input of random numbers to the graph, and return it. `kind` is "uniform" or "normal"."""
        self.kinds[name] = kind
        self.inputs[name] = new_input = ndx.argument(shape=tuple(shape), dtype=getattr(ndx, dtype))
        return new_input

    def _params(self) -> Any:
        """Return the parameters as constants, or with `param_inputs` as inputs of the graph."""
        if not self.param_inputs:
            return self.params.tree
        number_dtypes = {float: np.float32, int: np.int64, bool: np.bool_}
        values = (number_dtypes.get(type(x), lambda x: x)(x) for x in self.params.values)
        return self._arguments({"params": self.params.static_part.join(values)})["params"]

    def _arguments(self, tree: AnyTree) -> Any:
        """Add an input to the graph for each array in a tree, named by its path, and return the inputs as a tree."""
        arrays, layout = af.flatten(tree)
        forms = ((tuple(x.shape), getattr(ndx, dtype_name(x.dtype))) for x in arrays)
        tree = layout.unflatten(ndx.argument(shape=shape, dtype=dtype) for shape, dtype in forms)
        self.inputs |= named(tree)
        return tree

    def _metadata(self, outputs: Arrays) -> dict[str, Any]:
        """Return the metadata that a program needs to run the graph, as JSON values."""
        outside_spaces, values = self.chain.outside, self.params.values
        arrays = (np.asarray(af.convert(x, "numpy", scalars="keep")) for x in values)
        params = named({"params": self.params.static_part.join(arrays)})
        return {
            "environment": type(self.env.base).__name__,
            "wrappers": [repr(kernel) for kernel in self.env.kernels],
            "num_envs": self.n,
            "autoreset_mode": self.mode.name,
            "max_episode_steps": self.limit,
            "observation_space": space_in_json(outside_spaces.observation),
            "action_space": space_in_json(outside_spaces.action),
            "params": {name: plain(x) for name, x in params.items() if x.size <= FEW},
            "inputs": [
                {
                    **described(name, x),
                    **({"random": self.kinds[name]} if name in self.kinds else {}),
                    **({"value": plain(params[name])} if name in params else {}),
                }
                for name, x in self.inputs.items()
            ],
            "outputs": [described(name, x) for name, x in outputs.items()],
            "versions": {name: version(name) for name in ("arrayferry", "ndonnx", "onnx", "numpy")},
        }


OF_XP = "Write it with functions of xp and rng alone, without a branch on the value of an array."
OF_JAX = "Write it with functions that jax.jit can trace."


@contextlib.contextmanager
def _explained(what: str, line_in: Callable[[Exception], str], remedy: str) -> Iterator[None]:
    """In a block, convert errors to an `OptionError` that says why `what` cannot be exported.

    `line_in` returns the line of an error, as a text that begins with punctuation and ends before the reason.
    """
    try:
        yield
    except TranslationError as error:
        reason = f"{what} cannot be exported: {error.reason}"
        raise af.OptionError(reason, remedy=error.remedy) from error
    except af.ArrayFerryError:
        raise
    except Exception as error:
        reason = f"{what} cannot be exported{line_in(error)}{_reason(error)}"
        raise af.OptionError(reason, remedy=remedy) from error


def _refuse(kernel: Kernel, error: Exception) -> None:
    """Raise an `OptionError` for an error of a kernel, unless the error is an `ArrayFerryError`."""
    line = authors_line(error) or line_of(type(kernel).step)
    if not isinstance(error, af.ArrayFerryError):
        raise af.OptionError(
            f"{kernel!r:.80} cannot be exported, because of {line}: {_reason(error)}", remedy=OF_XP
        ) from error


def _reason(error: Exception) -> str:
    if "no propagated value" in str(error):
        return "it needs the value of an array, which is known only when the ONNX model runs"
    if isinstance(error, NotImplementedError):
        frames = traceback.extract_tb(error.__traceback__)
        function_name = next((frame.name for frame in frames if hasattr(ndx, frame.name)), "this")
        return f"ndonnx does not compute {function_name}" + (f": {error}" if str(error) else "")
    if isinstance(error, Warning):
        return f"digits would be lost. {error}. Cast to a dtype with enough digits first"
    return f"{type(error).__name__}: {error}"


def _form(tree: AnyTree) -> Any:
    return [(tuple(x.shape), x.dtype) for x in af.flatten(tree)[0]]


def _read(graph: Any) -> set[str]:
    """Return the names of all values that the nodes of a graph read."""
    nested_names = (_read(x.g) for node in graph.node for x in node.attribute if x.HasField("g"))
    return {name for node in graph.node for name in node.input}.union(*nested_names)


def described(name: str, x: AnyArray) -> dict[str, Any]:
    return {"name": name, "dtype": dtype_name(x.dtype), "shape": list(x.shape)}


def sampler(space: Any, n: int) -> Callable[[], Any]:
    """Return a function that draws n samples of a space. Floats with wide bounds are near 0, as observations are."""
    batched_space: Any = batch_space(space, n)
    batched_space.seed(0)
    rng = np.random.default_rng(0)

    def moderate(x: AnyArray, leaf: AnyTree) -> Any:
        if x.dtype.kind != "f":
            return x
        low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
        near_zero = np.clip(np.clip(0, low, high) + rng.standard_normal(x.shape), low, high)
        with np.errstate(over="ignore"):
            return np.where((abs(x) < 1e3) | (high - low < 1e3), x, near_zero).astype(x.dtype)

    def sample() -> Any:
        pairs = zip(split(space, batched_space.sample()), leaves(space), strict=True)
        return build(space, [moderate(x, leaf) for x, (leaf, _) in pairs])

    return sample
