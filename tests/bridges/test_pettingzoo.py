"""Real games of PettingZoo for agents of several libraries. `make bridges` runs these tests."""

import contextlib
import io
import itertools
import os
import warnings

import pytest

import arrayferry as af

pytest.importorskip("pettingzoo")
import pettingzoo

from arrayferry_gym.pettingzoo import AECConversion, ParallelConversion

with warnings.catch_warnings(action="ignore"):  # its tests import environments in the old way
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
pytestmark = pytest.mark.filterwarnings("ignore")

BOTH = ["classic/rps-v2", "butterfly/cooperative_pong-v6", "butterfly/pistonball-v6", "butterfly/knights_archers_zombies-v11",
        "sisl/multiwalker-v9", "sisl/pursuit-v5"]  # fmt: skip
TURNS = ["classic/chess-v6", "classic/connect_four-v3", "classic/leduc_holdem-v4", "classic/texas_holdem-v4",
         "classic/tictactoe-v3", *BOTH]  # fmt: skip
LIBRARIES = ["torch", "jax", "numpy"]


def made(kind, name):
    try:
        return pettingzoo.make(kind, name)
    except ImportError as error:
        pytest.skip(f"it does not run here: {error}")


def each(agents):
    return dict(zip(agents, itertools.cycle(LIBRARIES), strict=False))


def is_of(value, library):
    return af.first_array(value)[1] in (None, af.registry.backend(library))


@pytest.mark.parametrize("name", TURNS)
def test_turns(name):
    with contextlib.redirect_stdout(io.StringIO()):
        api_test(AECConversion(made("aec", name), target_xp="numpy"), num_cycles=10)
        seed_test(lambda: AECConversion(made("aec", name), target_xp="numpy"), num_cycles=5)
    inner = made("aec", name)
    env = AECConversion(inner, target_xp=each(inner.possible_agents))
    env.reset(seed=1)
    for agent in env.agent_iter(60):
        observation, reward, terminated, truncated, info = env.last()
        assert is_of((observation, info), each(inner.possible_agents)[agent])
        assert [type(part) for part in (reward, terminated, truncated)] == [float, bool, bool]
        assert env.observation_space(agent).contains(observation)
        mask = observation.get("action_mask") if isinstance(observation, dict) else None
        mask = info.get("action_mask", mask)
        over = terminated or truncated
        env.step(None if over else env.action_space(agent).sample(mask))


@pytest.mark.parametrize("name", BOTH)
def test_parallel_games(name):
    with contextlib.redirect_stdout(io.StringIO()):
        parallel_api_test(ParallelConversion(made("parallel", name), target_xp="numpy"), 10)
        parallel_seed_test(lambda: ParallelConversion(made("parallel", name), target_xp="numpy"), 5)
    inner = made("parallel", name)
    env = ParallelConversion(inner, target_xp=each(inner.possible_agents))
    observations, _ = env.reset(seed=1)
    for _ in range(10):
        for agent, observation in observations.items():
            assert is_of(observation, each(inner.possible_agents)[agent])
            assert env.observation_space(agent).contains(observation)
        if not env.agents:
            break
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, rewards, *_ = env.step(actions)
        assert all(type(reward) is float for reward in rewards.values())


# those that keep the library of agents, and those that compute in NumPy
WRAPPERS = {
    "numpy": ["dtype_v0", "color_reduction_v0", "resize_v1", "frame_stack_v1", "pad_observations_v0", "agent_indicator_v0",
              "clip_reward_v0", "delay_observations_v0", "max_observation_v0", "black_death_v3", "nan_zeros_v0"],
    "torch": ["clip_reward_v0", "black_death_v3", "nan_zeros_v0", "pad_observations_v0"],
    "jax": ["clip_reward_v0", "black_death_v3", "nan_zeros_v0", "pad_observations_v0", "dtype_v0", "color_reduction_v0"],
}  # fmt: skip
ARGUMENTS = {"dtype_v0": ["float32"], "resize_v1": [20, 20], "frame_stack_v1": [3], "delay_observations_v0": [2], "max_observation_v0": [2]}  # fmt: skip


@pytest.mark.parametrize(("library", "name"), [(a, b) for a, names in WRAPPERS.items() for b in names])  # fmt: skip
def test_wrappers_of_supersuit_outside(library, name):
    supersuit = pytest.importorskip("supersuit")
    game = ParallelConversion(made("parallel", "butterfly/cooperative_pong-v6"), target_xp=library)
    if name == "agent_indicator_v0":
        game = supersuit.color_reduction_v0(game, "full")
    env = getattr(supersuit, name)(game, *ARGUMENTS.get(name, []))
    observations, _ = env.reset(seed=1)
    for _ in range(3):
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, *_ = env.step(actions)
    assert all(is_of(observation, library) for observation in observations.values())
