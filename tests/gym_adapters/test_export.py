"""`export`: environments as ONNX files, which step as they do in NumPy with the same random numbers."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
from gymnasium import spaces
from raw_random import Fed

import arrayferry as af
from arrayferry_gym import functional
from arrayferry_gym._ids import REFERENCE
from arrayferry_gym.functional import CartPole, FunctionalEnv, export, wrap
from arrayferry_gym.wrappers import kernels

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

CLASSIC = ("Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum")
TABULAR = (
    "Blackjack",
    "CliffWalking",
    "CliffWalkingSlippery",
    "FrozenLake",
    "FrozenLake8x8",
    "Taxi",
)


LONG = pytest.mark.long
NAMES = [
    pytest.param(name, marks=() if name in ("CartPole", "FrozenLake") else LONG)
    for name in (*CLASSIC, *TABULAR)
]
MODES = ["SameStep", pytest.param("NextStep", marks=LONG)]


def made(name):
    """Return a reference environment by the name of its class."""
    (path,) = (path for path in REFERENCE if path.endswith(f":{name}"))
    module, _, cls = path.partition(":")
    return getattr(importlib.import_module(module), cls)()


class File:
    """A file at work.

    Attributes:
        metadata: its metadata.
        rng: makes raw random numbers.
        raw: those of the last run, by the names of inputs.
    """

    def __init__(self, env, tmp_path, **options):
        path = str(tmp_path / "env.onnx")
        export(env, path, **options)
        self.session = onnxruntime.InferenceSession(path)
        self.metadata = json.loads(self.session.get_modelmeta().custom_metadata_map["arrayferry"])
        self.rng = np.random.default_rng(1)
        self.feed = {
            x["name"]: np.full(x["shape"], x.get("value", 0), x["dtype"])
            for x in self.metadata["inputs"]
        }

    def run(self, reset=False, **given):
        """Run the graph, and return its outputs by name. The next run continues from there."""
        draws = {"uniform": self.rng.random, "normal": self.rng.standard_normal}
        self.raw = {
            x["name"]: draws[x["random"]](x["shape"], x["dtype"])
            for x in self.metadata["inputs"]
            if "random" in x
        }
        n = self.metadata["num_envs"]
        self.feed |= {**self.raw, **given, "reset": np.broadcast_to(reset, (n,)).copy()}
        names = [x.name for x in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, self.feed), strict=True))
        self.feed |= {f"last.{k}": x for k, x in outputs.items() if f"last.{k}" in self.feed}
        return outputs

    def fed(self, use):
        return Fed(x for name, x in self.raw.items() if name.startswith(f"random.{use}."))


def close(result, name, wanted, **tolerance):
    """Compare a tree among the outputs of a file with one of NumPy."""
    got = [x for key, x in result.items() if key == name or key.startswith(f"{name}.")]
    for x, y in zip(got, af.flatten(wanted)[0], strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def states_of(file, layout):
    """The states that a file hands on, as the environment has them in NumPy."""
    return layout.unflatten([x for name, x in file.feed.items() if name.startswith("last.state")])


def check_steps(env, tmp_path, steps, n, exact):
    """Compare single steps, each from NumPy's own states."""
    file, rng = File(env, tmp_path, num_envs=n), np.random.default_rng(2)
    params, space = env.default_params, env.action_space
    result = file.run(reset=True)
    layout = af.flatten(env.reset(xp, Fed(list(file.raw.values())), n, params))[1]
    tolerance = {} if exact else {"rtol": 2e-5, "atol": 2e-5}
    for _ in range(steps):
        state = states_of(file, layout)
        begins = rng.random(n) < 0.02
        begins |= file.feed["last.ended"]
        if space.shape:
            action = rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)
        else:
            action = rng.integers(0, space.n, n)
        taken = file.feed["last.elapsed"] + 1
        result = file.run(reset=begins, action=action)
        after, reward, terminated = env.step(xp, file.fed("step"), state, action, params)
        fresh = env.reset(xp, file.fed("reset"), n, params)
        leaves = [
            np.where(np.reshape(begins, (n, *(1,) * (x.ndim - 1))), x, y)
            for x, y in zip(af.flatten(fresh)[0], af.flatten(after)[0], strict=True)
        ]
        for got, wanted in zip(af.flatten(states_of(file, layout))[0], leaves, strict=True):
            np.testing.assert_allclose(got, wanted, **tolerance)
        seen = env.observe(xp, layout.unflatten(leaves), params)
        close(result, "observation", seen, **tolerance)
        np.testing.assert_allclose(result["reward"], np.where(begins, 0, reward), **tolerance)
        assert np.array_equal(result["terminated"], np.asarray(terminated) & ~begins)
        limit = env.max_episode_steps
        late = np.zeros(n, bool) if limit is None else taken >= limit
        assert np.array_equal(result["truncated"], late & ~begins)
        # the next step is from NumPy's own states
        names = [name for name in file.feed if name.startswith("last.state")]
        file.feed |= {
            name: x.astype(file.feed[name].dtype) for name, x in zip(names, leaves, strict=True)
        }


