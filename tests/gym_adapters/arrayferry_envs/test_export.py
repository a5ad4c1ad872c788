"""`export`: environments as ONNX files, which step as they do in NumPy with the same random numbers."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
import torch
from cases import quick_if
from functional_envs import Cells, MaskedCounts
from gymnasium import spaces
from raw_random import Fed

import arrayferry as af
from arrayferry_envs import CartPole, FunctionalEnv, export, wrap
from arrayferry_envs._ids import REFERENCE
from arrayferry_gym import make_rng
from arrayferry_gym.wrappers import kernels

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

LONG = pytest.mark.long
CLASSES = {path.partition(":")[2]: path for path in REFERENCE}
NAMES = quick_if(CLASSES, "CartPole".__eq__)
MODES = quick_if(["SameStep", "NextStep"], "SameStep".__eq__)


def made(name):
    """Return a reference environment by the name of its class."""
    return pkgutil.resolve_name(CLASSES[name])()


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("steps", "n"), [(60, 32), pytest.param(100, 1_000, marks=LONG)], ids=["few", "many"]
)
def test_files_step_as_numpy(name, steps, n, tmp_path):
    """Single steps, each from NumPy's own states."""
    env = made(name)
    file, rng = File(env, tmp_path, num_envs=n), np.random.default_rng(2)
    params, space = env.default_params, env.action_space
    result = file.run(reset=True)
    layout = af.flatten(env.reset(xp, Fed(list(file.raw.values())), n, params))[1]
    tolerance = {"rtol": 2e-5, "atol": 2e-5}
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


CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def check_episodes(env, tmp_path, mode, steps, **options):
    """Run a file and NumPy beside each other, with one environment and the same random numbers.

    Returns:
        How many episodes ended.
    """
    file = File(env, tmp_path, autoreset_mode=mode, **options)
    envs = env.make_vec(1, autoreset_mode=mode)
    stepper = envs._stepper
    envs.reset(seed=0)
    if "wrapper_state" in options:
        envs.load_state_dict(options["wrapper_state"])
        envs.update_running_mean = False
    result = file.run(reset=True)
    stepper.rng = file.fed("reset")
    close(result, "observation", envs.reset()[0], **CLOSE)
    envs.action_space.seed(3)
    ends = 0
    for _ in range(steps):
        action = envs.action_space.sample()
        parts = action if isinstance(action, dict) else {"": action}
        result = file.run(**{f"action.{name}".rstrip("."): x for name, x in parts.items()})
        stepper.rng = Fed([*file.fed("step").raw, *file.fed("reset").raw])
        if env.kernels:
            stepper.acting = file.fed("wrappers")
        observation, reward, terminated, truncated, info = envs.step(action)
        close(result, "observation", observation, **CLOSE)
        np.testing.assert_allclose(result["reward"], reward, **CLOSE)
        assert np.array_equal(result["terminated"], terminated)
        assert np.array_equal(result["truncated"], truncated)
        ended = bool((terminated | truncated)[0])
        ends += ended
        if mode == "SameStep" and ended:
            close(result, "final_observation", info["final_obs"], **CLOSE)
        if "left" in info:
            assert np.array_equal(result["info.left"], info["left"])
        if "episode" in info:
            mask = info["_episode"]
            assert np.array_equal(result["info._episode"], mask)
            del info["episode"]["t"]
            for key, x in info["episode"].items():
                np.testing.assert_allclose(result[f"info.episode.{key}"][mask], x[mask], **CLOSE)
    return ends


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_episodes_follow_each_other_as_in_numpy(name, mode, tmp_path):
    check_episodes(made(name), tmp_path, mode, 100)


@pytest.mark.parametrize("mode", MODES)
def test_tables_and_whole_numbers(mode, tmp_path):
    assert check_episodes(Cells(), tmp_path, mode, 250)


