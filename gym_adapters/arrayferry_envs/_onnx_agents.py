"""A policy alone as an ONNX graph, with test vectors. This module imports ndonnx."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry._utilities.options import missing_package
from arrayferry.extending import describe_error
from arrayferry.typing import AnyTree, Namespace
from arrayferry_gym.extending import build, leaves, namespace
from arrayferry_gym.wrappers.kernels import Step

from ._around.wrapped import wrap
from ._contract.functional_env import FunctionalEnv
from ._contract.plain_spaces import plain, space_in_json, space_of_json
from ._contract.raw_random import RawRandom, drawn
from ._onnx import Arrays, OnnxGraph, described, sampler
from ._onnx_policies import acting, dotted, named, normalizer_of

RUNS = 8
"""The number of test vectors. Each is a run, which begins with the kernel states at the end of the run before."""


class _Outside(FunctionalEnv):
    """An environment that has spaces, but no dynamics."""

    def reset(self, xp: Namespace, rng: Any, n: Any, params: AnyTree = None, *_: Any) -> Any: ...

    step: Any = reset
    observe: Any = reset


class AgentGraph(OnnxGraph):
    """A policy and the wrappers around it as a graph.

    Args:
        *options: in this order, a dict of the spaces of the environment inside the wrappers, and `kernels`, `num_envs`,
            `max_episode_steps`, `wrapper_state`, `policy` and `policy_params` as for `export`.
        library: the library of the arrays in a run. "numpy" computes the expected results of the graph.
    """

    def __init__(self, *options: Any, library: str = "ndonnx") -> None:
        self._options = options
        env_spaces, kernels, num_envs, limit, wrapper_state, policy, params = options
        for name, space in env_spaces.items():
            if not isinstance(space, spaces.Space):
                raise af.OptionError(
                    f"to export a policy without an environment, {name} must be a space, and not {space!r:.80}",
                    remedy=f"Pass {name}=, the space of one environment.",
                )
        whole_env = wrap(type("Outside", (_Outside,), env_spaces), *kernels)
        # kernels that only change rewards have no effect on a policy
        env = wrap(whole_env.base, *(x for x in whole_env.kernels if x.observes or x.acts))
        super().__init__(env, num_envs, None, False, limit, "Disabled", library)
        statistics = None if wrapper_state is None else whole_env._numbers(wrapper_state)
        self.use_statistics(statistics if env._statistics() else None)
        self.act_by(policy, params)
        self._sample = sampler(env_spaces["observation_space"], self.n)

    def _turn(self, inputs: Arrays, take: Any) -> tuple[Arrays, Any, Any]:
        """Return the results of a run, and the observations and actions of the policy.

        Args:
            inputs: "observation", "last.wrappers" (kernel states of the previous run) and, for kernels with a memory,
                "reset" (whether an episode begins).
            take: a function that returns raw random numbers, as for `RawRandom`.
        """
        xp, reset_mask = self.xp, inputs.get("reset")
        wrappers_rng, policy_rng = (RawRandom(xp, name, take) for name in ("wrappers", "policy"))
        pairs = zip(self.kernels, inputs["last.wrappers"], strict=True)
        states = tuple(state._replace(episode=episode) for state, episode in pairs)
        flags, zero_rewards = (xp.zeros((self.n,), dtype=x) for x in (xp.bool, xp.float32))
        valid = None if reset_mask is None else ~reset_mask
        step = Step(inputs["observation"], zero_rewards, flags, flags, {}, valid)
        fresh_states = self.chain.init(xp, 1, None)
        states, _, seen = self.chain.take(
            xp, states, fresh_states, step, reset_mask, step.observation, False
        )
        chosen = self.act(seen, policy_rng)
        states, action = self.chain.action(xp, wrappers_rng, states, self._fitted(chosen))
        handed_on = [state.episode for state in states]
        return {"action": self.checked.clip(action), "wrappers": handed_on}, seen, chosen

    def _first(self) -> Arrays:
        """Return the inputs of a first run except random numbers. Observations are samples of their space."""
        episode_states = [state.episode for state in self.kernels]
        reset_input = {"reset": np.ones(self.n, bool)} if af.flatten(episode_states)[0] else {}
        return {"observation": self._sample(), **reset_input, "last.wrappers": episode_states}

    def _traced(self) -> Arrays:
        self.inputs, self.kinds = {}, {}
        outputs, self._seen, _ = self._turn(self._arguments(self._first()), self._raw)
        return named(outputs)

    def _metadata(self, outputs: Arrays) -> dict[str, Any]:
        metadata = super()._metadata(outputs)
        for name in ("environment", "autoreset_mode", "params"):
            del metadata[name]
        metadata["policy_observation_space"] = metadata["observation_space"]
        metadata |= {name: space_in_json(space) for name, space in self._options[0].items()}
        metadata["vec_normalize"] = normalizer_of(self._options[-2]) is not None
        policy_inputs = [described(*pair) for pair in named({"observation": self._seen}).items()]
        numpy_graph = AgentGraph(*self._options, library="numpy")
        return {**metadata, "policy_inputs": policy_inputs, "test_vectors": numpy_graph._vectors()}

    def _vectors(self) -> list[dict[str, Any]]:
        """Return the test vectors: the inputs and results of RUNS consecutive runs."""
        rng, vectors, handed_on = np.random.default_rng(0), [], None
        for run_index in range(RUNS):
            run_inputs = self._first()
            if run_index:
                run_inputs["last.wrappers"] = handed_on
                run_inputs |= {"reset": rng.random(self.n) < 0.3} if "reset" in run_inputs else {}
            inputs = named(run_inputs)
            results, seen, chosen = self._turn(run_inputs, partial(_drawn, rng, inputs))
            handed_on = results["wrappers"]
            parts = {"inputs": inputs, "seen": named({"observation": seen})}
            parts |= {"chosen": named({"action": chosen}), "outputs": named(results)}
            vector = {key: {k: plain(x) for k, x in part.items()} for key, part in parts.items()}
            vectors.append(vector)
        return vectors


def _drawn(rng: Any, inputs: Arrays, name: str, kind: str, shape: Any, dtype: str) -> Any:
    inputs[name] = numbers = drawn(rng, kind, shape, dtype)
    return numbers


def difference(path: Any, policy: Any, params: AnyTree) -> float:
    """Return the result of `check_export`, given its arguments."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_package("arrayferry_envs.check_export", "onnxruntime", error) from error
    if policy is None and params is not None:
        raise af.OptionError("policy_params was passed without a policy", remedy="Pass policy=.")
    onnx_bytes, vector_runs, differences = Path(path).read_bytes(), [], []
    try:
        session = onnxruntime.InferenceSession(onnx_bytes)
        metadata = json.loads(session.get_modelmeta().custom_metadata_map.get("arrayferry", "{}"))
        output_names = [x.name for x in session.get_outputs()]
        for vector in metadata.get("test_vectors", ()):
            inputs = _arrays(vector["inputs"], metadata["inputs"])
            seen = _arrays(vector["seen"], metadata["policy_inputs"])
            results = dict(zip(output_names, session.run(output_names, inputs), strict=True))
            differences.append(_apart(results, vector["outputs"]))
            space = space_of_json(metadata["policy_observation_space"])
            obs_leaves = [seen[dotted(f"observation{path}")] for _, path in leaves(space)]
            vector_runs.append((inputs, build(space, obs_leaves), vector["chosen"]))
    except Exception as error:
        raise af.OptionError(
            f"{path} is damaged or not ONNX: {type(error).__name__}: {error}", remedy=_REMEDY
        ) from error
    if not vector_runs:
        raise af.OptionError(f"{path} has no test vectors", remedy=_REMEDY)
    if policy is None:
        return max(differences)
    act = acting(policy, params, [vector_runs[0][1]])
    xp = namespace(af.registry.backend("numpy"))
    for inputs, seen, chosen in vector_runs:
        try:
            with np.errstate(all="ignore"):
                action = act(xp, seen, RawRandom(xp, "policy", partial(_recorded, inputs)))
        except af.ArrayFerryError:
            raise
        except Exception as error:
            raise af.OptionError(
                f"the policy fails for the observations in {path}: {describe_error(error)}",
                remedy="Pass the policy that was exported, and its policy_params.",
            ) from error
        differences.append(_apart(named({"action": action}), chosen))
    return max(differences)


