"""Trajectories of a policy from a cluster: environments and policy on the workers, and what came of them here.

Run it with `python examples/cluster_rollouts.py`, which starts workers on this machine, or with the address of a
scheduler: `python examples/cluster_rollouts.py tcp://10.0.0.1:8786`.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import gymnasium as gym
import numpy as np

from arrayferry_cluster import Collector


def balance(params: Any, observations: Any, rng: Any) -> tuple[Any, None]:
    """A policy by hand: push the cart to the side that the pole falls to.

    Examples:
        >>> balance(None, np.array([[0.0, 0.0, 0.1, 0.2], [0.0, 0.0, -0.1, 0.0]]), None)
        (array([1, 0]), None)
    """
    return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(np.int64), None


def main() -> None:
    """Make a cluster or join one, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", nargs="?", help="of a scheduler, none to start workers here")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--segments", type=int, default=20)
    given = parser.parse_args()
    makers = [lambda: gym.make("CartPole-v1")] * given.envs
    scores: list[float] = []
    with Collector(makers, balance, num_steps=128, client=given.address, seed=1) as collector:
        for part in itertools.islice(collector, given.segments):
            scores += part.episode_return[part.terminated | part.truncated].tolist()
        print(f"{given.envs} environments in {collector.groups} groups: {collector.stats}")
        print(f"{len(scores)} episodes with a mean score of {np.mean(scores):.0f}")


if __name__ == "__main__":
    main()
