"""Environments of PettingZoo for agents of any library, also of different ones in one game."""

import contextlib
import copy
import io
import pickle
import warnings
from types import SimpleNamespace

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import begun
from games import AGENTS, EACH, TYPES, Probe, in_turns, made
from gymnasium import spaces
from refusals import refused_step

import arrayferry as af

pytest.importorskip("pettingzoo")
pytest.importorskip("pygame")
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe
from pettingzoo.utils import aec_to_parallel

from arrayferry_gym import ArrayConversion
from arrayferry_gym.pettingzoo import AECConversion, ParallelConversion

with warnings.catch_warnings(action="ignore"):  # its tests import environments in the old way
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    from pettingzoo.test.example_envs import (
        generated_agents_env_action_mask_info_v0,
        generated_agents_env_v0,
        generated_agents_parallel_v0,
    )


# PettingZoo's own tests

TURNS = {
    "tictactoe": tictactoe.env, "connect_four": connect_four.env, "rps": rps.env,
    "generated": generated_agents_env_v0.env, "masks in infos": generated_agents_env_action_mask_info_v0.env,
    "of PyTorch": lambda: in_turns("torch"), "of JAX": lambda: in_turns("jax"),
}  # fmt: skip
AT_ONCE = {
    "rps": rps.parallel_env, "generated": generated_agents_parallel_v0.parallel_env,
    "of PyTorch": lambda: Probe("torch"), "of JAX": lambda: Probe("jax"),
    "of AEC": lambda: aec_to_parallel(AECConversion(rps.env(), target_xp="numpy")),
}  # fmt: skip


THEIRS = {
    AECConversion: (TURNS, api_test, seed_test),
    ParallelConversion: (AT_ONCE, parallel_api_test, parallel_seed_test),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what their own example does
@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in THEIRS for name in THEIRS[k][0]])
def test_their_tests(kind, name):
    games, test, test_seeds = THEIRS[kind]

    def make():
        return kind(games[name](), target_xp="numpy")

    with contextlib.redirect_stdout(io.StringIO()):
        test(make(), num_cycles=20)
        test_seeds(make, num_cycles=10)


# agents of different libraries


def test_a_game_of_turns_is_the_same_for_all_libraries():
    seen = []
    for targets in ("numpy", {"player_0": "jax", "player_1": "torch"}):
        env = begun(AECConversion(connect_four.env(), target_xp=targets))
        rng, game = np.random.default_rng(0), []
        for agent in env.agent_iter():
            observation, *numbers, info = env.last()
            kind = TYPES[targets if isinstance(targets, str) else targets[agent]]
            assert all(isinstance(part, kind) for part in observation.values())
            assert env.observation_space(agent).contains(observation)
            assert [type(number) for number in numbers] == [float, bool, bool]
            mask = np.asarray(observation["action_mask"])
            game.append((agent, af.convert(observation["observation"], "numpy"), numbers, info))
            action = None
            if mask.any() and not any(numbers[1:]):
                action = env.action_space(agent).sample(observation["action_mask"])
                assert isinstance(action, kind) or kind is np.ndarray
                action = made(rng.choice(np.flatnonzero(mask)), "numpy", "int8")
                action = action if kind is np.ndarray else af.convert(action, like=observation["action_mask"])  # fmt: skip
            env.step(action)
        seen.append(game)
    assert len(seen[0]) > 8
    np.testing.assert_equal(seen[0], seen[1])


def test_what_belongs_to_all():
    env = ParallelConversion(Probe("jax"), target_xp="torch")
    observations, _ = env.reset(seed=1, options={"level": np.float32([2])})
    assert all(isinstance(value, torch.Tensor) for value in observations.values())
    assert isinstance(env.state(), torch.Tensor)
    assert env.state_space.contains(env.state())
    assert isinstance(env.state_space.sample(), torch.Tensor)
    env.reset(options={"level": torch.ones(1)})
    assert isinstance(env.unwrapped.options["level"], jax.Array)
    assert (env.possible_agents, env.num_agents, env.max_num_agents) == (AGENTS, 3, 3)
    assert env.metadata["name"] == "probe_v0"
    assert env.render_mode == "rgb_array"
    assert env.render().shape == (2, 2, 3)
    assert env.unwrapped is env.env
    assert (str(env.unwrapped), env.stepped) == ("probe_v0", 0)
    assert "jax -> torch" in repr(env)
    with pytest.raises(AttributeError, match="private"):
        _ = env._secret
    with pytest.raises(AttributeError):
        _ = env.missing
    mixed = ParallelConversion(Probe("jax"), target_xp=EACH, target_device={"player_1": "cpu"})
    mixed.reset()
    assert isinstance(mixed.state(), jax.Array)  # of no library of all
    assert "player_1: jax -> torch, cpu" in repr(mixed)
    assert mixed.observation_space("player_0") is mixed.observation_space("player_0")
    assert mixed.action_space("player_1") is not mixed.action_space("player_2")
    like = {"player_0": torch.nn.Linear(1, 1), "player_1": {"weights": jnp.ones(2)}}
    learnt = ParallelConversion(Probe(), like=like)
    observations, _ = learnt.reset()
    kinds = [type(value) for value in observations.values()]
    assert kinds == [torch.Tensor, type(jnp.ones(1)), np.ndarray]


