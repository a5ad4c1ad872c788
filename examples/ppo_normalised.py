"""PPO with normalised observations and rewards, in one compiled call: CartPole in units that a network learns badly from.

The statistics are part of what the call returns. The agent is then judged with them, and they no longer change.

Run it with `python examples/ppo_normalised.py`; `--raw` leaves out the normalisation.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from ppo import PPO, Settings
from ppo_jit import returns

from arrayferry_envs import CartPole, FunctionalEnv, evaluate, rollout, wrap
from arrayferry_gym.wrappers import kernels

UNITS = spaces.Box(-np.inf, np.inf, (4,), np.float32)


def environment(*, normalised: bool = True) -> FunctionalEnv:
    """Return CartPole in micrometres, with small rewards, normalised or not."""
    odd = [
        kernels.TransformObservation(lambda x: x * 1e6 + 3e5, UNITS),
        kernels.TransformReward(lambda x: x * 0.001),
    ]
    if not normalised:
        return wrap(CartPole(), *odd)
    return wrap(CartPole(), *odd, kernels.NormalizeObservation(), kernels.NormalizeReward(0.98))


def train(agent: PPO, env: FunctionalEnv, seed: Any) -> tuple[Any, Any, Any]:
    """Train an agent. It is a pure function of the seed, so that `jit` and `vmap` apply.

    Returns:
        The parameters of the network, the states of the wrappers, and the lengths of episodes after each update.
    """
    settings = agent.settings
    starting, beginning, going = jax.random.split(jax.random.key(seed), 3)
    learner = agent.init(starting)
    envs, _ = rollout(env, agent.policy, learner.params, beginning, 1, settings.num_envs)

    def update(carry: Any, key: Any) -> tuple[Any, Any]:
        learner, envs, totals = carry
        acting, learning = jax.random.split(key)
        envs, transitions = rollout(
            env, agent.policy, learner.params, acting, settings.num_steps, settings.num_envs, carry=envs
        )  # fmt: skip
        learner = agent.learn(learner, transitions, learning)
        steps = transitions._replace(reward=jnp.ones_like(transitions.reward))
        totals, length = returns(totals, steps)
        return (learner, envs, totals), length

    start = learner, envs, jnp.ones(settings.num_envs)
    carry, lengths = jax.lax.scan(update, start, jax.random.split(going, settings.updates))
    learner, envs, _ = carry
    return learner.params, envs.env_state.wrappers, lengths


def main(arguments: list[str] | None = None) -> float:
    """Train, and return the mean length of 100 episodes without exploration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--raw", action="store_true", help="leave out the normalisation")
    given = parser.parse_args(arguments)
    agent, env = PPO(Settings()), environment(normalised=not given.raw)
    started = time.perf_counter()
    training = jax.jit(lambda seed: train(agent, env, seed))
    params, statistics, _ = jax.block_until_ready(training(given.seed))
    seconds = time.perf_counter() - started
    played = evaluate(
        env, agent.greedy, policy_params=params, key=jax.random.key(1), num_envs=100, wrapper_state=statistics
    ).lengths  # fmt: skip
    score = float(played.mean())
    print(f"{seconds:.1f} s with compilation, then {score:.0f} steps an episode, of 500")
    return score


if __name__ == "__main__":
    main()