WRAPPERS = {
    "stacked": [kernels.FrameStackObservation(3)],
    "counted": [kernels.RecordEpisodeStatistics(gamma=0.9)],
    "timed": [kernels.TimeAwareObservation(), kernels.ClipReward(0, 0.5)],
    "sticky": [kernels.StickyAction(0.5)],
    "normalised": [kernels.NormalizeObservation(), kernels.NormalizeReward()],
    "delayed": [kernels.DelayObservation(2), kernels.TransformObservation(lambda x: x * 2)],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chain", quick_if(WRAPPERS, ("stacked", "normalised").__contains__))
def test_wrappers(chain, mode, tmp_path):
    env, options = wrap(CartPole(), *WRAPPERS[chain]), {}
    if chain == "normalised":
        envs = env.make_vec(8)
        envs.reset(seed=1)
        for _ in range(20):
            envs.step(envs.action_space.sample())
        options["wrapper_state"] = statistics = envs.state_dict()
        assert statistics.keys() == {"obs_rms", "return_rms"}
    check_episodes(env, tmp_path, mode, 60, **options)


class Dots(FunctionalEnv):
    """Two rewards, nested spaces, normal numbers, integers and categories, and drawn parameters."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-np.inf, np.inf, (2,)), "colour": spaces.Discrete(3)}
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1, 1, (2,)), "turn": spaces.MultiDiscrete([2, 3], start=[1, -1])}
    )
    max_episode_steps = 7
    reward_shape = (2,)
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
    assert check_episodes(env, tmp_path, mode, 80)


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


WEIGHTS = {"weights": np.array([0.1, 0.5, -1.0, -1.0], np.float32), "bias": 0.1}


def test_a_policy_that_draws(tmp_path):
    file = File(CartPole(), tmp_path, num_envs=64, policy=explore)
    file.run(reset=True)
    result = file.run()
    wanted = file.fed("policy").integers((64,), 0, 2)
    assert np.array_equal(result["action"], wanted)


class Actor(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, observation):
        return super().forward(observation).argmax(-1)


@pytest.mark.parametrize("kind", ["function", pytest.param("module", marks=LONG)])
def test_policies_act_as_outside_of_the_file(kind, tmp_path):
    torch.manual_seed(0)
    actor = Actor()
    options = {"policy": act, "policy_params": WEIGHTS} if kind == "function" else {"policy": actor}
    file = File(CartPole(), tmp_path, num_envs=32, autoreset_mode="SameStep", **options)
    result, ends = file.run(reset=True), 0
    for _ in range(40):
        seen = result["observation"]
        wanted = act(WEIGHTS, seen, None)[0] if kind == "function" else actor(torch.tensor(seen))
        result = file.run()
        assert np.array_equal(result["action"], wanted)
        ends += result["terminated"].sum()
    assert ends


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


class OfTorch(CartPole):
    library = "torch"


class OfJax(CartPole):
    """It counts the steps while they are few, by a loop of JAX whose length follows from values."""

    library = "jax"

    def info(self, xp, state, params):
        import jax

        def double(x):
            return x * 2

        turns = jax.lax.while_loop(lambda x: x.max() < 100, double, abs(state.position) + 1)
        rows = jax.lax.fori_loop(0, 3, lambda i, x: x + i * state.angle, state.angle)
        _, sums = jax.lax.scan(lambda x, row: (x + row, x), rows[0], rows, reverse=True)
        first = jax.lax.cond(rows.sum() > 0, lambda x: x + 1, lambda x: -x, rows)
        return {"turns": turns, "sums": sums, "first": first}


class BranchingInJax(CartPole):
    library = "jax"

    def reset(self, xp, rng, n, params):
        return super().reset(xp, rng, n if rng.uniform(()) > 0 else 0, params)


def line_of(cls, text):
    lines, first = inspect.getsourcelines(cls)
    return f"test_export.py:{first + next(i for i, x in enumerate(lines) if text in x)}"


def branching(params, observation, rng):
    if observation[0, 0] > 0:
        return rng.integers((1,), 0, 2), None
    return rng.integers((1,), 0, 1), None


def test_a_branch_in_jax_is_refused_with_its_line(tmp_path):
    pytest.importorskip("jax")
    words = rf"(?s){re.escape(line_of(BranchingInJax, 'n if'))}.*Write it with functions that jax\.jit can trace"
    with pytest.raises(af.OptionError, match=words):
        export(BranchingInJax(), tmp_path / "env.onnx")


@pytest.mark.parametrize("mode", MODES)
def test_environments_in_jax(mode, tmp_path):
    jax = pytest.importorskip("jax")
    env = wrap(OfJax(), kernels.FrameStackObservation(2))
    file = File(
        env, tmp_path, num_envs=50, autoreset_mode=mode, param_inputs=True, max_episode_steps=9
    )
    names = {x["name"]: x["shape"] for x in file.metadata["inputs"]}
    assert names["last.key"] == [2]
    assert names["params.gravity"] == []
    key = np.array([0, 7], np.uint32)
    state = file.run(reset=True, **{"last.key": key})
    following = state["key"]
    expected = jax.random.split(jax.random.wrap_key_data(key), 3)[0]
    assert following.tolist() == jax.random.key_data(expected).tolist()
    params, ended = CartPole.default_params, 0
    kind = type(CartPole().reset(xp, make_rng("numpy", 0), 1, params))
    for _ in range(30):
        names = [name for name in state if name.startswith("state.")]
        before = kind(*(state[name] for name in names))
        after, _, terminated = CartPole().step(xp, None, before, np.ones(50, np.int64), params)
        resets = state["ended"]
        state = file.run(action=np.ones(50, np.int64))
        goes_on = ~(resets if mode == "NextStep" else terminated | state["truncated"])
        for name, x in zip(names, after, strict=True):
            np.testing.assert_allclose(state[name][goes_on], x[goes_on], rtol=1e-5, atol=1e-6)
        ended += int(state["terminated"].sum())
        values = [state[name] for name in names]
        info = jax.jit(OfJax().info, static_argnums=0)(xp, kind(*values), params)
        for name, x in info.items():
            np.testing.assert_allclose(state[f"info.{name}"], x, rtol=1e-4, atol=1e-6)
    assert ended


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
    file = File(MaskedCounts(), tmp_path, autoreset_mode="SameStep")
    result = file.run(reset=True)
    assert result["info.action_mask"].shape == (1, 3)
    assert {"final_observation.action_mask", "final_info.count"} <= file.run().keys()


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


REFUSED = [
    (Branches, {}, line_of(Branches, "if xp.any")),
    (OnHost, {}, line_of(OnHost, "np.sin")),
    (Loops, {}, line_of(Loops, "while")),
    (OfTorch, {}, "needs torch"),
    (CartPole, {"policy": branching}, line_of(branching, "if").partition(":")[2]),
    (CartPole, {"policy": 3}, "cannot be called"),
    (CartPole, {"wrapper_state": {}}, "has no wrappers"),
    (wrap(CartPole(), kernels.NormalizeObservation()), {}, "has statistics, but wrapper_state is None"),
    (CartPole, {"num_envs": 0}, "num_envs"),
    (CartPole, {"param_inputs": 2}, "param_inputs"),
    (CartPole, {"policy_params": WEIGHTS}, "without a policy"),
    (CartPole, {"policy": wide}, "its action"),
    (CartPole, {"policy": fractions}, "whole numbers"),
    (CartPole, {"policy": act, "policy_params": {"weights": np.ones(3, "float32"), "bias": 0.0}}, "policy"),
    (Multiplied, {}, "ndonnx computes cumulative_prod by logarithms"),
    (SameNames, {}, "same name"),
]  # fmt: skip


@pytest.mark.parametrize(("env", "options", "words"), REFUSED)
def test_what_cannot_be_exported_is_refused(env, options, words, tmp_path):
    path = tmp_path / "env.onnx"
    with pytest.raises(af.OptionError, match=re.escape(words)):
        export(env, path, **options)
    assert not path.exists()


class OfDict(torch.nn.Linear):
    def forward(self, observation):
        turn = torch.stack([1 + 0 * observation["colour"], 0 * observation["colour"]], 1)
        return {"move": torch.tanh(super().forward(observation["at"])), "turn": turn}


class Draws(torch.nn.Module):
    def forward(self, observation):
        return (observation[:, 0] + torch.randn(observation.shape[0]) > 0).long()


class Pair(torch.nn.Module):
    def forward(self, observation):
        return (observation[:, 0] > 0).long(), observation[:, 1]


@LONG
def test_modules_of_pytorch_that_take_dicts_draw_or_return_pairs(tmp_path):
    of_dict = OfDict(2, 2)
    for env, options, words in (
        (CartPole, {"policy": Draws()}, "draws random numbers"),
        (CartPole, {"policy": Pair()}, "its action is"),
        (
            CartPole,
            {"policy": of_dict, "policy_params": {"no": torch.ones(1)}},
            "policy_params has",
        ),
    ):
        with pytest.raises(af.OptionError, match=words):
            export(env, tmp_path / "env.onnx", **options)
    file = File(Dots(), tmp_path, num_envs=3, policy=of_dict)
    first = file.run(reset=True)
    seen = {"at": first["observation.at"], "colour": first["observation.colour"]}
    with torch.no_grad():
        wanted = of_dict(af.convert(seen, "torch"))
    result = file.run()
    np.testing.assert_allclose(result["action.move"], wanted["move"].numpy(), rtol=1e-5)
    assert np.array_equal(result["action.turn"], wanted["turn"].numpy())


def test_only_a_call_needs_ndonnx(run_python, tmp_path):
    out = run_python(
        f"""
import sys
sys.modules["ndonnx"] = None
from arrayferry_envs import *
try:
    export(CartPole(), {str(tmp_path / "env.onnx")!r})
except ImportError as error:
    print(type(error).__name__, error)
"""
    )
    assert re.match("BackendUnavailableError .*pip install ndonnx", out)
    assert not list(tmp_path.iterdir())


class Noisy(CartPole):
    """Draws from NumPy, which a file would hold as a constant."""

    def step(self, xp, rng, state, action, params):
        state, reward, terminated = super().step(xp, rng, state, action, params)[:3]
        return state, reward + float(np.random.normal()), terminated


def test_an_environment_that_draws_by_itself_is_refused(tmp_path):
    with pytest.raises(af.OptionError, match="different results for the same arguments"):
        export(Noisy(), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


class Angle(CartPole):
    def observe(self, xp, state, params):
        return xp.atan2(super().observe(xp, state, params), xp.asarray(1.0))


def test_a_function_that_ndonnx_lacks_is_named(tmp_path):
    with pytest.raises(af.OptionError, match=r"ndonnx does not compute atan2\. Write it"):
        export(Angle(), tmp_path / "x.onnx")