_REMEDY = "Pass a file that export(None, path, policy=...) wrote."


def _arrays(values: dict[str, Any], descriptions: list[dict[str, Any]]) -> Arrays:
    return {x["name"]: np.asarray(values[x["name"]], x["dtype"]) for x in descriptions}


def _recorded(inputs: Arrays, name: str, kind: str, shape: Any, dtype: str) -> Any:
    numbers = inputs.get(name)
    if numbers is None or (numbers.shape, numbers.dtype) != (tuple(shape), dtype):
        raise af.OptionError(
            f"the policy draws {kind} numbers of shape {tuple(shape)}, but the file has no such input {name}",
            remedy="Pass the policy that was exported.",
        )
    return numbers


def _apart(actual: Arrays, wanted: Arrays) -> float:
    """Return the largest absolute difference of corresponding numbers.

    It is inf if names or shapes differ, or if only one of two numbers is NaN.
    """
    if actual.keys() != wanted.keys():
        return math.inf
    most = 0.0
    for name, array in actual.items():
        x, y = np.asarray(array), np.asarray(wanted[name])
        if x.shape != y.shape:
            return math.inf
        is_integral = {x.dtype.kind, y.dtype.kind} <= set("biuO")
        x, y = (operand.astype(object if is_integral else np.float64) for operand in (x, y))
        with np.errstate(all="ignore"):
            is_equal = (x == y) | ((x != x) & (y != y))
            apart = np.where(is_equal, 0, abs(x - y)).astype(np.float64)
        most = max(most, float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0)))
    return most
