"""PPO whose environments and policy are on the workers of a cluster, while the learner in PyTorch is here.

Run it with `python examples/ppo_cluster.py`, with Gymnasium's CartPole, or with `--environment jax`, with ours in
compiled rollouts. It starts two workers on this machine. Their policy is in NumPy or in JAX.
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
from ppo_torch import TorchAgent
from report import Add, Line, Result, bars, draw, table

from arrayferry_cluster import Collector
from arrayferry_envs import CartPole, Trajectory


def outputs(params: Any, observation: Any, tanh: Any) -> Any:
    """Return the logits of actions, from the `state_dict` of the learner's network."""
    hidden = tanh(observation @ params["0.weight"].T + params["0.bias"])
    return (hidden @ params["2.weight"].T + params["2.bias"])[..., :ACTIONS]


def numpy_policy(params: Any, observation: Any, rng: Any) -> tuple[Any, Any]:
    """Draw actions, and return their log-probabilities.

    Examples:
        >>> rng = __import__("arrayferry_gym").make_rng("numpy", 0)
        >>> state = TorchAgent(Settings(), 0).net.state_dict()
        >>> params = {name: weights.numpy() for name, weights in state.items()}
        >>> action, log_prob = numpy_policy(params, np.zeros((5, 4), np.float32), rng)
        >>> action.shape, bool((log_prob < 0).all())
        ((5,), True)
    """
    logits = outputs(params, observation, np.tanh)
    action = rng.categorical(logits.shape[:1], logits)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return action, log_probs[np.arange(len(action)), action]


def jax_policy(params: Any, observation: Any, key: Any) -> tuple[Any, Any]:
    """Do the same in JAX."""
    import jax

    logits = outputs(params, observation, jax.numpy.tanh)
    action = jax.random.categorical(key, logits)
    log_probs = jax.nn.log_softmax(logits)
    return action, log_probs[jax.numpy.arange(len(action)), action]


def run(settings: Settings, environment: str, client: Any, seed: int, add: Add) -> Result:
    """Train an agent, and return what it reached."""
    agent = TorchAgent(settings, seed)
    options: Any = {"num_steps": settings.num_steps, "client": client, "seed": seed, "xp": "torch"}
    params = agent.net.state_dict()
    if environment == "jax":
        collector = Collector(CartPole, jax_policy, params, num_envs=settings.num_envs, **options)
    else:
        makers = [lambda: gym.make("CartPole-v1")] * settings.num_envs
        collector = Collector(makers, numpy_policy, params, **options)
    show, curve = add(f"{environment} environments on workers", settings.updates), []
    with collector:
        begun = time.perf_counter()
        for update, part in enumerate(collector, 1):
            if update == 1:
                compiling, begun = time.perf_counter() - begun, time.perf_counter()
            over = part.terminated | part.truncated
            curve.append(float(part.episode_return[over].mean()) if over.any() else math.nan)
            agent.learn_from(
                Trajectory(
                    *[
                        x if x is None else x.float() if x.is_floating_point() else x
                        for x in part[:7]
                    ]
                )
            )
            collector.update(agent.net.state_dict())
            show(update, curve[-1])
            if update == settings.updates:
                break
        seconds = time.perf_counter() - begun
    return Result(
        f"PyTorch agent, {environment} environments on two workers", compiling, seconds,
        settings.per_update * (settings.updates - 1), [float(np.nanmean(curve[-10:]))], [curve],
    )  # fmt: skip


def main() -> None:
    """Train, print what was measured, and draw the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", choices=("numpy", "jax"), default="numpy")
    parser.add_argument("--picture", default="ppo_cluster.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings()
    with distributed.Client(n_workers=2, threads_per_worker=1) as client, bars() as add:
        result = run(settings, given.environment, client, given.seed, add)
    table([result])
    draw(given.picture, [Line(result.name, settings.per_update, result.curves)], "steps", 10)


if __name__ == "__main__":
    main()
