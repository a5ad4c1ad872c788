"""Agents that learn step by step, on environments of another library."""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from ppo import Settings
from report import Add, Result

import arrayferry as af
from arrayferry_envs import Trajectory
from arrayferry_gym.vector import ArrayConversion

__all__ = ["Agent", "make_envs", "play", "run"]


class Agent(Protocol):
    """An agent in one library. All arrays that it gets are of this library."""

    library: str
    settings: Settings

    def act(self, observation: Any) -> tuple[Any, Any]:
        """Return actions, and their log-probabilities."""

    def greedy(self, observation: Any) -> Any:
        """Return actions without exploration."""

    def learn(self, steps: list[Trajectory]) -> None:
        """Learn from steps with log-probabilities as extras."""


def make_envs(library: str, agent: str, num_envs: int) -> ArrayConversion:
    """Make environments in one library for an agent in another one: Gymnasium's CartPole in NumPy, or ours.

    An episode that has ended is reset in the same step, so that each step is a transition.

    Examples:
        >>> envs = make_envs("jax", "torch", 3)
        >>> observation, _ = envs.reset(seed=0)
        >>> envs.env_backend.name, observation.shape
        ('jax', torch.Size([3, 4]))
    """
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    if library == "numpy":
        envs = gym.make_vec(
            "CartPole-v1", num_envs=num_envs, vectorization_mode="sync", vector_kwargs=mode
        )
    else:
        envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=num_envs, xp=library, **mode)
    # With env_xp stated, ours remains in its library. Without, it would change to that of the agent.
    return ArrayConversion(envs, library, agent, stack_final=True, reward_dtype="float32")


def run(name: str, agent: Agent, library: str, seed: int, add: Add) -> Result:
    """Train an agent on environments of a library, and play 100 episodes with it."""
    settings = agent.settings
    show = add(name, settings.updates)
    envs = make_envs(library, agent.library, settings.num_envs)
    observation, _ = envs.reset(seed=seed)
    totals, curve, times = np.zeros(settings.num_envs), [], [time.perf_counter()]
    for update in range(1, settings.updates + 1):
        steps: list[Trajectory] = []
        returns: list[float] = []
        for _ in range(settings.num_steps):
            action, log_prob = agent.act(observation)
            following, reward, terminated, truncated, infos = envs.step(action)
            final = infos["final_obs"]  # where an episode has ended, `following` begins another one
            steps.append(
                Trajectory(observation, action, reward, terminated, truncated, final, log_prob)
            )
            observation = following
            reward, terminated, truncated = af.convert((reward, terminated, truncated), "numpy")
            totals += reward
            ended = terminated | truncated
            returns += totals[ended].tolist()
            totals[ended] = 0.0
        agent.learn(steps)
        curve.append(sum(returns) / len(returns) if returns else math.nan)
        times.append(time.perf_counter())
        show(update, curve[-1])
    envs.close()
    return Result(
        name, times[1] - times[0], times[-1] - times[1], (settings.updates - 1) * settings.per_update,
        [play(agent, library)], [curve],
    )  # fmt: skip


def play(agent: Agent, library: str, episodes: int = 100) -> float:
    """Return the mean return of episodes without exploration."""
    envs = make_envs(library, agent.library, episodes)
    observation, _ = envs.reset(seed=0)
    total, going = np.zeros(episodes), np.ones(episodes, bool)
    while going.any():
        observation, *rest, _ = envs.step(agent.greedy(observation))
        reward, terminated, truncated = af.convert(rest, "numpy")
        total += going * reward
        going &= ~(terminated | truncated)
    envs.close()
    return float(total.mean())