def test_libraries_are_detected():
    env = ParallelConversion(Probe("torch"))
    observations, _ = env.reset()
    assert all(isinstance(value, torch.Tensor) for value in observations.values())
    actions = {"player_0": jnp.int32(0), "player_1": np.int64(2), "player_2": torch.tensor(0)}
    observations = env.step(actions)[0]
    assert all(isinstance(value, torch.Tensor) for value in env.unwrapped.actions.values())
    kinds = [type(value) for value in observations.values()]
    assert kinds == [type(jnp.ones(1)), np.ndarray, torch.Tensor]
    turns = begun(AECConversion(in_turns("torch"), target_xp="numpy"))
    for _ in AGENTS:
        turns.step(2)  # before anything was observed
    assert all(isinstance(action, torch.Tensor) for action in turns.unwrapped.actions.values())
    turns.last()
    turns.reset(options={"level": np.ones(1)})
    assert isinstance(turns.unwrapped.options["level"], torch.Tensor)


def test_rewards_with_dimensions_and_infos_of_no_agent():
    class Several(Probe):
        def reward(self, action):
            return np.array([action, 1.0])

        def info(self):
            return {"text": "a", "wide": np.ones(2)}

        def step(self, actions):
            results = super().step(actions)
            results[-1]["common"] = {"shared": np.ones(1)}
            return results

    env = ParallelConversion(Several(), target_xp=EACH, info_xp="torch")
    _, infos = env.reset()
    assert infos["player_0"]["text"] == "a"
    assert isinstance(infos["player_0"]["wide"], torch.Tensor)
    _, rewards, _, _, infos = env.step(dict.fromkeys(AGENTS, 0))
    assert [isinstance(rewards[agent], TYPES[EACH[agent]]) for agent in AGENTS] == [True] * 3
    assert infos["common"]["shared"].shape == (1,)


# actions


def test_a_refused_action_steps_nothing():
    env = begun(ParallelConversion(Probe(), target_xp=EACH))
    for wrong in (3, 0.5, torch.zeros(3), "left"):
        refused_step(env, {"player_0": 0, "player_1": 0, "player_2": wrong}, "agent 'player_2'")
    refused_step(env, [0, 0, 0], "a dict with the action of each agent", TypeError)
    for unknown in (lambda: env.step({"nobody": 0}), lambda: env.action_space("nobody")):
        with pytest.raises(af.OptionError, match=r"no agent 'nobody'.*player_0"):
            unknown()
    assert env.stepped == 0
    assert env.step(dict.fromkeys(AGENTS, 0))[1]["player_0"] == 1
    turns = begun(AECConversion(in_turns(), target_xp=EACH))
    turns.step(0)
    refused_step(turns, 5, "agent 'player_1'")
    assert turns.agent_selection == "player_1"
    turns.step(torch.tensor(2))
    turns.step(0)
    assert turns._cumulative_rewards == {"player_0": 1, "player_1": 2, "player_2": 1}


def test_checks_of_actions():
    class Continuous(Probe):
        def __init__(self):
            super().__init__()
            self.acted = {agent: spaces.Box(-1, 1, (1,), np.float32) for agent in AGENTS}

        def step(self, actions):
            if actions["player_0"].shape != (1,):
                raise ValueError("not my shape")
            return super().step(dict.fromkeys(actions, 0))

    beyond = dict.fromkeys(AGENTS, np.float32([2]))
    strict = begun(ParallelConversion(Continuous(), check_actions="strict"))
    refused_step(strict, beyond, r"agent 'player_0'.*bounds")
    env = begun(ParallelConversion(Continuous()))
    wide = {**beyond, "player_0": np.zeros(2, np.float32)}
    with pytest.warns(UserWarning, match="passed on") as told, pytest.raises(ValueError, match="not my shape") as raised:  # fmt: skip
        env.step(wide)
    assert told[0].filename == __file__
    assert "passed on" in raised.value.__notes__[0]


def test_a_new_action_space_counts_from_its_reset_on():
    class Shrinking(Probe):
        def reset(self, seed=None, options=None):
            self.acted = {agent: spaces.Discrete((options or {}).get("n", 3)) for agent in AGENTS}
            return super().reset(seed, options)

    env = begun(ParallelConversion(Shrinking()))
    env.step(dict.fromkeys(AGENTS, 2))
    env.reset(options={"n": 2})
    refused_step(env, dict.fromkeys(AGENTS, 2), "takes whole numbers from 0 to 1")