@pytest.mark.parametrize("name", NAMES)
def test_files_step_as_numpy(name, tmp_path):
    check_steps(made(name), tmp_path, 60, 32, exact=name in TABULAR)


@pytest.mark.long
@pytest.mark.parametrize("name", [*CLASSIC, *TABULAR])
def test_100_000_steps(name, tmp_path):
    check_steps(made(name), tmp_path, 100, 1_000, exact=name in TABULAR)


def test_all_reference_environments_are_tried():
    assert {path.partition(":")[2] for path in REFERENCE} == {*CLASSIC, *TABULAR}


def closed_loop(env, tmp_path, mode, steps, **options):
    """Run a file and NumPy beside each other, with one environment and the same random numbers."""
    file = File(env, tmp_path, autoreset_mode=mode, **options)
    envs = env.make_vec(1, autoreset_mode=mode)
    simulator = envs.unwrapped._simulator
    envs.reset(seed=0)
    if "wrapper_state" in options:
        envs.load_state_dict(options["wrapper_state"])
        for wrapper in (envs, envs.env):
            wrapper.update_running_mean = False
    result = file.run(reset=True)
    simulator.rng = file.fed("reset")
    observation, _ = envs.reset()
    envs.action_space.seed(3)
    yield result, (observation, None, None, None, {})
    for _ in range(steps):
        action = envs.action_space.sample()
        parts = action if isinstance(action, dict) else {"": action}
        result = file.run(**{f"action.{name}".rstrip("."): x for name, x in parts.items()})
        simulator.rng = Fed([*file.fed("step").raw, *file.fed("reset").raw])
        if env.kernels:
            envs._driver._rng = file.fed("wrappers")
        yield result, envs.step(action)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_episodes_follow_each_other_as_in_numpy(name, mode, tmp_path):
    env, ends = made(name), 0
    for result, wanted in closed_loop(env, tmp_path, mode, 100 if name in CLASSIC else 250):
        close(result, "observation", wanted[0], rtol=1e-4, atol=1e-4)
        if wanted[1] is None:
            continue
        for key, x in zip(("reward", "terminated", "truncated"), wanted[1:4], strict=True):
            np.testing.assert_allclose(result[key], x, rtol=1e-4)
        ended = bool((wanted[2] | wanted[3])[0])
        ends += ended
        if mode == "SameStep" and ended:
            final = wanted[4]["final_obs"]
            close(result, "final_observation", final, rtol=1e-4, atol=1e-4)
    assert ends or name in CLASSIC or name.startswith("Cliff")


WRAPPERS = {
    "stacked": [kernels.FrameStackObservation(3)],
    "counted": [kernels.RecordEpisodeStatistics(gamma=0.9)],
    "timed": [kernels.TimeAwareObservation(), kernels.ClipReward(0, 0.5)],
    "sticky": [kernels.StickyAction(0.5)],
    "normalised": [kernels.NormalizeObservation(), kernels.NormalizeReward()],
    "delayed and transformed": [
        kernels.DelayObservation(2),
        kernels.TransformObservation(lambda x: x * 2),
    ],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "chain",
    [pytest.param(x, marks=() if x in ("stacked", "normalised") else LONG) for x in WRAPPERS],
)
def test_wrappers(chain, mode, tmp_path):
    env, options = wrap(CartPole(), *WRAPPERS[chain]), {}
    if chain == "normalised":
        envs = env.make_vec(8)
        envs.reset(seed=1)
        for _ in range(20):
            envs.step(envs.action_space.sample())
        options["wrapper_state"] = statistics = {**envs.state_dict(), **envs.env.state_dict()}
        assert statistics.keys() == {"obs_rms", "return_rms"}
    for result, wanted in closed_loop(env, tmp_path, mode, 60, **options):
        close(result, "observation", wanted[0], rtol=1e-4, atol=1e-4)
        if wanted[1] is not None:
            np.testing.assert_allclose(result["reward"], wanted[1], rtol=1e-4)
        for key, x in wanted[4].get("episode", {}).items():
            mask = result["info._episode"]
            assert np.array_equal(mask, wanted[4]["_episode"])
            np.testing.assert_allclose(result[f"info.episode.{key}"][mask], x[mask], rtol=1e-4)


