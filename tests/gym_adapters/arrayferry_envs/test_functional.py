"""Environments that belong to no library: what their author writes, and what the drivers do with it."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from typing import Any, NamedTuple

import array_api_strict
import equinox
import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from boxes import Point
from cases import crossed, params
from envs import EVERY_MODE, begun, host
from functional_envs import LIBRARIES, Bare, Cells, Parts, Scalar, still
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode
from refusals import refused_step

import arrayferry as af
import arrayferry_envs
from arrayferry_envs import CartPole, EnvResultError, ImpureError, _ids, register, repeat_action
from arrayferry_gym import ArrayConversion, vector
from arrayferry_gym.wrappers import kernels


class Count(Bare):
    """Counts its steps. An episode ends when it reaches a number that differs from environment to environment."""

    observation_space = spaces.Box(-1000, 1000, (2,), np.float32)
    action_space = spaces.Discrete(3, start=-1)
    default_params = {"end": 5.0, "label": "count"}

    def reset(self, xp, rng, n, params):
        return {"count": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        count = state["count"] + 1
        return {**state, "count": count}, count, count >= params["end"]

    def observe(self, xp, state, params):
        return xp.stack([state["count"]] * 2, axis=1)


ENDS = np.array([2, 3, 5], np.float32)


def counts(mode, **options):
    return Count().make_vec(3, autoreset_mode=mode, params={"end": ENDS}, **options)


def test_states_of_new_episodes_are_drawn_anew(library):
    options = {"autoreset_mode": "SameStep", "max_episode_steps": 1, **LIBRARIES[library]}
    envs = CartPole().make_vec(3, **options)
    starts = [host(envs.reset(seed=1)[0])]
    starts += [host(envs.step(np.zeros(3, int))[0]) for _ in range(5)]
    assert len(np.unique(np.concatenate(starts), axis=0)) == 3 * 6


@pytest.mark.parametrize(("mode", "library"), crossed(EVERY_MODE, LIBRARIES))
def test_the_same_seed_gives_the_same_episodes(library, mode):
    def run(seed):
        envs = CartPole().make_vec(5, autoreset_mode=mode, **LIBRARIES[library])
        rng = np.random.default_rng(0)
        found = [host(envs.reset(seed=seed)[0]), host(envs.reset()[0])]
        found += [host(envs.step(rng.integers(0, 2, 5))[0]) for _ in range(60)]
        return np.array(found)

    first = run(3)
    assert np.array_equal(first, run(3))
    assert not np.array_equal(first, run(4))
    assert np.array_equal(run([1, 2, 3, 4, 5]), run([1, 2, 3, 4, 5]))
    assert len(np.unique(first[:2, :, 0])) == 10


@pytest.mark.parametrize(
    ("action", "why", "library"),
    crossed(params([
        (np.zeros(4, np.int64), r"shape \(3,\), not \(4,\)"),
        (np.zeros((3, 2), np.int64), r"shape \(3,\), not \(3, 2\)"),
        (np.zeros((1, 3), np.int64), r"shape \(3,\), not \(1, 3\)"),
        (1, r"shape \(3,\), not \(\)"),
        (np.full(3, 0.5), "0.5, at .0., is not a whole number"),
        (torch.zeros(3), "takes whole numbers"),
        (np.full(3, np.nan), "nan, at .0., is not a whole number"),
        (["a", "b", "c"], "takes numbers, not the dtype"),
        (None, "takes"),
        ({"a": np.zeros(3)}, "takes"),
        ([[1], [1, 2], [3]], "different shapes"),
    ]), LIBRARIES),
)  # fmt: skip
def test_actions_that_cannot_be_meant(library, action, why):
    envs = begun(counts("Disabled", **LIBRARIES[library]))
    with pytest.raises(af.ConversionError, match=why) as caught:
        envs.step(action)
    assert "Count" in str(caught.value)
    assert host(envs.step([0, 0, 0])[0])[:, 0].tolist() == [1, 1, 1]  # nothing was lost


def test_one_environment_takes_one_action(library):
    env = begun(Parts().make(**LIBRARIES[library]), 0)
    right = {"x": np.array([0.5, 0.0]), "y": [0, 0], "z": 2}
    x, z = right["x"], right["z"]
    for key, forms in {
        "x": (x, x.tolist(), tuple(x), torch.tensor(x), x[None]),
        "z": (z, np.array(z), [z], torch.tensor([z]), 9),
        "more": (1,),
    }.items():
        for form in forms:
            assert env.step({**right, key: form})[1] == 2.5
    for wrong in ({"z": 2}, *({**right, key: x} for key, x in (("z", [1, 2]), ("z", 0.5), ("x", [0, 0, 0]))), None):  # fmt: skip
        refused_step(env, wrong, "an action for Parts")


@pytest.mark.parametrize(("agent", "library"), crossed(["numpy", "torch", "jax"], LIBRARIES))
def test_actions_of_any_library_and_dtype(library, agent):
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=3, **LIBRARIES[library])
    actions = [np.array([0.0, 1.0, 1.0])]  # whole numbers all the same
    for dtype, shape in itertools.product((np.int64, np.int32, np.uint8, bool), (3, (3, 1))):
        actions.append(af.convert(np.array([0, 1, 1], dtype).reshape(shape), agent))
    found = [host(begun(envs).step(action)[0]) for action in actions]
    assert all(np.array_equal(one, found[0]) for one in found)


def test_nothing_that_the_agent_holds_shares_memory_with_the_states():
    class Shares(Bare):
        observation_space = spaces.Box(-10, 10, (2,), np.float32)
        action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, xp, rng, state, action, params):
            return action, action[:, 0], action[:, 0] > 5

        def info(self, xp, state, params):
            wide = xp.broadcast_to(state[:, :1], (state.shape[0], 3))
            return {"state": state, "view": state[:, 0], "wide": wide}

    for options in ({}, {"xp": "torch"}, {"xp": array_api_strict}):
        for mode in EVERY_MODE:
            envs = Shares().make_vec(2, autoreset_mode=mode, max_episode_steps=2, **options)
            held = af.flatten(envs.reset(seed=0))[0]
            for _ in range(6):
                before = host(envs.state).copy()
                for x in held:
                    if "float" in str(x.dtype):
                        x[...] = 77
                assert np.array_equal(host(envs.state), before)
                action = af.convert(np.full((2, 2), 0.5, np.float32), envs.xp)
                held = [action, *af.flatten(envs.step(action))[0]]
    jaxed = Shares().make_vec(2, xp="jax")
    observation, _ = jaxed.reset(seed=0)
    kept = [observation]
    for _ in range(3):
        kept.append(jaxed.step(np.full((2, 2), 0.5, np.float32))[0])
    assert [float(x[0, 0]) for x in kept] == [0, 0.5, 0.5, 0.5]  # none was donated


# States of all kinds of structures.


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    name: str = "kept"


class Module(equinox.Module):
    x: Any
    unit: str = equinox.field(static=True, default="m")


STATES = {
    "array": (lambda x: x, lambda s: s),
    "named tuple": (lambda x: Point(x, {"deep": [x * 2]}), lambda s: s.y["deep"][0] / 2),
    "tuple": (lambda x: (x, x), lambda s: s[1]),
    "dict": (lambda x: {"b": x, "a": None}, lambda s: s["b"]),
    "dataclass": (lambda x: Frozen(x), lambda s: s.x),
    "module": (lambda x: Module(x), lambda s: s.x),
    "nested": (lambda x: Point(Frozen(x), Module(x)), lambda s: s.x.x),
}


@pytest.mark.parametrize(("mode", "kind", "library"), crossed(EVERY_MODE, STATES, LIBRARIES))
def test_states_are_any_tree_of_arrays(library, kind, mode):
    pack, unpack = STATES[kind]

    class Grows(Bare):
        max_episode_steps = 3

        def reset(self, *arguments):
            return pack(super().reset(*arguments))

        def step(self, xp, rng, state, action, params):
            x = unpack(state) + xp.astype(action, xp.float32)[:, None]
            return pack(x), 1.0, False

        def observe(self, xp, state, params):
            return unpack(state)

    envs = begun(Grows().make_vec(2, autoreset_mode=mode, **LIBRARIES[library]), 0)
    rows = [host(envs.step(np.array([1, 0]))[0])[:, 0].tolist() for _ in range(4)]
    third = [0, 0] if mode is AutoresetMode.SAME_STEP else [3, 0]
    fourth = {"SAME_STEP": [1, 0], "DISABLED": [4, 0]}.get(mode.name, [0, 0])
    assert rows == [[1, 0], [2, 0], third, fourth]
    state = envs.state
    assert type(state) is type(pack(unpack(state)))
    assert host(unpack(state))[:, 0].tolist() == fourth
    envs.state = pack(unpack(state) * 0 + 7)
    assert host(envs.step(np.array([1, 0]))[0])[0, 0] in (8, 7)  # 7 if it is reset there


def test_dict_and_tuple_spaces():
    for options in LIBRARIES.values():
        envs = Parts().make_vec(3, **options)
        observation, _ = envs.reset(seed=0)
        assert envs.observation_space.contains(observation)
        assert host(observation)["a"].dtype == (
            jax.numpy.asarray(1.0).dtype if envs.xp == "jax" else np.float64
        )
        x = np.array([[5, 5], [0, 0], [-5, -5]], np.float32)
        observation = envs.step({"x": x, "y": np.full((3, 2), 9), "z": [0, 0, 0]})[0]
        assert host(observation["a"]).tolist() == [[2, 3], [1, 2], [0, 1]]
        envs.step(envs.action_space.sample())
        refused_step(envs, {"x": x}, r"dict with the keys \['x', 'y', 'z'\]")
        refused_step(envs, {"x": x, "y": np.zeros((3, 3), int), "z": [0, 0, 0]}, r"at \['y'\]")


# Parameters.


def test_parameters_are_shared_or_differ(library):
    envs = gym.make_vec("arrayferry/Pendulum-v0", num_envs=3, **LIBRARIES[library])
    nothing = np.zeros((3, 1), np.float32)

    def fall(gravity):
        envs.reset(seed=1, options={"params": {"gravity": gravity}})
        return host(envs.step(nothing)[0])[:, 2]

    still, usual, strong = fall(0), fall(10.0), fall(20)
    assert np.allclose(strong - still, 2 * (usual - still), atol=1e-5)
    mixed = fall(np.array([0.0, 10.0, 20.0]))
    assert np.allclose(mixed, [still[0], usual[1], strong[2]], atol=1e-6)
    assert np.allclose(fall(af.convert(np.full(3, 10.0, np.float32), envs.xp)), usual, atol=1e-6)
    assert envs.params.mass == 1.0
    envs.reset(seed=1)
    assert np.shape(host(envs.params.gravity)) == (3,)  # they stay


def test_parameters_of_some_environments(library):
    envs = begun(counts("Disabled", **LIBRARIES[library]))
    zeros = np.zeros(3, np.int64)
    envs.step(zeros)
    mask = np.array([True, False, False])
    envs.reset(options={"reset_mask": mask, "params": {"end": 1.0}})
    ended = host(envs.step(zeros)[2])
    assert ended.tolist() == [True, False, False]
    assert host(envs.params["end"]).tolist() == [1, 3, 5]


def test_static_parameters_choose_branches(library):
    class Branches(Bare):
        default_params = {"double": False, "steps": 1, "scale": 1.0}

        def step(self, xp, rng, state, action, params):
            for _ in range(params["steps"]):
                state = state + params["scale"]
            return (state * 2 if params["double"] else state), 1.0, False

    envs = Branches().make_vec(2, **LIBRARIES[library])

    def after(**params):
        envs.reset(options={"params": {"double": False, "steps": 1, "scale": 1.0, **params}})
        return host(envs.step(np.zeros(2, int))[0])[0, 0]

    assert [after(), after(steps=3), after(double=True), after(scale=5), after()] == [1, 3, 2, 5, 1]
    with pytest.raises(af.OptionError, match=r"params\['steps'\] is static"):
        after(steps=np.array([1, 2]))
    with pytest.raises(af.OptionError, match="static parameter was changed"):
        envs.reset(options={"params": {"steps": 9}, "reset_mask": np.array([True, False])})


@pytest.mark.parametrize("path", _ids.REFERENCE)
def test_reference_environments_are_registered_with_their_limit(path):
    env = load_env_creator(path)
    spec = gym.spec(f"arrayferry/{env.__name__}-v0")
    assert spec.max_episode_steps == env.max_episode_steps
    assert spec.make().unwrapped.functional == env()


# Mistakes of authors.


def test_assigning_to_self_is_refused():
    class Impure(Count):
        def __init__(self):
            self.setting = 1

        def step(self, *args):
            self.setting = 3

    envs = begun(Impure().make_vec(2))
    refused_step(envs, np.zeros(2, int), r"cannot set Impure\.setting.*state", ImpureError)
    assert envs.functional.setting == 1


def _broken(**methods):
    return type("Broken", (Count,), methods)()


@pytest.mark.parametrize(
    ("method", "replacement", "why", "library"),
    crossed(params([
        ("reset", lambda self, xp, rng, n, p: None, "contains no array"),
        ("reset", lambda self, xp, rng, n, p: xp.zeros((4,), dtype=xp.float32), r"shape \(4,\).*3 environments"),
        ("reset", lambda self, xp, rng, n, p: xp.zeros((), dtype=xp.float32), r"shape \(\)"),
        ("step", lambda self, xp, rng, s, a, p: s, "not three or four values"),
        ("step", lambda self, xp, rng, s, a, p: (s["count"], 1.0, False), "structure"),
        ("step", lambda self, xp, rng, s, a, p: ({**s, "count": xp.astype(s["count"], xp.int32)}, 1.0, False), r"int32 for state\['count'\].*float32"),
        ("step", lambda self, xp, rng, s, a, p: ({**s, "count": s["count"][:1]}, 1.0, False), r"shape \(1,\) for state\['count'\]"),
        ("step", lambda self, xp, rng, s, a, p: (s, s["count"][:1], False), "reward of Broken"),
        ("step", lambda self, xp, rng, s, a, p: (s, "one", False), "reward of Broken"),
        ("step", lambda self, xp, rng, s, a, p: (s, 1.0, s["count"]), "terminated of Broken"),
        ("step", lambda self, xp, rng, s, a, p: (s, 1.0, None), "terminated of Broken"),
        ("observe", lambda self, xp, s, p: s["count"], r"observation of Broken.*\(3, 2\)"),
        ("observe", lambda self, xp, s, p: 3.0, r"observation of Broken"),
        ("info", lambda self, xp, s, p: s["count"], r"info\(\) returned .*not a dict"),
        ("info", lambda self, xp, s, p: {"m": 1.0}, r"info\(\) returned 1.0 for 'm'"),
        ("info", lambda self, xp, s, p: {"m": np.float32(1)}, "for 'm'"),
        ("info", lambda self, xp, s, p: {"m": xp.zeros((2,))}, "for 'm'"),
    ]), LIBRARIES),
)  # fmt: skip
def test_results_that_cannot_be_meant(library, method, replacement, why):
    envs = _broken(**{method: replacement}).make_vec(3, **LIBRARIES[library])
    with pytest.raises(EnvResultError, match=why):
        begun(envs).step(np.zeros(3, int))


def test_steps_out_of_order():
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=2)
    refused_step(envs, np.zeros(2, int), r"reset\(\)", gym.error.ResetNeeded)
    with pytest.raises(gym.error.ResetNeeded):
        _ = envs.state
    for steps in (0, 1):
        envs.reset()
        for _ in range(steps):
            envs.step(np.zeros(2, int))
        envs.close()
        refused_step(envs, np.zeros(2, int), r"reset\(\)", gym.error.ResetNeeded)


def test_random_numbers_of_the_author():
    class Draws(Bare):
        observation_space = spaces.Box(-100, 100, (5,), np.float32)
        default_params = {"low": -1.0}

        def step(self, xp, rng, state, action, params):
            logits = xp.asarray([[0.0, 1.0, -100.0]])
            columns = [
                rng.uniform((state.shape[0],), params["low"], 3.0),
                rng.normal((state.shape[0],), 5.0, 2.0),
                xp.astype(rng.integers((state.shape[0],), 3, 6), xp.float32),
                xp.astype(rng.categorical((state.shape[0],), logits), xp.float32),
                rng.uniform((state.shape[0],), params["low"], 3.0),
            ]
            return xp.stack(columns, axis=1), 1.0, False

    for options in LIBRARIES.values():
        envs = begun(Draws().make_vec(20_000, **options), 0)
        x = host(envs.step(np.zeros(20_000, int))[0])
        assert -1 <= x[:, 0].min() < -0.99
        assert 2.99 < x[:, 0].max() <= 3
        assert abs(x[:, 1].mean() - 5) < 0.1
        assert abs(x[:, 1].std() - 2) < 0.1
        assert set(x[:, 2].tolist()) == {3, 4, 5}
        assert abs(x[:, 3].mean() - np.e / (1 + np.e)) < 0.02
        assert x[:, 3].max() == 1
        assert abs(np.corrcoef(x[:, 0], x[:, 4])[0, 1]) < 0.03  # each draw is another one
        low = np.linspace(-1, 0, 20_000, dtype=np.float32)
        envs.reset(options={"params": {"low": low}})
        x = host(envs.step(np.zeros(20_000, int))[0])[:, 0]
        assert np.all(x >= low)


# As environments of Gymnasium.


def test_pickles_and_copies_go_on_alike(library):
    options = {"num_envs": 3, "max_episode_steps": 9, **LIBRARIES[library]}
    envs = begun(gym.make_vec("arrayferry/Pendulum-v0", **options))
    torque = torch.full((3, 1), 0.3, requires_grad=True)
    recorded = library == "torch itself" and torch.is_grad_enabled()
    envs.step(torque)
    others = [pickle.loads(pickle.dumps(envs)), copy.deepcopy(envs)]
    for _ in range(30):
        found, reward, *_ = envs.step(torque)
        assert getattr(reward, "requires_grad", False) == recorded
        for other in others:
            assert np.array_equal(host(other.step(torque)[0]), host(found))


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", array_api_strict])
@pytest.mark.parametrize("stated", [True, False])
def test_an_adapter_leaves_an_environment_in_its_library(library, target, stated):
    """Whether its library is stated to the adapter or not, and whether an episode has begun or not."""
    alone, inner = (gym.make_vec("arrayferry/CartPole-v0", 3, **LIBRARIES[library]) for _ in "ab")
    env = vector.ArrayConversion(inner, inner.xp if stated else None, target)
    assert inner.xp == alone.xp
    seen, expected = env.reset(seed=1)[0], alone.reset(seed=1)[0]
    assert env.env_backend.name == inner.xp
    for _ in range(2):
        assert af.backend_of(seen) is env.target_backend
        assert np.array_equal(host(seen), host(expected))
        seen, expected = (each.step(np.array([0, 1, 0]))[0] for each in (env, alone))
        assert af.first_array(inner.state)[1].name == inner.xp
    single = ArrayConversion(gym.make("arrayferry/CartPole-v0"), target_xp=target)
    assert af.backend_of(single.reset(seed=0)[0]).name == single.target_backend.name
    assert single.unwrapped.xp == "numpy"


def test_an_environment_that_is_strict_judges_alone(library):
    envs = CartPole().make_vec(2, check_actions="strict", **LIBRARIES[library])
    env = begun(vector.ArrayConversion(envs, target_xp="torch", check_actions="off"))
    env.step(torch.tensor([0, 1]))
    refused_step(env, torch.tensor([0, 2]), r"for CartPole .* out of its range")


def test_whole_numbers_are_judged_before_they_are_narrowed():
    env = begun(vector.JaxToTorch(CartPole().make_vec(2, xp="jax")))
    for _ in range(3):
        env.step(torch.tensor([0, 1]))
        for wrong in (2**32, 2**32 + 1, -(2**32), 2):
            with pytest.raises(af.ConversionError):
                env.step(torch.tensor([0, wrong]))


def test_devices():
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=3, xp="jax", device="cpu")
    observation, _ = envs.reset(seed=0)
    assert observation.committed
    assert envs.step(np.zeros(3, int))[0].committed
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=3, xp=torch, device=torch.device("cpu"))
    assert envs.reset(seed=0)[0].device.type == "cpu"


def test_registered_environments():
    register("tests/Count-v0", Count, autoreset_mode="SameStep", max_episode_steps=None)
    assert gym.make_vec("tests/Count-v0", num_envs=2).num_envs == 2
    gym.make("tests/Count-v0").reset()
    register("tests/Far-v0", "arrayferry_envs:CartPole", params={"gravity": 1.0})
    assert gym.make("tests/Far-v0").unwrapped.params.gravity == 1.0
    spec = gym.spec("arrayferry/CartPole-v0")
    assert gym.envs.registration.EnvSpec.from_json(spec.to_json()) == spec
    made = gym.make_vec("arrayferry/CartPole-v0", num_envs=2, xp=torch)
    assert gym.make_vec(made.spec).xp == "torch"
    del gym.registry["tests/Count-v0"], gym.registry["tests/Far-v0"]


def test_nothing_is_transferred_into_or_out_of_jax():
    envs = begun(gym.make_vec("arrayferry/CartPole-v0", num_envs=4, xp="jax"))
    action = jax.numpy.zeros(4, int)
    envs.step(action)
    with jax.transfer_guard("disallow"):
        for _ in range(50):
            observation, *_ = envs.step(action)
        envs.reset()
    assert isinstance(observation, jax.Array)


# What users may hold, and what they may pass.


class Told(Count):
    """Its reward is a parameter."""

    default_params = {"reward": np.array([0.0], np.float32), "end": 5.0}

    def step(self, xp, rng, state, action, params):
        reward = params["reward"]
        return state, reward[:, 0] if reward.ndim == 2 else state["count"] + reward, False


def test_parameters_are_the_users_no_more(library):
    envs = Told().make_vec(2, **LIBRARIES[library])  # arrays of NumPy as defaults
    given = np.array([[1.0], [2.0]], np.float32)
    for reward in (given, af.convert(given, envs.xp)):
        envs.reset(seed=0, options={"params": {"reward": reward}})
        reward = envs.step(np.zeros(2, int))[1]
        assert host(reward).tolist() == [1, 2]
        if envs.xp != "jax":
            reward[...] = 100
        given[...] = 7
        assert host(envs.step(np.zeros(2, int))[1]).tolist() == [1, 2]
        given[:, 0] = 1, 2


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float = 1.0
    steps: int = 1


class Fields(equinox.Module):
    scale: float = 1.0
    steps: int = equinox.field(static=True, default=1)


@pytest.mark.parametrize(("cls", "library"), crossed([Settings, Fields], LIBRARIES))
def test_parameters_with_fields(library, cls):
    class Scaled(Count):
        default_params = cls()

        def step(self, xp, rng, state, action, params):
            return state, params.scale * params.steps + 0 * state["count"], False

    envs = Scaled().make_vec(2, params=cls(3.0, 2), **LIBRARIES[library])

    def reward(**options):
        envs.reset(seed=0, **options)
        return host(envs.step(np.zeros(2, int))[1]).tolist()

    assert reward() == [6, 6]
    assert reward(options={"params": {"steps": 5}}) == [15, 15]
    assert reward(options={"params": cls()}) == [1, 1]
    assert reward(options={"params": cls(np.array([1.0, 2.0]), 3)}) == [3, 6]
    assert reward(options={"params": {}}) == [3, 6]


class Echo(Count):
    """The reward is the action."""

    def __init__(self, space):
        self.action_space = space

    def step(self, xp, rng, state, action, params):
        action = xp.astype(action, xp.float32)
        return state, action if action.ndim == 1 else action[:, 0], False


def test_actions_that_are_no_number_are_named(library):
    options = {"check_actions": "strict", **LIBRARIES[library]}
    envs = begun(arrayferry_envs.Pendulum().make_vec(2, **options))
    with pytest.raises(af.ConversionError, match=r"an action for Pendulum .*nan, at \[1, 0\]"):
        envs.step(np.array([[0.0], [np.nan]], np.float32))


CLIPPED = [
    (spaces.Box(0, 255, (1,), np.uint8), [[300], [-5]], [255, 0]),
    (spaces.Box(-10, 10, (1,), np.int32), [[2**32 + 1], [-(2**40)]], [10, -10]),
    (spaces.MultiBinary(1), [[257], [-256]], [1, 0]),
    (spaces.MultiDiscrete(np.array([5]), dtype=np.int8), [[260], [-1]], [4, 0]),
    (spaces.Box(-1, 1, (1,), np.float32), [[1e300], [-1e300]], [1, -1]),
    (spaces.Discrete(3, start=2), [2**40, -(2**40)], [4, 2]),
    (spaces.Box(-1, np.inf, (1,), np.float32), [[3.5], [-3.5]], [3.5, -1]),
]


@pytest.mark.parametrize(
    ("space", "action", "clipped", "library"), crossed(params(CLIPPED), LIBRARIES), ids=str
)
def test_actions_are_clipped_before_they_are_cast(library, space, action, clipped):
    envs = begun(Echo(space).make_vec(2, **LIBRARIES[library]), 0)
    assert host(envs.step(np.array(action))[1]).tolist() == clipped
    strict = begun(Echo(space).make_vec(2, check_actions="strict", **LIBRARIES[library]), 0)
    refused_step(strict, np.array(action), r"(?s)an action for Echo .*at \[[01]")
    assert envs.step(envs.action_space.sample())[1].shape == (2,)


@pytest.mark.parametrize("number", [1, 2, -1, 0.5, np.int32(1)], ids=repr)
def test_numbers_are_actions_without_a_check_too(library, number):
    env = begun(gym.make("arrayferry/CartPole-v0", check_actions="off", **LIBRARIES[library]), 0)
    assert env.step(number)[1] == 1.0


def test_integer_actions_up_to_the_end_of_their_dtype(library):
    if library == "torch itself":
        pytest.skip("PyTorch cannot clip uint32")
    space = spaces.Box(0, 2**32 - 1, (1,), np.uint32)
    envs = begun(Echo(space).make_vec(2, **LIBRARIES[library]), 0)
    envs.step(envs.action_space.sample())


def test_limits_of_registered_environments():
    register("tests/Far-v0", "arrayferry_envs:Pendulum")
    register("tests/Never-v0", "arrayferry_envs:Pendulum", max_episode_steps=None)
    for name, limit, own in (
        ("tests/Far-v0", 200, {}),
        ("tests/Far-v0", 150, {"max_episode_steps": 150}),
        ("tests/Never-v0", None, {}),
    ):
        for env in (gym.make(name, **own), gym.make_vec(name, num_envs=1, **own)):
            action = np.zeros(begun(env).action_space.shape)
            cut = [bool(env.step(action)[3]) for _ in range(201)]
            assert (cut.index(True) + 1 if True in cut else None) == limit
    del gym.registry["tests/Far-v0"], gym.registry["tests/Never-v0"]


class Forces(NamedTuple):
    wind: Any = 1.0
    gravity: Any = 2.0
    name: str = "calm"


class Nested(NamedTuple):
    air: Any
    gravity: Any = 2.0


FORCES = {
    "dict": {"wind": 1.0, "gravity": 2.0, "name": "calm"},
    "named tuple": Forces(),
    "nested": Nested({"wind": 1.0, "others": [0.5, None]}),
}


class Windy(Scalar):
    """A number that is moved by a wind, which is drawn for each episode."""

    observation_space = spaces.Box(-999, 999, (2,), np.float32)
    max_episode_steps = 3

    def __init__(self, default_params):
        self.default_params = default_params

    def sample_params(self, xp, rng, n, params):
        return with_wind(params, rng.uniform((n,), 1.0, 2.0))

    def step(self, xp, rng, state, action, params):
        return state + wind_of(params), wind_of(params), False

    def observe(self, xp, state, params):
        return xp.stack([state, wind_of(params)], axis=1)


def wind_of(params):
    if isinstance(params, Nested):
        return params.air["wind"]
    return params["wind"] if isinstance(params, dict) else params.wind


def with_wind(params, wind):
    if isinstance(params, dict):
        return {**dict(reversed(params.items())), "wind": wind}  # in another order, as of vmap
    if isinstance(params, Nested):
        return params._replace(air={**params.air, "wind": wind})
    return params._replace(wind=wind)


@pytest.mark.parametrize(("kind", "library"), crossed(FORCES, LIBRARIES))
def test_drawn_parameters_in_the_state_are_a_tree_like_the_parameters(library, kind):
    env = Windy(FORCES[kind])
    if kind == "nested":
        env = repeat_action(env, 1)
    for envs in (env.make_vec(3, **LIBRARIES[library]), env.make(**LIBRARIES[library])):
        seen, _ = envs.reset(seed=1)
        action = envs.action_space.sample()
        state = envs.state
        assert type(state.params) is type(FORCES[kind])
        gravity = state.params["gravity"] if kind == "dict" else state.params.gravity
        assert (float(gravity), wind_of(state.params).shape) == (2.0, (envs._n,))
        assert np.array_equal(host(wind_of(state.params)), np.atleast_1d(host(seen)[..., 1]))
        new = host(wind_of(state.params)) + 5
        other = with_wind(state.params, af.convert(new, like=wind_of(state.params)))
        for given in (other, with_wind(env.default_params, new)):
            envs.state = state
            assert np.array_equal(host(envs.step(action)[0])[..., 1], host(seen)[..., 1])
            envs.state = state._replace(params=given)
            assert np.array_equal(np.atleast_1d(host(envs.step(action)[0])[..., 1]), new)
            started, _ = envs.reset(options={"state": state._replace(params=given)})
            assert np.array_equal(np.atleast_1d(host(started)[..., 1]), new)
        if kind == "dict":
            envs.state = state._replace(params={"wind": new})
            assert np.array_equal(host(wind_of(envs.state.params)), new)
        copied = pickle.loads(pickle.dumps(envs))
        assert np.array_equal(host(wind_of(copied.state.params)), new)


@pytest.mark.parametrize(("kind", "library"), crossed(FORCES, LIBRARIES))
def test_parameters_that_are_passed_are_not_drawn(library, kind):
    env = Windy(FORCES[kind])
    winds = [0.5, 1.0, np.array([3.0, 4.0, 5.0], np.float32)]  # one of them is the default
    for wind in winds:
        given = {"wind": wind}
        given = {"air": {**given, "others": [0.5, None]}} if kind == "nested" else given
        envs = env.make_vec(3, params=given, **LIBRARIES[library])
        seen = [envs.reset(seed=1)[0]]
        seen += [envs.step(envs.action_space.sample())[0] for _ in range(7)]
        assert all(np.array_equal(host(x)[:, 1], np.broadcast_to(wind, 3)) for x in seen)
    # a dict names all, another tree changes none
    envs.reset(options={"params": env.default_params})
    assert (len(set(host(wind_of(envs.state.params)).tolist())) == 1) == (kind == "dict")
    envs.reset(options={"params": with_wind(env.default_params, 7.0)})
    envs = pickle.loads(pickle.dumps(envs))
    assert host(envs.reset()[0])[:, 1].tolist() == [7, 7, 7]
    counted = arrayferry_envs.wrap(env, kernels.RecordEpisodeStatistics())
    for changed in (env, counted, repeat_action(env, 2)):
        steps, _ = arrayferry_envs.rollout(
            changed, still, None, key=jax.random.key(0),
            num_envs=2, num_steps=5, env_params=with_wind(env.default_params, 9.0),
        )  # fmt: skip
        assert np.all(steps.observation[..., 1] == 9)


def test_parameters_are_drawn_for_all_environments_or_for_none(library):
    envs = begun(Windy(FORCES["dict"]).make_vec(3, **LIBRARIES[library]))
    some = {"reset_mask": np.array([True, False, False])}
    with pytest.raises(af.OptionError, match=r"params\['wind'\].*draws it for the others"):
        envs.reset(options={"params": {"wind": 1.0}, **some})
    envs.reset(options={"params": {"gravity": 3.0}, **some})
    assert host(envs.params["gravity"]).tolist() == [3, 2, 2]


def test_parameters_in_a_state_that_cannot_be_meant(library):
    envs = begun(Windy(FORCES["dict"]).make_vec(3, **LIBRARIES[library]))
    state = envs.state
    for wrong, why in [
        (state.state, "has no parameters"),
        (state._replace(params={"wnd": np.ones(3)}), "no parameter 'wnd'"),
        (state._replace(params={"wind": np.ones(2, np.float32)}), "shape"),
        (state._replace(params=Forces()), "parameters"),
    ]:
        with pytest.raises(af.ArrayFerryError, match=why):
            envs.state = wrong
    with pytest.warns(UserWarning, match=r"params\['gravity'\].*The parameter stays 2.0"):
        envs.state = state._replace(params={**state.params, "gravity": 9.0})
    envs.reset(options={"params": {"gravity": 4.0}, "state": state})
    assert float(envs.state.params["gravity"]) == 4.0
    assert np.array_equal(host(wind_of(envs.state.params)), host(wind_of(state.params)))


def test_options_of_a_reset_that_are_refused_change_nothing(library):
    envs = counts("Disabled", **LIBRARIES[library])
    with pytest.raises(af.OptionError):
        envs.reset(seed=-1, options={"params": {"end": 99.0}})
    assert host(envs.params["end"]).tolist() == ENDS.tolist()
    broken = _broken(reset=lambda self, *_: 1 / 0).make_vec(3, **LIBRARIES[library])
    with pytest.raises(ZeroDivisionError):
        broken.reset(seed=0)
    refused_step(broken, np.zeros(3, int), r"reset\(\)", gym.error.ResetNeeded)


def test_a_reset_after_a_step_that_fails(library):
    fails = [True]

    def step(self, xp, rng, state, action, params):
        state = Count.step(self, xp, rng, state, action, params)[0]
        if fails:
            raise ZeroDivisionError
        return state, rng.uniform((3,)), False

    envs, found = _broken(step=step).make_vec(3, **LIBRARIES[library]), []
    with pytest.raises(ZeroDivisionError):
        begun(envs).step(np.zeros(3, int))
    fails.clear()
    for each in (envs, _broken(step=step).make_vec(3, **LIBRARIES[library])):
        each.reset(seed=1)
        found.append(host([each.step(np.zeros(3, int))[:2] for _ in range(3)]))
    np.testing.assert_equal(*found)


def types(value):
    if isinstance(value, dict):
        return {key: types(part) for key, part in value.items()}
    return tuple(map(types, value)) if isinstance(value, tuple) else type(value)


def test_numbers_inside_of_observations_and_infos():
    class Nested(Cells):
        observation_space = spaces.Dict(cell=spaces.Discrete(5), mask=spaces.MultiBinary(2))

        def observe(self, xp, state, params):
            return {"cell": state, "mask": xp.ones((state.shape[0], 2), dtype=xp.int8)}

        def info(self, xp, state, params):
            whole = {"b": (state >= 0, state)}
            return {"a": whole, "c": xp.astype(state, xp.complex64), "d": state[:, None]}

    seen, info = Nested().make().reset(seed=1)
    assert types(seen) == {"cell": int, "mask": np.ndarray}
    assert types(info["a"]) == {"b": (bool, int)}
    assert (info["c"], info["d"].tolist()) == (seen["cell"] + 0j, [seen["cell"]])
    assert type(Cells().make(xp="array_api_strict").reset(seed=1)[0]) is not int


def test_arrays_of_another_library_in_a_state():
    env = _broken(reset=lambda self, xp, rng, n, p: {"count": np.zeros(n, np.float32)})
    envs = env.make_vec(3, xp="jax")
    with pytest.raises(EnvResultError, match="array of numpy for state"):
        envs.reset(seed=0)
