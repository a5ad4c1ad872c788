"""An environment of one's own, written once, and three agents that learn in it: in NumPy, PyTorch and JAX.

Run it with `python examples/own_environment.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from arrayferry_gym.functional import FunctionalEnv


class State(NamedTuple):
    """Where each rocket is: arrays of shape (n,)."""

    height: Any
    speed: Any


class Hover(FunctionalEnv):
    """Keep a rocket at height 0."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 50
    default_params = {"gravity": 0.5, "power": 2.0, "time_step": 0.1}

    def reset(self, xp, rng, n, params):
        return State(rng.uniform((n,), -1.0, 1.0), xp.zeros((n,), dtype=xp.float32))

    def step(self, xp, rng, state, action, params):
        lift = params["power"] * action[:, 0] - params["gravity"]
        speed = state.speed + params["time_step"] * lift
        height = state.height + params["time_step"] * speed
        return State(height, speed), -(height * height), xp.abs(height) > 5.0

    def observe(self, xp, state, params):
        return xp.stack([state.height, state.speed], axis=1)


# An agent is a linear policy: action = observation @ weights + bias. A score is the mean of all rewards.

COUNT, STEPS = 32, 50


def numpy_agent(updates: int = 60) -> tuple[float, float]:
    """Learn in NumPy, by random search. Return the score before and after.

    Example:
        >>> before, after = numpy_agent()
        >>> after > 0.1 * before
        True
    """
    envs = Hover().make_vec(COUNT)
    rng = np.random.default_rng(0)

    def score(weights: Any) -> float:
        observation, _ = envs.reset(seed=0)
        rewards = []
        for _ in range(STEPS):
            action = observation @ weights[:2] + weights[2]
            observation, reward, *_ = envs.step(action[:, None])
            rewards.append(reward.mean())
        return float(np.mean(rewards))

    weights = np.zeros(3, np.float32)
    first = best = score(weights)
    for _ in range(updates):
        tried = weights + rng.normal(0, 0.3, 3).astype(np.float32)
        if (reached := score(tried)) > best:
            weights, best = tried, reached
    return first, best


def torch_agent(updates: int = 40) -> tuple[float, float]:
    """Learn in PyTorch, by the gradient through the environment. Return the score before and after.

    Example:
        >>> before, after = torch_agent()
        >>> after > 0.1 * before
        True
    """
    import torch

    envs = Hover().make_vec(COUNT, xp="torch", differentiable=True)
    policy = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(policy.weight)
    torch.nn.init.zeros_(policy.bias)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    scores = []
    for _ in range(updates):
        observation, _ = envs.reset(seed=0)
        rewards = []
        for _ in range(STEPS):
            observation, reward, *_ = envs.step(policy(observation))
            rewards.append(reward.mean())
        score = torch.stack(rewards).mean()
        optimiser.zero_grad()
        (-score).backward()
        optimiser.step()
        scores.append(score.item())
    return scores[0], scores[-1]


def jax_agent(updates: int = 40) -> tuple[float, float]:
    """Learn in JAX: environment, gradient and optimiser in one compiled call. Return the score before and after.

    Example:
        >>> before, after = jax_agent()
        >>> after > 0.1 * before
        True
    """
    import jax
    import jax.numpy as jnp
    import optax

    from arrayferry_gym.functional import rollout

    optimiser = optax.adam(0.1)

    def policy(weights: Any, observation: Any, key: Any) -> tuple[Any, None]:
        return (observation @ weights[:2] + weights[2])[:, None], None

    def loss(weights: Any, key: Any) -> Any:
        _, transitions = rollout(Hover(), policy, weights, key, STEPS, COUNT)
        return -transitions.reward.mean()

    @jax.jit
    def train(weights: Any, key: Any) -> Any:
        def update(carry: Any, key: Any) -> Any:
            weights, state = carry
            value, gradient = jax.value_and_grad(loss)(weights, key)
            change, state = optimiser.update(gradient, state)
            return (optax.apply_updates(weights, change), state), -value

        keys = jax.random.split(key, updates)
        return jax.lax.scan(update, (weights, optimiser.init(weights)), keys)[1]

    scores = train(jnp.zeros(3), jax.random.key(0))
    return float(scores[0]), float(scores[-1])


def main() -> None:
    """Let each agent learn, and print its scores."""
    for name, agent in {"NumPy": numpy_agent, "PyTorch": torch_agent, "JAX": jax_agent}.items():
        before, after = agent()
        print(f"{name}: {before:.2f} -> {after:.2f}")


if __name__ == "__main__":
    main()