class Dots(FunctionalEnv):
    """Two rewards, nested spaces, normal numbers, integers and categories, and drawn parameters."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-np.inf, np.inf, (2,)), "colour": spaces.Discrete(3)}
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1, 1, (2,)), "turn": spaces.MultiDiscrete([2, 3], start=[1, -1])}
    )
    max_episode_steps = 7
    default_params: Any = {"wind": 0.5, "table": np.arange(6, dtype=np.float32), "sides": 2}

    def sample_params(self, xp, rng, n, params):
        return {**params, "wind": rng.uniform((n,), 0.0, params["wind"])}

    def reset(self, xp, rng, n, params):
        logits = xp.asarray([0.0, 1.0, 2.0])
        return {
            "at": rng.normal((n, 2), 0.0, 0.1),
            "colour": rng.categorical((n,), logits),
            "score": (xp.zeros((n,), dtype=xp.int32), rng.integers((n,), 1, 6)),
        }

    def step(self, xp, rng, state, action, params):
        pushed = params["wind"][:, None] * rng.normal(state["at"].shape)
        at = state["at"] + action["move"] * params["sides"] + pushed
        count, limit = state["score"]
        worth = xp.take(params["table"], limit, axis=0)
        reward = xp.stack([at[:, 0], worth], axis=1)
        turned = xp.astype(state["colour"] + action["turn"][:, 0] + 3, xp.int32) % 3
        after = {"at": at, "colour": turned, "score": (count + 1, limit)}
        return after, reward, count + 1 >= limit, xp.abs(at[:, 1]) > 4

    def observe(self, xp, state, params):
        return {"at": state["at"], "colour": state["colour"]}

    def info(self, xp, state, params):
        return {"left": state["score"][1] - state["score"][0]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("counted", [False, True])
def test_an_environment_of_ones_own(mode, counted, tmp_path):
    env = wrap(Dots(), kernels.RecordEpisodeStatistics()) if counted else Dots()
    for result, wanted in closed_loop(env, tmp_path, mode, 80):
        close(result, "observation", wanted[0], rtol=1e-4, atol=1e-5)
        if wanted[1] is not None:
            np.testing.assert_allclose(result["reward"], wanted[1], rtol=1e-4, atol=1e-5)
            assert np.array_equal(result["truncated"], wanted[3])
            assert np.array_equal(result["info.left"], wanted[4]["left"])
        if counted and "episode" in wanted[4]:
            mask = wanted[4]["_episode"]
            returns = wanted[4]["episode"]["r"][mask]
            np.testing.assert_allclose(result["info.episode.r"][mask], returns, rtol=1e-4)


def test_parameters_as_inputs(tmp_path):
    file = File(CartPole(), tmp_path, param_inputs=True, env_params={"gravity": 5.0})
    assert file.metadata["params"]["params.gravity"] == 5.0
    file.run(reset=True)
    before = dict(file.feed)
    light = file.run(action=np.ones(1, np.int64))
    file.feed |= before | {"params.force": np.asarray(20.0, np.float32)}
    strong = file.run(action=np.ones(1, np.int64))
    assert strong["state.velocity"] > light["state.velocity"]


def act(params, observation, rng):
    xp = af.namespace_of(observation)
    score = observation @ params["weights"] + params["bias"]
    return xp.astype(score > 0, xp.int64), None


def explore(params, observation, rng):
    return rng.integers((observation.shape[0],), 0, 2), None


WEIGHTS = {"weights": np.array([0.1, 0.5, 1.0, 1.0], np.float32), "bias": 0.0}


@LONG
def test_a_policy_scores_as_in_numpy(tmp_path):
    env = CartPole()
    file = File(
        env, tmp_path, num_envs=16, policy=act, policy_params=WEIGHTS, autoreset_mode="SameStep"
    )
    file.run(reset=True)
    returns, scores = np.zeros(16), []
    while len(scores) < 16:
        result = file.run()
        returns += result["reward"]
        ended = result["terminated"] | result["truncated"]
        scores += returns[ended].tolist()
        returns[ended] = 0
    wanted = functional.evaluate(
        env, act, policy_params=WEIGHTS, episodes=16, num_envs=16, policy_xp="numpy"
    )
    assert np.mean(scores) > 195
    assert abs(np.mean(scores) - np.mean(wanted.returns)) < 0.1 * np.mean(wanted.returns)


def test_a_policy_that_draws(tmp_path):
    file = File(CartPole(), tmp_path, num_envs=64, policy=explore)
    file.run(reset=True)
    result = file.run()
    wanted = file.fed("policy").integers((64,), 0, 2)
    assert np.array_equal(result["action"], wanted)


@LONG
def test_a_module_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")

    class Actor(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
            )

        def forward(self, observation):
            return self.layers(observation).argmax(-1)

    actor = Actor()
    file = File(CartPole(), tmp_path, num_envs=32, policy=actor)
    first = file.run(reset=True)
    for _ in range(20):
        wanted = actor(torch.from_numpy(first["observation"])).numpy()
        first = file.run()
        assert np.array_equal(first["action"], wanted)


class Branches(CartPole):
    def step(self, xp, rng, state, action, params):
        if xp.any(state.position > 1):  # a value decides
            action = 1 - action
        return super().step(xp, rng, state, action, params)


class OnHost(CartPole):
    def observe(self, xp, state, params):
        return xp.stack([np.sin(state.position)] * 4, axis=1)


class Loops(CartPole):
    def reset(self, xp, rng, n, params):
        x = rng.uniform((n,))
        while float(xp.max(x)) > 0.5:
            x = rng.uniform((n,))
        return super().reset(xp, rng, n, params)


class OfJax(CartPole):
    library = "jax"


def line_of(cls, text):
    lines, first = inspect.getsourcelines(cls)
    return f"test_export.py:{first + next(i for i, x in enumerate(lines) if text in x)}"


def jax_policy(params, observation, key):
    import jax

    return jax.numpy.zeros(observation.shape[0], int), None


def branching(params, observation, rng):
    if observation[0, 0] > 0:
        return rng.integers((1,), 0, 2), None
    return rng.integers((1,), 0, 1), None


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        (Branches, {}, line_of(Branches, "if xp.any")),
        (OnHost, {}, line_of(OnHost, "np.sin")),
        (Loops, {}, line_of(Loops, "while")),
        (OfJax, {}, "needs jax"),
        (CartPole, {"policy": jax_policy}, "a policy of JAX"),
        (CartPole, {"policy": branching}, line_of(branching, "if").partition(":")[2]),
        (CartPole, {"policy": 3}, "cannot be called"),
        (CartPole, {"wrapper_state": {}}, "has no wrappers"),
        (wrap(CartPole(), kernels.NormalizeObservation()), {}, "has statistics, which a file"),
        (CartPole, {"num_envs": 0}, "num_envs"),
        (CartPole, {"param_inputs": 2}, "param_inputs"),
        (CartPole, {"policy_params": WEIGHTS}, "without a policy"),
    ],
)
def test_what_cannot_be_exported_is_refused(env, options, words, tmp_path):
    path = tmp_path / "env.onnx"
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(env, path, **options)
    assert not path.exists()


class Counted(CartPole):
    """A state that is never 0, whole rewards, and a limit that is not finite."""

    default_params: Any = (CartPole.default_params, {"least": -np.inf})

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n, params[0]), rng.integers((n,), 5, 2**31 - 1)

    def step(self, xp, rng, state, action, params):
        inner, count = state
        inner, _, terminated = super().step(xp, rng, inner, action, params[0])
        many = xp.where(inner.angle > params[1]["least"], 7 % count, 0)
        return (inner, count), xp.astype(many, xp.int32), terminated

    def observe(self, xp, state, params):
        return super().observe(xp, state[0], params[0])


@pytest.mark.filterwarnings("ignore:the rewards of Counted")
@pytest.mark.parametrize("param_inputs", [False, True])
def test_states_that_are_never_0_and_whole_rewards(param_inputs, tmp_path):
    file = File(Counted(), tmp_path, num_envs=500, param_inputs=param_inputs)
    count = file.run(reset=True)["state.1"]
    assert 0.4 < (count % 2).mean() < 0.6  # float32 has only even numbers beyond 2**25
    result = file.run()
    assert result["reward"].dtype == np.float32
    assert np.array_equal(result["reward"], 7 % count)


class Rounded(CartPole):
    action_space = spaces.Box(0, 1, (), np.int32)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_rescaled_actions_of_whole_numbers(tmp_path):
    env = wrap(Rounded(), kernels.RescaleAction(-1.0, 1.0))
    file = File(env, tmp_path, num_envs=3)
    file.run(reset=True)
    before = file.feed["last.state.velocity"]
    after = file.run(action=np.array([-1.0, 0.9, 5.0], np.float32))["state.velocity"]
    assert (after > before).tolist() == [False, True, True]


def test_infos_have_the_masks_of_observations(tmp_path):
    env = functional.FrozenLake(masks=True)
    file = File(env, tmp_path, autoreset_mode="SameStep")
    result = file.run(reset=True)
    assert result["info.action_mask"].shape == (1, 4)
    assert {"final_observation.action_mask", "final_info.prob"} <= file.run().keys()


def wide(params, observation, rng):
    return observation, None


def fractions(params, observation, rng):
    return observation[:, 0], None


class Multiplied(CartPole):
    def observe(self, xp, state, params):
        return super().observe(xp, state, params) + xp.cumulative_prod(state.angle)[:, None]


class SameNames(CartPole):
    def info(self, xp, state, params):
        return {"a.b": state.angle, "a": {"b": state.position}}


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        (CartPole, {"policy": wide}, "its action"),
        (CartPole, {"policy": fractions}, "whole numbers"),
        (CartPole, {"policy": act, "policy_params": {"weights": np.ones(3, "float32"), "bias": 0.0}}, "policy"),
        (Multiplied, {}, "ndonnx computes cumulative_prod by logarithms"),
        (SameNames, {}, "same name"),
    ],
)  # fmt: skip
def test_what_would_be_wrong_is_refused(env, options, words, tmp_path):
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(env, tmp_path / "env.onnx", **options)


def modules():
    import torch

    class OfDict(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, observation):
            return {
                "move": torch.tanh(self.layer(observation["at"])),
                "turn": observation["colour"][:, None] * torch.tensor([[0, 0]])
                + torch.tensor([[1, 0]]),
            }

    class Draws(torch.nn.Module):
        def forward(self, observation):
            return (observation[:, 0] + torch.randn(observation.shape[0]) > 0).long()

    class Pair(torch.nn.Module):
        def forward(self, observation):
            return (observation[:, 0] > 0).long(), observation[:, 1]

    return OfDict(), Draws(), Pair()


@LONG
def test_modules_of_pytorch_that_take_dicts_draw_or_return_pairs(tmp_path):
    torch = pytest.importorskip("torch")
    of_dict, draws, pair = modules()
    with pytest.raises(af.OptionError, match="draws random numbers"):
        export(CartPole, tmp_path / "env.onnx", policy=draws)
    with pytest.raises(af.OptionError, match="its action is"):
        export(CartPole, tmp_path / "env.onnx", policy=pair)
    with pytest.raises(af.OptionError, match="RuntimeError"):
        export(CartPole, tmp_path / "env.onnx", policy=of_dict, policy_params={"no": torch.ones(1)})
    file = File(Dots(), tmp_path, num_envs=3, policy=of_dict)
    first = file.run(reset=True)
    seen = {"at": first["observation.at"], "colour": first["observation.colour"]}
    with torch.no_grad():
        wanted = of_dict(af.convert(seen, "torch"))
    result = file.run()
    np.testing.assert_allclose(result["action.move"], wanted["move"].numpy(), rtol=1e-5)
    assert np.array_equal(result["action.turn"], wanted["turn"].numpy())


WITHOUT = """
import sys
sys.modules["ndonnx"] = None
from arrayferry_gym.functional import *
try:
    export(CartPole(), "env.onnx")
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_only_a_call_needs_ndonnx(tmp_path):
    command = [sys.executable, "-c", WITHOUT]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert re.match("BackendUnavailableError .*pip install ndonnx", ended.stdout)
    assert not list(tmp_path.iterdir())