# agents that come and go, copies, mistakes


def test_agents_come_and_go():
    env = begun(AECConversion(generated_agents_env_v0.env(), target_xp="torch"))
    before, met, dead = {*env.agents}, set(), 0
    for agent in env.agent_iter():
        met.add(agent)
        observation, reward, terminated, truncated, _ = env.last()
        assert isinstance(observation, torch.Tensor)
        assert type(reward) is float
        dead += terminated or truncated
        env.step(None if terminated or truncated else env.action_space(agent).sample())
        assert env.rewards.keys() == env.infos.keys() == {*env.agents}
    assert met > before
    assert dead == len(met)
    env.reset(seed=2)
    assert not env._adapters.keys() - {*env.agents}


def test_agents_that_move_at_once_leave_one_by_one():
    class Leaving(Probe):
        """The player with the number k has terminated after 2 + k steps."""

        def step(self, actions):
            here, results = self.agents, super().step(actions)
            over = {agent: self.count >= 2 + k for k, agent in enumerate(AGENTS)}
            self.agents = [agent for agent in here if not over[agent]]
            results = [*results[:2], over, dict.fromkeys(AGENTS, False), results[4]]
            return tuple({agent: each[agent] for agent in here} for each in results)

    env = begun(ParallelConversion(Leaving("jax"), target_xp=EACH))
    left = []
    while env.agents:
        here = env.agents
        results = env.step({agent: made(2, EACH[agent], "int64") for agent in here})
        assert all([*result] == here for result in results)
        assert all(isinstance(results[0][agent], TYPES[EACH[agent]]) for agent in here)
        assert all(isinstance(results[4][agent]["mask"], TYPES[EACH[agent]]) for agent in here)
        left += [agent for agent in here if results[2][agent]]
        assert env.agents == [agent for agent in AGENTS if agent not in left]
    assert left == AGENTS
    env.reset()
    assert env.agents == AGENTS


def test_seeds_of_numpy():
    env = ParallelConversion(Probe(), target_xp="torch")
    first, same = (env.reset(seed=seed)[0]["player_0"] for seed in (3, np.int64(3)))
    assert torch.equal(first, same)
    assert type(env.unwrapped.seed) is int


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_in_the_middle_of_a_game(twin):
    env = begun(ParallelConversion(Probe("torch"), target_xp=EACH))
    env.step(dict.fromkeys(env.agents, 0))
    other = twin(env)
    one, two = (e.step(dict.fromkeys(e.agents, 2)) for e in (env, other))
    np.testing.assert_equal(*(af.convert(result[0], "numpy") for result in (one, two)))
    assert one[1:4] == two[1:4]
    assert other.action_space(env.agents[0]) is other.action_space(env.agents[0])
    turns = begun(AECConversion(in_turns(), target_xp=EACH))
    turns.step(2)
    other = twin(turns)
    for each, action in ((turns, 0), (other, 2)):
        each.step(action)
        each.step(0)
    assert (turns.rewards["player_1"], other.rewards["player_1"]) == (1.0, 2.0)


WRONG = [
    (lambda: ParallelConversion(rps.env()), TypeError, "environment of PettingZoo, but got .*AECConversion"),
    (lambda: AECConversion(Probe()), TypeError, "ParallelConversion"),
    (lambda: ParallelConversion(gym.make("CartPole-v1")), TypeError, "ArrayConversion"),
    (lambda: ParallelConversion(rps), TypeError, r"parallel_env\(\)"),
    (lambda: ParallelConversion(SimpleNamespace(step_env=print)), TypeError, r"JaxMARL write a pettingzoo\.ParallelEnv around"),
    (lambda: ArrayConversion(rps.parallel_env()), TypeError, "ParallelConversion"),
    *[(lambda options=options: ParallelConversion(Probe(), **options), error, words) for options, error, words in (
        ({"target_xp": {"player_9": "jax"}}, af.OptionError, r"target_xp names the agent 'player_9'.*'player_0'"),
        ({"target_xp": {"player_0": "jaxx"}}, af.UnknownBackendError, "Did you mean 'jax'"),
        ({"target": "jax"}, af.OptionError, "no option 'target'"),
        ({"check_actions": "never"}, af.OptionError, "check_actions"),
        ({"target_xp": "jax", "like": {"player_0": torch.zeros(1)}}, af.OptionError, "like="))],
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "words"), WRONG)
def test_other_environments_and_wrong_options_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_an_agent_that_there_is_not():
    env = AECConversion(tictactoe.env(), target_xp="jax")
    env.reset(seed=1)
    with pytest.raises(af.OptionError, match="there is no agent 'nobody'"):
        env.observe("nobody")
