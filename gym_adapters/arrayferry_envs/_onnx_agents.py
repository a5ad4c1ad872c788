"""A policy without its environment as an ONNX graph, with test vectors. This module imports ndonnx."""

from __future__ import annotations

import copy
import json
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
from ._contract.actions import clipper
from ._contract.functional_env import FunctionalEnv
from ._onnx import Arrays, OnnxGraph, plain, space_in_json
from ._onnx_numbers import XP, RawRandom, exact
from ._onnx_policies import acting, named

NUMPY = namespace(af.registry.backend("numpy"))

RUNS = 3
"""The number of test vectors, each of which follows the one before."""


class _Outside(FunctionalEnv):
    """An environment of which only the spaces are known."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, xp: Any, rng: Any, n: int, params: Any) -> Any: ...

    def step(self, xp: Any, rng: Any, state: Any, action: Any, params: Any) -> Any: ...

    def observe(self, xp: Any, state: Any, params: Any) -> Any: ...


class AgentGraph(OnnxGraph):
    """A policy and the wrappers around it as a graph.

    Args:
        given: the spaces, by their names, of the environment inside of the wrappers.
        kernels: the wrappers, innermost first.
        num_envs, max_episode_steps: as for `export`.
    """

    def __init__(
        self, given: dict[str, Any], kernels: Any, num_envs: Any, max_episode_steps: Any
    ) -> None:
        for name, space in given.items():
            if not isinstance(space, spaces.Space):
                raise af.OptionError(
                    f"{name} is {space!r:.80}, but a policy is exported alone",
                    remedy=f"Pass {name}=, the space of one environment.",
                )
        env = wrap(_Outside(**given), *kernels)
        super().__init__(env, num_envs, None, False, max_episode_steps, "Disabled")

    def use_statistics(self, values: Any) -> None:
        super().use_statistics(values)
        own = self.chain.kernels
        self._known = [i for i, each in enumerate(own) if each.observes or each.acts]
        self._states = {XP: self.kernels}
        fresh = self.chain.init(NUMPY, self.n, None)
        self._states[NUMPY] = self._with_statistics(NUMPY, fresh, values)
        self.chain = copy.copy(self.chain)
        self.chain.kernels = tuple(own[i] for i in self._known)
        self._clips = {
            xp: clipper(self.env.base.action_space, af.registry.backend(name), None)
            for xp, name in ((XP, "ndonnx"), (NUMPY, "numpy"))
        }

    def _turn(self, xp: Any, given: Arrays, take: Any) -> tuple[Arrays, Any, Any]:
        """Return the results of a run, what the policy has seen, and the actions that it has chosen.

        Args:
            xp: the namespace.
            given: the observation, where an episode begins, and what the run before has handed on.
            take: returns raw random numbers.
        """
        acts, chooses = (RawRandom(xp, name, take) for name in ("wrappers", "policy"))
        pairs = zip(self._known, given["wrappers"], strict=True)
        states = tuple(self._states[xp][i]._replace(episode=episode) for i, episode in pairs)
        begins, flags = given.get("reset"), xp.zeros((self.n,), dtype=xp.bool)
        observation, nothing = given["observation"], xp.zeros((self.n,), dtype=xp.float32)
        step = Step(observation, nothing, flags, flags, {}, None if begins is None else ~begins)
        fresh = self.chain.init(xp, 1, None)
        states, _, seen = self.chain.take(xp, states, fresh, step, begins, observation, False)
        chosen = self.act(xp, seen, chooses)
        states, action = self.chain.action(xp, acts, states, chosen)
        handed_on = [state.episode for state in states]
        return {"action": self._clips[xp](action), "wrappers": handed_on}, seen, chosen

    def _outputs(self) -> Arrays:
        self.inputs, self.kinds = {}, {}
        given: Arrays = {"observation": self._arguments("observation", self.env.base.observation_space)}
        first = [self._states[NUMPY][i].episode for i in self._known]
        given["wrappers"] = self._argument({"last.wrappers": first})["last.wrappers"]
        if af.flatten(first)[0]:
            given |= self._argument({"reset": np.zeros(self.n, bool)})
        with exact():
            return named(self._turn(XP, given, self._raw)[0])

    def _metadata(self, outputs: Arrays) -> dict[str, Any]:
        base, metadata = self.env.base, super()._metadata(outputs)
        unknown = "environment", "autoreset_mode", "params"
        return {
            **{key: x for key, x in metadata.items() if key not in unknown},
            "observation_space": space_in_json(base.observation_space),
            "action_space": space_in_json(base.action_space),
            "policy_observation_space": space_in_json(self.chain.outside.observation),
            "test_vectors": self._vectors(),
        }

    def _vectors(self) -> list[dict[str, Any]]:
        """Return inputs, and what NumPy and the policy make of them in its own library."""
        rng, found = np.random.default_rng(0), []
        space = self.env.base.observation_space
        batch = batch_space(space, self.n)
        batch.seed(0)
        given: Arrays = {"wrappers": [self._states[NUMPY][i].episode for i in self._known]}
        for number in range(RUNS):
            observation = build(space, split(space, batch.sample()))
            given["observation"] = map_arrays(lambda x: _usual(rng, x), observation)
            if "reset" in self.inputs:
                given["reset"] = rng.random(self.n) < (0.3 if number else 1)
            inputs = named({"last.wrappers" if k == "wrappers" else k: x for k, x in given.items()})

            def take(name: str, kind: str, shape: Any, dtype: str, inputs: Any = inputs) -> Any:
                draw: Any = rng.random if kind == "uniform" else rng.standard_normal
                inputs[name] = numbers = draw(shape, dtype)
                return numbers

            results, seen, chosen = self._turn(NUMPY, given, take)
            given["wrappers"] = results["wrappers"]
            parts = {"inputs": inputs, "outputs": named(results)}
            parts |= {"seen": named({"observation": seen}), "chosen": named({"action": chosen})}
            found.append({key: {k: plain(x) for k, x in part.items()} for key, part in parts.items()})
        return found


def _usual(rng: Any, x: Any) -> Any:
    """Return numbers without extreme ones, which the samples of large spaces are."""
    if x.dtype.kind != "f":
        return x
    return np.where(abs(x) < 1e3, x, rng.standard_normal(x.shape)).astype(x.dtype)


def difference(path: Any, policy: Any, params: Any) -> float:
    """Return what `check_export` does."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_package("arrayferry_envs.check_export", "onnxruntime", error) from error
    session = onnxruntime.InferenceSession(path)
    metadata = json.loads(session.get_modelmeta().custom_metadata_map.get("arrayferry", "{}"))
    if "test_vectors" not in metadata:
        raise af.OptionError(
            f"{path} has no test vectors", remedy="Pass a file that export(None, path, policy=...) wrote."
        )
    act = None if policy is None else acting(policy, params)
    apart = [0.0]
    for vector in metadata["test_vectors"]:
        given = {
            x["name"]: np.asarray(vector["inputs"][x["name"]], x["dtype"]) for x in metadata["inputs"]
        }
        names = [x["name"] for x in metadata["outputs"]]
        results = dict(zip(names, session.run(names, given), strict=True))
        apart += [_apart(x, vector["outputs"][name]) for name, x in results.items()]
        if act is not None:
            seen = _tree(metadata["policy_observation_space"], vector["seen"], "observation")
            rng = RawRandom(NUMPY, "policy", lambda name, *_, given=given: given[name])
            chosen = named({"action": act(NUMPY, seen, rng)})
            apart += [_apart(x, vector["chosen"][name]) for name, x in chosen.items()]
    return max(apart)


def _apart(x: Any, y: Any) -> float:
    x, y = (np.asarray(each, np.float64) for each in (x, y))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        return float(np.where(same, 0, np.nan_to_num(abs(x - y), nan=np.inf)).max(initial=0))


def _tree(space: Any, values: Arrays, name: str) -> Any:
    """Return the tree of a space in JSON, given its arrays by their names."""
    inner = space.get("spaces")
    if isinstance(inner, dict):
        return {key: _tree(x, values, f"{name}.{key}") for key, x in inner.items()}
    if inner is not None:
        return tuple(_tree(x, values, f"{name}.{i}") for i, x in enumerate(inner))
    return np.asarray(values[name], space["dtype"])
