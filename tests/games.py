"""The probe of the kit as a game of PettingZoo."""

import copy

import jax
import numpy as np
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

import arrayferry as af

LIMIT = 4
"""The steps of an episode."""
AGENTS = ["player_0", "player_1", "player_2"]
LIBRARIES = ["numpy", "torch", "jax"]
EACH = dict(zip(AGENTS, LIBRARIES, strict=True))
TYPES = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}
OBSERVATION = spaces.Box(np.zeros(2, np.float32), np.array([1, LIMIT], np.float32))


def made(values, xp, dtype="float32"):
    return af.convert(np.asarray(values, dtype), xp)


class Probe(ParallelEnv):
    """The probe of the kit, as a game of three who move at once."""

    metadata = {"name": "probe_v0", "is_parallelizable": True, "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    possible_agents = AGENTS
    state_space = spaces.Box(-1, 9, (1,), np.float32)
    rng = np.random.default_rng(0)
    stepped = 0

    def __init__(self, xp="numpy"):
        self.xp = xp
        self.acted = {agent: spaces.Discrete(3) for agent in AGENTS}
        self.seen = {agent: copy.deepcopy(OBSERVATION) for agent in AGENTS}

    def observation_space(self, agent):
        return self.seen[agent]

    def action_space(self, agent):
        return self.acted[agent]

    def observe(self):
        return {agent: made([self.start, self.count], self.xp) for agent in AGENTS}

    def info(self):
        return {"count": self.count, "mask": made([1, 1, self.count], self.xp, "int8")}

    def reward(self, action):
        return made(self.count + action / 2, self.xp)

    def state(self):
        return made([self.count], self.xp)

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.seed, self.options = seed, options
        self.start, self.count, self.agents = self.rng.random(), 0, AGENTS[:]
        return self.observe(), dict.fromkeys(AGENTS, self.info())

    def step(self, actions):
        self.stepped += 1
        self.actions, self.count = actions, self.count + 1
        numbers = {agent: int(action) for agent, action in actions.items()}
        ended = 1 in numbers.values(), self.count >= LIMIT
        flags = [{agent: made(flag, self.xp, "bool") for agent in AGENTS} for flag in ended]
        rewards = {agent: self.reward(number) for agent, number in numbers.items()}
        if any(ended):
            self.agents = []
        return self.observe(), rewards, *flags, {agent: self.info() for agent in AGENTS}


def in_turns(xp="numpy"):
    """Make the same as a game of three who take turns, by PettingZoo's own conversion."""
    return parallel_to_aec(Probe(xp))
