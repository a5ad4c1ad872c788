"""PPO whose environments and policy are on the workers of a cluster, while the learner in PyTorch is here.

Run it with `python examples/ppo_cluster.py`. It starts two workers on this machine.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import distributed
import gymnasium as gym
import numpy as np
import torch
from ppo import ACTIONS, Settings
from ppo_torch import TorchAgent, network
from report import Add, Line, Result, bars, draw, table
from torch.distributions import Categorical

from arrayferry_cluster import Collector
from arrayferry_envs import Trajectory

NET = network()
"""Its structure: the weights are parameters of the policy."""


@torch.no_grad()
def policy(params: Any, observation: Any, rng: Any) -> tuple[Any, Any]:
    """Draw actions, and return their log-probabilities.

    Examples:
        >>> params = TorchAgent(Settings(), 0).net.state_dict()
        >>> action, log_prob = policy(params, torch.zeros(5, 4), None)
        >>> action.shape, bool((log_prob < 0).all())
        (torch.Size([5]), True)
    """
    outputs = torch.func.functional_call(NET, params, observation)
    actions = Categorical(logits=outputs[..., :ACTIONS], validate_args=False)
    action = actions.sample()
    return action, actions.log_prob(action)


def run(settings: Settings, client: Any, seed: int, add: Add) -> Result:
    """Train an agent, and return what it reached."""
    agent = TorchAgent(settings, seed)
    makers = [lambda: gym.make("CartPole-v1")] * settings.num_envs
    collector = Collector(
        makers, policy, agent.net.state_dict(), num_steps=settings.num_steps, client=client, seed=seed,
        policy_xp="torch", xp="torch",
    )  # fmt: skip
    show, curve = add("environments on workers", settings.updates), []
    with collector:
        begun = time.perf_counter()
        for update, part in enumerate(collector, 1):
            if update == 1:
                compiling, begun = time.perf_counter() - begun, time.perf_counter()
            over = part.terminated | part.truncated
            curve.append(float(part.episode_return[over].mean()) if over.any() else math.nan)
            steps = Trajectory(
                part.observation, part.action, part.reward.float(), part.terminated, part.truncated,
                part.final_observation, part.extras,
            )  # fmt: skip
            agent.learn_from(steps)
            collector.update(agent.net.state_dict())
            show(update, curve[-1])
            if update == settings.updates:
                break
        seconds = time.perf_counter() - begun
    return Result(
        "PyTorch agent, environments on two workers", compiling, seconds,
        settings.per_update * (settings.updates - 1), [float(np.nanmean(curve[-10:]))], [curve],
    )  # fmt: skip


def main() -> None:
    """Train, print what was measured, and draw the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="ppo_cluster.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings()
    with distributed.Client(n_workers=2, threads_per_worker=1) as client, bars() as add:
        result = run(settings, client, given.seed, add)
    table([result])
    draw(given.picture, [Line(result.name, settings.per_update, result.curves)], "steps", 10)


if __name__ == "__main__":
    main()
