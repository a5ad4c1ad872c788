"""What holds for all environments: they are written well, and the same in pickles, in JAX and in ONNX files."""

import json
import pickle

import array_api_compat.numpy as xp
import gymnasium as gym
import numpy as np
import pytest
from arrayferry_classic import (
    Acrobot,
    Blackjack,
    CliffWalking,
    FrozenLake,
    MountainCar,
    MountainCarContinuous,
    Taxi,
)
from gymnasium.utils.env_checker import check_env

from arrayferry_envs import check_functional_env, export, rollout, to_gymnax

ENVS = {
    "Acrobot": Acrobot(),
    "FrozenLake": FrozenLake(),
    "Blackjack": Blackjack(),
    "Blackjack, masks": Blackjack(masks=True),
    "CliffWalking": CliffWalking(),
    "CliffWalking, slippery": CliffWalking(is_slippery=True),
    "FrozenLake, masks": FrozenLake(masks=True),
    "MountainCar": MountainCar(),
    "MountainCarContinuous": MountainCarContinuous(),
    "Taxi": Taxi(),
    "Taxi, fickle": Taxi(fickle_passenger=True, masks=True),
}
QUICK = ("Acrobot", "FrozenLake")
every = pytest.mark.parametrize("name", ENVS)
each = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in ENVS],
)


@pytest.mark.long
@every
def test_they_are_written_well(name):
    assert check_functional_env(ENVS[name]) == []


@pytest.mark.filterwarnings("ignore")  # of the checkers
@every
def test_gymnasium_and_stable_baselines3_check(name):
    made = ENVS[name].make(render_mode="rgb_array")
    made.spec = gym.spec(f"arrayferry/{type(ENVS[name]).__name__}-v0")
    check_env(made)
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(ENVS[name].make())


@every
def test_pickles(name):
    env = ENVS[name]
    again = pickle.loads(pickle.dumps(env))
    assert again == env
    observation, _ = again.make_vec(3).reset(seed=1)
    np.testing.assert_equal(observation, env.make_vec(3).reset(seed=1)[0])


def at_random(env):
    """Return a policy of random actions."""
    import jax

    def policy(params, observation, key):
        n = jax.tree.leaves(observation)[0].shape[0]
        if env.action_space.shape:
            return jax.random.uniform(key, (n, 1), minval=-1, maxval=1), None
        return jax.random.randint(key, (n,), 0, env.action_space.n), None

    return policy


@each
def test_in_jax_with_strict_dtypes(name):
    """In a rollout and in the form of gymnax, where an episode ends at the limit."""
    import jax

    env, key = ENVS[name], jax.random.key(0)
    with jax.numpy_dtype_promotion("strict"):
        _, steps = rollout(env, at_random(env), None, key, 6, 32, max_episode_steps=3)
        assert (steps.terminated | steps.truncated)[2].any()
        gymnax = to_gymnax(env, max_episode_steps=1)
        _, state = gymnax.reset(key)
        _, _, _, done, _ = jax.jit(gymnax.step)(key, state, env.action_space.sample())
        assert done


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("Acrobot", {"start": 3.0}),
        ("CliffWalking", {"starts": np.array([35], np.int32)}),  # at the goal
        ("Blackjack", {"natural": True, "sab": False}),
        ("MountainCar", {"goal_position": -0.5}),
        ("Taxi", {"starts": np.full(300, 16, np.int32)}),  # at the destination
    ],
)
def test_parameters_of_a_batch_and_of_a_rollout(name, params):
    """Episodes end at once, or with rewards of their own."""
    import jax

    env = ENVS[name]
    envs = env.make_vec(64, xp="jax", autoreset_mode="SameStep", params=params)
    envs.reset(seed=1)
    envs.action_space.seed(1)
    assert any(envs.step(envs.action_space.sample())[2].any() for _ in range(30))
    key = jax.random.key(0)
    _, steps = rollout(env, at_random(env), None, key, 30, 64, env_params=params)
    assert steps.terminated.any()
    if name == "Blackjack":
        assert (steps.reward == 1.5).any()


class Fed:
    """The raw random numbers of a file, as it uses them."""

    def __init__(self, raw):
        self.raw = list(raw)

    def uniform(self, shape, low=0.0, high=1.0, dtype="float32"):
        return (low + self.raw.pop(0) * (high - low)).astype(dtype)

    def integers(self, shape, low, high, dtype="int32"):
        return np.floor(low + self.raw.pop(0) * np.float64(high - low)).astype(dtype)


def by_name(name, tree):
    """Return the arrays of a tree by the names that they have in a file."""
    if not isinstance(tree, (dict, tuple)):
        return {name: tree}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {key: x for part, below in parts for key, x in by_name(f"{name}.{part}", below).items()}


@each
def test_exported_files_step_as_numpy(name, tmp_path):
    """Single steps, each from NumPy's own states."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("ndonnx")
    env, n, rng = ENVS[name], 64, np.random.default_rng(2)
    export(env, path := str(tmp_path / "env.onnx"), num_envs=n)
    session = onnxruntime.InferenceSession(path)
    metadata = json.loads(session.get_modelmeta().custom_metadata_map["arrayferry"])
    feed = {
        x["name"]: np.full(x["shape"], x.get("value", 0), x["dtype"]) for x in metadata["inputs"]
    }
    raw = [x["name"] for x in metadata["inputs"] if "random" in x]
    names = [x.name for x in session.get_outputs()]
    space = gym.vector.utils.batch_space(env.action_space, n)
    space.seed(1)
    state, ends = None, 0
    for number in range(60):
        feed |= {each: rng.random(feed[each].shape, feed[each].dtype) for each in raw}
        begins = rng.random(n) < 0.05 if number else np.ones(n, bool)
        begins |= feed["last.ended"]
        action = space.sample()
        result = dict(
            zip(names, session.run(names, {**feed, "reset": begins, "action": action}), strict=True)
        )
        fed = {
            use: Fed(feed[each] for each in raw if f".{use}." in each) for use in ("reset", "step")
        }
        fresh = env.reset(xp, fed["reset"], n, env.default_params)
        if state is None:
            after, reward, terminated = fresh, np.zeros(n), np.zeros(n, bool)
        else:
            after, reward, terminated = env.step(xp, fed["step"], state, action, env.default_params)
        state = type(fresh)(*(np.where(begins, *pair) for pair in zip(fresh, after, strict=True)))
        for field, numbers in state._asdict().items():
            np.testing.assert_allclose(result[f"state.{field}"], numbers, rtol=2e-5, atol=2e-5)
            result[f"state.{field}"] = numbers.astype(result[f"state.{field}"].dtype)
        seen = env.observe(xp, state, env.default_params)
        for key, numbers in by_name("observation", seen).items():
            np.testing.assert_allclose(result[key], numbers, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(
            result["reward"], np.where(begins, 0, reward), rtol=2e-5, atol=2e-5
        )
        np.testing.assert_array_equal(result["terminated"], terminated & ~begins)
        ends += result["terminated"].sum()
        feed |= {f"last.{key}": x for key, x in result.items() if f"last.{key}" in feed}
    assert ends or not name.startswith(("FrozenLake", "Blackjack"))
