"""Settings of JAX that hold for all that a user runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun
from gymnasium import spaces

from arrayferry_envs import CartPole, FunctionalEnv, evaluate, rollout, wrap
from arrayferry_envs._contract.params import equal
from arrayferry_gym import advantages, make_rng
from arrayferry_gym._spaces.foreign import box
from arrayferry_gym.vector import ArrayConversion
from arrayferry_gym.wrappers import kernels

BOX = spaces.Box(-np.arange(1, 4, dtype=np.float32), np.arange(1, 4, dtype=np.float32))


class Rewarded(FunctionalEnv):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, action_space, dtype="float32"):
        self.action_space, self.dtype = action_space, dtype

    def reset(self, xp, rng, n, params):
        return rng.uniform((n, 3), -1, 1)

    def step(self, xp, rng, state, action, params):
        return state, xp.ones(state.shape[:1], dtype=getattr(xp, self.dtype)), state[:, 0] > -2

    def observe(self, xp, state, params):
        return state


@pytest.mark.parametrize("xp", [np, jnp])
def test_random_numbers_from_arrays_without_rank_promotion(xp):
    low, high = xp.zeros(3, dtype="int32"), xp.arange(1, 4, dtype="int32")
    calls = [
        ("integers", low, high, "int32"),
        ("integers", 0, high, "uint8"),
        ("integers", low, 9, "uint32"),
        ("normal", xp.zeros(3), 1.0, "float32"),
        ("uniform", 0.0, xp.ones(3), "float32"),
    ]
    for method, *given in calls:
        expected = getattr(make_rng("jax", 0), method)((2, 3), *given)
        with jax.numpy_rank_promotion("raise"):
            assert (getattr(make_rng("jax", 0), method)((2, 3), *given) == expected).all()


@pytest.mark.parametrize(
    "space",
    [BOX, spaces.MultiDiscrete([2, 3]), spaces.Dict(a=BOX, b=spaces.Discrete(2)), spaces.Tuple((BOX,))],
    ids=lambda space: type(space).__name__,
)  # fmt: skip
def test_actions_are_clipped_without_rank_promotion(space):
    with jax.numpy_rank_promotion("raise"):
        for env in (Rewarded(space).make_vec(2, xp="jax"), Rewarded(space).make(xp="jax")):
            env.reset(seed=0)
            for _ in range(2):
                env.step(env.action_space.sample())


def test_actions_of_another_dtype_are_clipped_without_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        for clipping in (Rewarded(BOX), wrap(Rewarded(BOX), kernels.ClipAction())):
            envs = clipping.make_vec(2, xp="jax")
            envs.reset(seed=0)
            for dtype in (jnp.int8, jnp.float16):
                envs.step(jnp.full((2, 3), 100, dtype))


@pytest.mark.parametrize("number", [1, 0.5])
def test_numbers_are_actions_without_promotion_of_dtypes(number):
    with jax.numpy_dtype_promotion("strict"):
        env = CartPole().make(xp="jax", check_actions="off")
        env.reset(seed=0)
        assert env.step(number)[1] == 1.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_rewards_are_added_up_without_promotion_of_dtypes(dtype):
    with jax.numpy_dtype_promotion("strict"):
        env = Rewarded(spaces.Discrete(2), dtype)
        found = evaluate(
            env, lambda *_: (jnp.zeros(2, jnp.int32), None), num_envs=2, max_episode_steps=3
        )
    assert found.returns.dtype == "float32"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_clipped_rewards_keep_their_dtype(dtype, x64):
    env = wrap(Rewarded(spaces.Discrete(2), dtype), kernels.ClipReward(0, 0.5))
    envs = env.make_vec(2, xp="jax")
    envs.reset(seed=0)
    found = rollout(env, lambda *_: (jnp.zeros(2, int), None), None, jax.random.key(0), 2, 2)[1]
    for reward in (envs.step(np.zeros(2, int))[1], found.reward):
        assert reward.dtype == dtype
        assert (reward == 0.5).all()


class Tiny(Rewarded):
    reward_dtype = "float32"

    def step(self, xp, rng, state, action, params):
        return state, xp.full(state.shape[:1], 1e-300, dtype=xp.float64), False


TINY, ZEROS = np.full((3, 2), 1e-300), np.zeros((4, 3, 2), np.float32)
ROUNDED = {
    "rewards": lambda: begun(Tiny(spaces.Discrete(2)).make_vec(2), 0).step(np.zeros(2, int))[1],
    "advantages": lambda: advantages(TINY, *ZEROS[:2], *ZEROS[2:] > 0, gamma=1, lam=1)[0],
    "params": lambda: not equal(TINY, ZEROS[0]),
    "bounds": lambda: box((3, 2), np.dtype("f"), TINY, TINY).low,
}


@pytest.mark.parametrize("name", ROUNDED)
def test_tiny_numbers_are_rounded_where_numpy_raises(name):
    with np.errstate(all="raise"):
        assert not np.any(ROUNDED[name]())


def test_nothing_hidden_is_transferred():
    """What is passed to an environment is transferred as the user asks for it, and its parameters once."""
    envs = ArrayConversion(CartPole().make_vec(2, xp="jax"), target_xp="numpy")
    expected = envs.reset(seed=3)[0]
    envs = ArrayConversion(CartPole().make_vec(2, xp="jax"), target_xp="numpy")
    single = CartPole().make(xp="jax")
    with jax.transfer_guard("disallow"):
        for seed in (None, 2**40, [1, 2], 3):
            found = envs.reset(seed=seed)[0]
            envs.step(np.array([1, 0]))
        envs.reset(options={"reset_mask": np.array([True, False])})
        single.reset(seed=3)
        single.step(1)
        make_rng("jax", 3, device="cpu")
    assert np.array_equal(found, expected)


GUARDED = """
import jax, numpy as np
jax.config.update("jax_transfer_guard", "disallow")
from arrayferry_envs import CartPole, evaluate, rollout, wrap
from arrayferry_gym.wrappers import kernels, vector

def act(params, observation, key):
    return (observation[:, 2] > 0).astype(int), ()

envs = CartPole().make_vec(2, xp="jax")
for make in (vector.NormalizeObservation, vector.NormalizeReward, vector.TimeAwareObservation):
    envs = make(envs)
envs = vector.FrameStackObservation(envs, 2)
inside = wrap(CartPole(), kernels.NormalizeObservation(), kernels.StickyAction(0.5)).make_vec(2, xp="jax")
for each in (envs, inside):
    each.reset(seed=1)
    for _ in range(3):
        each.step(np.array([0, 1]))
evaluate(CartPole(), act, num_envs=2, key=1)
rollout(CartPole(), act, None, jax.device_put(np.zeros(2, np.uint32)), 3, 2)
"""


def test_environments_are_made_and_wrapped_where_hidden_transfers_are_refused(run_python):
    """In a process that has done nothing before."""
    run_python(GUARDED)
