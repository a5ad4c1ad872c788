"""Agents in PyTorch and JAX learn CartPole on environments in NumPy and JAX.

First step by step, each pair of libraries through an adapter, then in JAX in one compiled call. Videos show one of them
before and after it has learned. Run it with `make demo`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from ppo import PPO, Settings
from ppo_gymnasium import JaxAgent
from ppo_jit import run as run_compiled
from ppo_torch import TorchAgent
from report import Add, Line, Result, bars, draw, table
from stepwise import Agent, run

from arrayferry_envs import record
from arrayferry_gym import ArrayConversion

NAMES = {"numpy": "NumPy", "jax": "JAX", "torch": "PyTorch"}


def pair(library: str, agent: Agent, add: Add) -> Result:
    """Train an agent step by step on environments of a library.

    Examples:
        >>> agent = TorchAgent(Settings(updates=2, num_envs=4, num_steps=8), seed=0)
        >>> pair("numpy", agent, lambda name, updates: lambda done, score: None).name
        'PyTorch agent, NumPy environment'
    """
    name = f"{NAMES[agent.library]} agent, {NAMES[library]} environment"
    return run(name, agent, library, 0, add)


def film(agent: TorchAgent, path: Path) -> None:
    """Write a video of three seconds of an agent in PyTorch in an environment in JAX."""
    env = gym.make("arrayferry/CartPole-v0", xp="jax", render_mode="rgb_array")

    def policy(params: Any, observation: Any, rng: Any) -> tuple[Any, None]:
        return agent.greedy(observation), None

    adapter = ArrayConversion(env, "jax", "torch")
    record(adapter, policy, path=path, key=1, episodes=150, num_steps=150, policy_xp="torch")
    adapter.close()


def main() -> int:
    """Train all, print the table, draw the learning curves, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many to train at once")
    parser.add_argument("--picture", default="demo.png")
    parser.add_argument("--video", default="demo.gif")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings()
    with bars() as add:
        results = []
        for library in ("numpy", "jax"):
            results.append(pair(library, JaxAgent(settings, seed=0), add))
            results.append(pair(library, agent := TorchAgent(settings, seed=0), add))
        for count in (1, given.seeds):
            results.append(run_compiled("JAX, compiled", PPO(settings), list(range(count)), add))
    table(results)
    stepwise, compiled = results[0], results[-2]
    print(
        f"After compilation, the JAX agent takes {compiled.rate / stepwise.rate:.0f} times as many steps a second in one "
        "compiled call as step by step in NumPy's environments."
    )
    lines = [
        Line(found.name, found.seconds / settings.updates, found.curves, found.compiling)
        for found in results
    ]
    draw(given.picture, lines, "seconds, with compilation (dotted)", mean_of=10)
    video = Path(given.video)
    before = video.with_name(f"{video.stem}-before{video.suffix}")
    film(TorchAgent(settings, seed=0), before)
    film(agent, video)
    print(
        f"{before} and {video} show the PyTorch agent before and after it learns, in the JAX environment."
    )
    learned = all(found.learned for found in results)
    print("Every agent learned." if learned else "An agent did not learn.")
    return 0 if learned else 1


if __name__ == "__main__":
    sys.exit(main())
