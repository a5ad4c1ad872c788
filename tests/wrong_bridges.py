"""Bridges with a fault each, as people write them: around the probe, in several styles. `BridgeContract` finds them."""

import numpy as np
import torch
from gymnasium import spaces

from arrayferry_audit import LIMIT, Probe


class Right:
    """A right bridge around single probes, which resets them itself."""

    def __init__(self, n):
        self.envs = [Probe().make() for _ in range(n)]
        space = self.envs[0].observation_space
        self.single_observation_space, self.single_action_space = space, spaces.Discrete(3)
        self.begin(n)

    def begin(self, n):
        """Prepare what a kind of bridge needs besides."""

    def reset(self, *, seed=None):
        seeds = [None if seed is None else seed + row for row in range(len(self.envs))]
        firsts = [self.first(row, seed=seed) for row, seed in enumerate(seeds)]
        self.observation = np.stack(firsts)
        return self.observation.copy(), {}

    def first(self, row, seed=None):
        return self.envs[row].reset(seed=seed)[0]

    def step(self, actions):
        results = [env.step(int(action)) for env, action in zip(self.envs, actions, strict=True)]
        final, rewards, terminated, truncated, _ = map(np.array, zip(*results, strict=True))
        self.observation = final.copy()
        for row in np.flatnonzero(terminated | truncated):
            self.observation[row] = self.first(row)
        rewards, infos = rewards.astype(np.float32), {"final_obs": final}
        return self.observation.copy(), rewards, terminated, truncated, infos


class ActionsFromOne(Right):
    def begin(self, n):
        self.single_action_space = spaces.Discrete(3, start=1)


class BeginsLate(Right):
    def first(self, row, seed=None):
        return super().first(row, seed) + np.float32([0, 1])


class SwapsActions(Right):
    def step(self, actions):
        return super().step(actions[::-1])


class SeedZeroIsNone(Right):
    def reset(self, *, seed=None):
        return super().reset(seed=seed or None)


class SeedsOfEpisodes(Right):
    """The seed of an episode is that of its row, plus how many there were: rows play each other's."""

    def reset(self, *, seed=None):
        if seed is not None:
            self.seeds = [seed + row for row in range(len(self.envs))]
        return super().reset()

    def first(self, row, seed=None):
        self.seeds[row] += 1
        return super().first(row, self.seeds[row])


class LaterEpisodesOfTheirOwnSeed(Right):
    """Seeds are for the first episodes only: later ones come from a generator that each row has from the beginning."""

    def begin(self, n):
        self.own = [np.random.default_rng(row) for row in range(n)]

    def first(self, row, seed=None):
        return super().first(row, int(self.own[row].integers(1 << 30)) if seed is None else seed)


class ResetsWithoutASeedAreRandom(Right):
    def reset(self, *, seed=None):
        drawn = np.random.SeedSequence().entropy % 2**31
        return super().reset(seed=drawn if seed is None else seed)


class TwoStarts(Right):
    """Resets without a seed take turns between two sets of first states."""

    def reset(self, *, seed=None):
        self.seed, self.turn = (self.seed, 1 - self.turn) if seed is None else (seed, 0)
        return super().reset(seed=self.seed + 1000 * self.turn)


class MarksAndResetsLater(Right):
    """As many simulators do: a buffer says who is to be reset before the next step, and a reset of all leaves it."""

    def begin(self, n):
        self.reset_buf = np.zeros(n, bool)
        self.next = [None] * n

    def step(self, actions):
        for row in np.flatnonzero(self.reset_buf):
            self.envs[row].reset(seed=self.next[row])
        *results, terminated, truncated, infos = super().step(actions)
        self.reset_buf = terminated | truncated
        observation = results[0]
        for row in np.flatnonzero(self.reset_buf):
            self.next[row] = int(observation[row, 0] * 2**30)
            observation[row] = self.envs[row].reset(seed=self.next[row])[0]
        return *results, terminated, truncated, infos


class GlobalGenerator(Right):
    """First states come from NumPy's global generator."""

    def reset(self, *, seed=None):
        if seed is not None:
            np.random.seed(seed)
        return super().reset()

    def first(self, row, seed=None):
        return super().first(row, np.random.randint(1 << 30))


class ActionsInPlace(Right):
    """Clips actions in place, and counts from 1."""

    def step(self, actions):
        np.clip(actions, 0, 2, out=actions)
        actions += 1
        return super().step(actions - 1)


class BoundsOfRunningEpisodes(Right):
    """The last observation is not in the space."""

    def begin(self, n):
        last = np.array([1, LIMIT - 1], np.float32)
        self.single_observation_space = spaces.Box(np.zeros(2, np.float32), last)


class HalfPrecision(Right):
    """Observations are sent as float16."""

    def reset(self, *, seed=None):
        observation, infos = super().reset(seed=seed)
        return observation.astype(np.float16).astype(np.float32), infos

    def step(self, actions):
        observation, *others, infos = super().step(actions)
        final = infos["final_obs"].astype(np.float16).astype(np.float32)
        return observation.astype(np.float16).astype(np.float32), *others, {"final_obs": final}


class SqueezesOne(Right):
    def reset(self, *, seed=None):
        return super().reset(seed=seed)[0].squeeze(), {}

    def step(self, actions):
        *results, infos = super().step(np.atleast_1d(actions))
        return *(x.squeeze() for x in results), {"final_obs": infos["final_obs"].squeeze()}


class CountsInBytes(Right):
    """A ring buffer of 256 steps, whose end nobody has reached."""

    time = np.uint8(0)

    def step(self, actions):
        self.time = np.uint8((int(self.time) + 1) % 256)
        return super().step(actions if self.time else np.zeros_like(actions))


class StateIsShown(Right):
    """Returns the buffer that the next step reads, in PyTorch."""

    def begin(self, n):
        self.state = torch.zeros(n, 2)

    def reset(self, *, seed=None):
        self.state = torch.as_tensor(super().reset(seed=seed)[0])
        return self.state, {}

    def step(self, actions):
        count = self.state[:, 1] + 1
        final = torch.stack([self.state[:, 0], count], dim=1)
        _, _, terminated, truncated, _ = super().step(actions)
        rewards = count + torch.as_tensor(actions) / 2
        ended = torch.as_tensor(terminated | truncated)
        self.state = torch.where(ended[:, None], torch.as_tensor(self.observation), final)
        return self.state, rewards, terminated, truncated, {"final_obs": final}


class ResetsIntoResults(Right):
    """A reset of all writes into the final observations that the last step has returned."""

    def begin(self, n):
        self.final = np.zeros((n, 2), np.float32)

    def reset(self, *, seed=None):
        observation, infos = super().reset(seed=seed)
        self.final[...] = observation
        return observation, infos

    def step(self, actions):
        *results, infos = super().step(actions)
        self.final = infos["final_obs"]
        return *results, infos


class OneEngine(Right):
    """The first to be closed ends the engine that all share."""

    running: list = []

    def begin(self, n):
        self.running.append(self)

    def close(self):
        self.running.clear()

    def step(self, actions):
        *results, infos = super().step(actions)
        if self not in self.running:
            return *map(np.zeros_like, results), infos
        return *results, infos
