"""Random numbers of a run: each consumer draws its own, in each library, served and compiled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry_envs import FunctionalEnv, Functions, evaluate, rollout, wrap
from arrayferry_gym import make_rng
from arrayferry_gym.wrappers import KernelWrapper
from arrayferry_gym.wrappers.kernels import Kernel
from arrayferry_gym.wrappers.vector import KernelVectorWrapper

LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch", "jax"])


class Drawn(FunctionalEnv):
    """The reward is all that was drawn: by the policy, two kernels, `sample_params`, `reset` and `step`."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(0, 1, (3,))
    default_params = {"a": 0.0}
    reward_shape = (6,)
    max_episode_steps = 1

    def sample_params(self, xp, rng, n, params):
        return {"a": rng.uniform((n,))}

    def reset(self, xp, rng, n, params):
        return rng.uniform((n, 1))

    def step(self, xp, rng, state, action, params):
        after = rng.uniform(state.shape)
        drawn = xp.broadcast_to(params["a"], state.shape[:1])[:, None]
        return (
            after,
            xp.concat([action, drawn, state, after], axis=1),
            xp.zeros_like(drawn[:, 0]) > 0,
        )

    def observe(self, xp, state, params):
        return state


class Writes(Kernel):
    """Writes a random number to a column of the actions."""

    parts = ()

    def __init__(self, column):
        self.column = column

    def action(self, xp, rng, state, action):
        drawn = rng.uniform((action.shape[0], 1))
        return state, xp.where(xp.arange(3)[None, :] == self.column, drawn, action)


def policy(params, observation, key):
    n = observation.shape[0]
    if isinstance(observation, jax.Array):
        drawn = jax.random.uniform(key, (n, 1)) * jnp.ones((n, 3))
    else:
        own = [key.uniform((n, 1))] * 3
        drawn = (
            torch.cat(own, 1) if isinstance(observation, torch.Tensor) else np.concatenate(own, 1)
        )
    return drawn, None


ENV = wrap(Drawn(), Writes(1), Writes(2))


def check(rewards):
    numbers = np.asarray(af.convert(rewards, "numpy")).astype(np.float32).ravel()
    assert len(numbers) > 10
    assert len(set(numbers.tolist())) == len(numbers), numbers.reshape(-1, 6)


def served(library, seed, *, wrapped):
    envs = (ENV if wrapped else Drawn()).make_vec(
        2, xp=library, autoreset_mode=AutoresetMode.SAME_STEP
    )
    if not wrapped:
        envs = KernelVectorWrapper(KernelVectorWrapper(envs, Writes(1)), Writes(2))
    envs.reset(seed=seed)
    for number in range(4):
        action = make_rng(library, (seed if isinstance(seed, int) else 9, number, 0)).uniform(
            (2, 3)
        )
        yield np.asarray(af.convert(envs.step(action)[1], "numpy"))


@LIBRARIES
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("seed", [0, 3, [3, None]])
def test_streams_of_served_environments(library, wrapped, seed):
    check(list(served(library, seed, wrapped=wrapped)))


@LIBRARIES
def test_streams_of_single_environments(library):
    env = KernelWrapper(KernelWrapper(Drawn().make(xp=library), Writes(1)), Writes(2))
    env.reset(seed=5)
    rewards = []
    for number in range(4):
        action = make_rng(library, (5, number)).uniform((3,))
        rewards.append(np.asarray(af.convert(env.step(action)[1], "numpy")))
        env.reset()
    check(rewards)


@LIBRARIES
@pytest.mark.parametrize("key", [0, 1])
def test_streams_of_an_evaluation(library, key):
    check(evaluate(ENV, policy, policy_xp=library, key=key, num_envs=2, episodes=3).returns)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_policy_does_not_draw_the_numbers_of_the_first_reset(library):
    envs = Drawn().make_vec(2, xp=library, autoreset_mode=AutoresetMode.SAME_STEP)
    first = af.convert(envs.reset(seed=7)[0], "numpy")
    seen = []

    def noted(params, observation, key):
        seen.append(af.convert(key.uniform((2, 1)), "numpy"))
        return policy(params, observation, key)

    evaluate(envs, noted, policy_xp=library, key=7, episodes=1)
    assert not np.isin(seen[0], first).any()


def test_streams_of_rollouts_and_functions():
    key = jax.random.key(0)
    _, first = rollout(ENV, policy, None, key, 3, 2)
    check(first.reward)
    functions = Functions(ENV)
    env_state, _ = functions.reset(jax.random.fold_in(key, 0), 2)
    rewards = []
    for number in range(3):
        action = jnp.zeros((2, 3)) + jax.random.uniform(jax.random.key(number + 50), (2, 1))
        env_state, outcome = functions.step(jax.random.fold_in(key, number + 1), env_state, action)
        rewards.append(outcome.reward)
    check(rewards)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "array_api_strict"])
def test_seeds_that_differ_draw_other_numbers(library):
    seeds = [0, 1, 5, 2**32, 2**32 + 1, 2**32 + 5, 2**63, 2**64 + 1, 5 + 2**64]
    seeds += [(0,), (1,), (0, 0), (1, 0), (0, 1), (1, 0, 0), (5, 1), (2**32 + 5,), [1, 0, 0, 0]]
    drawn = [tuple(np.asarray(af.convert(make_rng(library, seed).uniform((3,)), "numpy")).tolist()) for seed in seeds]  # fmt: skip
    assert len(set(drawn)) == len(seeds)
    for wrong in ((1, -1), (1, 0.5), (1, None)):
        with pytest.raises((ValueError, TypeError)):
            make_rng(library, wrong).uniform((3,))


def sampled(params, observation, key):
    action = torch.distributions.Categorical(torch.ones(2)).sample((len(observation),))
    return (action if isinstance(observation, torch.Tensor) else action.numpy()), None


class Sampling(torch.nn.Module):
    def forward(self, observation):
        return torch.distributions.Categorical(torch.ones(len(observation), 2)).sample()


@pytest.mark.parametrize(
    ("policy", "library"), [(sampled, "torch"), (sampled, "numpy"), (Sampling(), "torch")]
)
def test_numbers_that_pytorch_draws_by_itself_follow_from_the_key(policy, library):
    import gymnasium as gym

    envs = gym.make_vec("CartPole-v1", num_envs=4)
    run = functools.partial(evaluate, envs, policy, policy_xp=library, episodes=2)
    state = torch.get_rng_state()
    one = run(key=3).lengths.tolist()
    torch.rand(5)
    after = torch.get_rng_state()
    assert run(key=3).lengths.tolist() == one != run(key=4).lengths.tolist()
    assert (torch.get_rng_state() == after).all()
    torch.set_rng_state(state)
