"""Rollouts of a policy on a cluster: environments on the workers, the policy in this process.

Run it with `python examples/cluster_rollouts.py`, which starts workers on this machine, or with the address of a
scheduler: `python examples/cluster_rollouts.py tcp://10.0.0.1:8786`.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import distributed
import gymnasium as gym
import numpy as np

from arrayferry_gym.distributed import DistributedVectorEnv


def balance(observations: Any) -> Any:
    """A policy by hand: push the cart to the side that the pole falls to.

    Examples:
        >>> balance(np.array([[0.0, 0.0, 0.1, 0.2], [0.0, 0.0, -0.1, 0.0]]))
        array([1, 0])
    """
    return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(np.int64)


def rollouts(envs: gym.vector.VectorEnv, policy: Any, num_steps: int, seed: int) -> dict[str, Any]:
    """Take steps, and return what became of the episodes.

    Examples:
        >>> envs = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
        >>> found = rollouts(envs, balance, 600, seed=0)
        >>> found["episodes"], found["lost"]
        (4, 0)
    """
    observations, _ = envs.reset(seed=seed)
    score = np.zeros(envs.num_envs)
    scores: list[float] = []
    lost = 0
    for _ in range(num_steps):
        observations, rewards, terminations, truncations, infos = envs.step(policy(observations))
        score += rewards
        dead = infos.get("worker_lost", np.zeros(envs.num_envs, bool))
        lost += int(dead.sum())
        over = terminations | truncations
        scores += score[over & ~dead].tolist()  # episodes whose worker died are not counted
        score[over] = 0
    return {"episodes": len(scores), "score": float(np.mean(scores or [0])), "lost": lost}


def main() -> None:
    """Make a cluster or join one, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", nargs="?", help="of a scheduler, none to start workers here")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    options: Any = {} if given.address else {"n_workers": 2, "threads_per_worker": 1}
    with distributed.Client(given.address, **options) as client:
        if importlib.util.find_spec("bokeh") is None:
            print("For a page that shows what the workers do: pip install bokeh")
        else:
            print(f"What the workers do: {client.dashboard_link}")
        envs = DistributedVectorEnv([lambda: gym.make("CartPole-v1")] * given.envs, client=client)
        began = time.perf_counter()
        found = rollouts(envs, balance, given.steps, seed=1)
        took = time.perf_counter() - began
        envs.close()
        print(
            f"{given.envs} environments on {len(client.nthreads())} workers: "
            f"{given.envs * given.steps / took:,.0f} steps a second, {1e3 * took / given.steps:.2f} ms a step"
        )
        print(f"{found['episodes']} episodes with a mean score of {found['score']:.0f}")
        if found["lost"]:
            print(f"{found['lost']} episodes were lost with their workers")


if __name__ == "__main__":
    main()
