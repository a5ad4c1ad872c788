"""A policy without its environment as an ONNX graph, with test vectors. This module imports ndonnx."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.options import missing_package
from arrayferry.extending import map_arrays
from arrayferry_gym.extending import build, namespace, split
from arrayferry_gym.wrappers.kernels import Step

from ._around.wrapped import wrap
from ._contract.functional_env import FunctionalEnv
from ._onnx import Arrays, OnnxGraph, plain, space_in_json
from ._onnx_numbers import RawRandom, exact
from ._onnx_policies import acting, named

RUNS = 3
"""The number of test vectors, each of which follows the one before."""


class _Outside(FunctionalEnv):
    """An environment of which only the spaces are known."""

    def reset(self, xp: Any, rng: Any, n: Any, params: Any = None, *_: Any) -> Any: ...

    step: Any = reset
    observe: Any = reset


class AgentGraph(OnnxGraph):
    """A policy and the wrappers around it as a graph.

    Args:
        *given: the spaces of the environment inside of the wrappers by their names, and `kernels`, `num_envs`,
            `max_episode_steps`, `wrapper_state`, `policy` and `policy_params` as for `export`.
        library: that of its arrays. With "numpy", it computes what is expected of the graph.
    """

    def __init__(self, *given: Any, library: str = "ndonnx") -> None:
        self._given = given
        known, kernels, num_envs, limit, wrapper_state, policy, params = given
        for name, space in known.items():
            if not isinstance(space, spaces.Space):
                raise af.OptionError(
                    f"a policy is exported alone, but {name} is {space!r:.80}",
                    remedy=f"Pass {name}=, the space of one environment.",
                )
        whole = wrap(type("Outside", (_Outside,), known), *kernels)
        # those that change rewards alone do nothing here
        env = wrap(whole.base, *(x for x in whole.kernels if x.observes or x.acts))
        super().__init__(env, num_envs, None, False, limit, "Disabled", library)
        values = None if wrapper_state is None else whole._numbers(wrapper_state)
        self.use_statistics(values if env._statistics() else None)
        self.act_by(policy, params)
        self._batch = batch_space(known["observation_space"], self.n)
        self._batch.seed(0)

    def _turn(self, given: Arrays, take: Any) -> tuple[Arrays, Any, Any]:
        """Return the results of a run, what the policy has seen, and the actions that it has chosen.

        Args:
            given: the observation, where an episode begins, and what the run before has handed on.
            take: returns raw random numbers.
        """
        xp, begins = self.xp, given.get("reset")
        acts, chooses = (RawRandom(xp, name, take) for name in ("wrappers", "policy"))
        pairs = zip(self.kernels, given["last.wrappers"], strict=True)
        states = tuple(state._replace(episode=episode) for state, episode in pairs)
        flags, nothing = (xp.zeros((self.n,), dtype=x) for x in (xp.bool, xp.float32))
        valid = None if begins is None else ~begins
        step = Step(given["observation"], nothing, flags, flags, {}, valid)
        fresh = self.chain.init(xp, 1, None)
        states, _, seen = self.chain.take(xp, states, fresh, step, begins, step.observation, False)
        chosen = self.act(seen, chooses)
        states, action = self.chain.action(xp, acts, states, self._fitted(chosen))
        handed_on = [state.episode for state in states]
        return {"action": self.checked.clip(action), "wrappers": handed_on}, seen, chosen

    def _first(self) -> Arrays:
        """Return the inputs of a first run, but for random numbers: samples."""
        space = self.env.base.observation_space
        handed_on = [state.episode for state in self.kernels]
        given = {"observation": build(space, split(space, self._batch.sample()))}
        if af.flatten(handed_on)[0]:
            given["reset"] = np.ones(self.n, bool)
        return {**given, "last.wrappers": handed_on}

    def _outputs(self) -> Arrays:
        self.inputs, self.kinds = {}, {}
        with exact():
            return named(self._turn(self._arguments(self._first()), self._raw)[0])

    def _metadata(self, outputs: Arrays) -> dict[str, Any]:
        metadata = super()._metadata(outputs)
        for name in ("environment", "autoreset_mode", "params"):
            del metadata[name]
        metadata["policy_observation_space"] = metadata["observation_space"]
        metadata |= {name: space_in_json(space) for name, space in self._given[0].items()}
        beside = AgentGraph(*self._given, library="numpy")
        return {**metadata, "test_vectors": beside._vectors()}

    def _vectors(self) -> list[dict[str, Any]]:
        """Return the inputs and the results of some runs."""
        rng, found, handed_on = np.random.default_rng(0), [], None
        for number in range(RUNS):
            given = self._first()
            given["observation"] = map_arrays(partial(_usual, rng), given["observation"])
            if number:
                given["last.wrappers"] = handed_on
                given |= {"reset": rng.random(self.n) < 0.3} if "reset" in given else {}
            inputs = named(given)
            results, seen, chosen = self._turn(given, partial(_drawn, rng, inputs))
            handed_on = results["wrappers"]
            parts = {"inputs": inputs, "seen": named({"observation": seen})}
            parts |= {"chosen": named({"action": chosen}), "outputs": named(results)}
            vector = {key: {k: plain(x) for k, x in part.items()} for key, part in parts.items()}
            found.append(vector)
        return found


def _usual(rng: Any, x: Any) -> Any:
    """Replace extreme numbers, which the samples of large spaces are."""
    usual = (x.dtype.kind != "f") | (abs(x) < 1e3)
    return np.where(usual, x, rng.standard_normal(x.shape)).astype(x.dtype)


def _drawn(rng: Any, inputs: Arrays, name: str, kind: str, shape: Any, dtype: str) -> Any:
    draw = rng.random if kind == "uniform" else rng.standard_normal
    inputs[name] = numbers = draw(shape, dtype)
    return numbers


def difference(path: Any, policy: Any, params: Any) -> float:
    """Return what `check_export` does."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_package("arrayferry_envs.check_export", "onnxruntime", error) from error
    session = onnxruntime.InferenceSession(os.fspath(path))
    metadata = json.loads(session.get_modelmeta().custom_metadata_map.get("arrayferry", "{}"))
    if "test_vectors" not in metadata:
        raise af.OptionError(
            f"{path} has no test vectors",
            remedy="Pass a file that export(None, path, policy=...) wrote.",
        )
    act = None if policy is None else acting(policy, params)
    xp, apart = namespace(af.registry.backend("numpy")), [0.0]
    names = [x["name"] for x in metadata["outputs"]]
    dtypes = {x["name"]: x["dtype"] for x in metadata["inputs"]}
    for vector in metadata["test_vectors"]:
        given = {name: np.asarray(vector["inputs"][name], dtypes[name]) for name in dtypes}
        results = zip(names, session.run(names, given), strict=True)
        apart += [_apart(x, vector["outputs"][name]) for name, x in results]
        if act is not None:
            seen = _tree(metadata["policy_observation_space"], vector["seen"], "observation")
            rng = RawRandom(xp, "policy", lambda name, *_, given=given: given[name])
            chosen = named({"action": act(xp, seen, rng)})
            apart += [_apart(x, vector["chosen"][name]) for name, x in chosen.items()]
    return max(apart)


def _apart(*given: Any) -> float:
    x, y = (np.asarray(each, np.float64) for each in given)
    with np.errstate(all="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, abs(x - y))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0))


def _tree(space: Any, values: Arrays, name: str) -> Any:
    """Return the tree of a space in JSON, given its arrays by their names."""
    inner = space.get("spaces")
    if isinstance(inner, dict):
        return {key: _tree(x, values, f"{name}.{key}") for key, x in inner.items()}
    if inner is not None:
        return tuple(_tree(x, values, f"{name}.{i}") for i, x in enumerate(inner))
    return np.asarray(values[name], space["dtype"])
