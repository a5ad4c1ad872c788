"""An environment of one's own, written once, and three agents that learn in it: in NumPy, PyTorch and JAX.

Run it with `python examples/own_environment.py`. It saves the learning curves as a picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from report import Line, bars, draw

from arrayferry_envs import FunctionalEnv


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
# Each function returns the score of each update, and calls `show` with the number of updates and the score.

COUNT, STEPS, UPDATES = 32, 50, 60

Show = Callable[[Any, Any], None]


def quiet(done: Any, score: Any) -> None:
    """Show nothing."""


def numpy_agent(show: Show = quiet) -> list[float]:
    """Learn in NumPy, by random search.

    Examples:
        >>> scores = numpy_agent()
        >>> scores[-1] > 0.1 * scores[0]
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
    scores = [score(weights)]
    for update in range(2, UPDATES + 1):
        tried = weights + rng.normal(0, 0.3, 3).astype(np.float32)
        reached = score(tried)
        if reached > scores[-1]:
            weights = tried
        scores.append(max(scores[-1], reached))
        show(update, scores[-1])
    return scores


def torch_agent(show: Show = quiet) -> list[float]:
    """Learn in PyTorch, by the gradient through the environment.

    Examples:
        >>> scores = torch_agent()
        >>> scores[-1] > 0.1 * scores[0]
        True
    """
    import torch

    envs = Hover().make_vec(COUNT, xp="torch", differentiable=True)
    policy = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(policy.weight)
    torch.nn.init.zeros_(policy.bias)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.03)
    scores = []
    for update in range(1, UPDATES + 1):
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
        show(update, scores[-1])
    return scores


def jax_agent(show: Show = quiet) -> list[float]:
    """Learn in JAX: environment, gradient and optimiser in one compiled call.

    Examples:
        >>> scores = jax_agent()
        >>> scores[-1] > 0.1 * scores[0]
        True
    """
    import jax
    import jax.numpy as jnp
    import optax

    from arrayferry_envs import rollout

    optimiser = optax.adam(0.03)

    def policy(weights: Any, observation: Any, key: Any) -> tuple[Any, None]:
        return (observation @ weights[:2] + weights[2])[:, None], None

    def loss(weights: Any, key: Any) -> Any:
        _, transitions = rollout(Hover(), policy, weights, key, STEPS, COUNT)
        return -transitions.reward.mean()

    @jax.jit
    def train(weights: Any, key: Any) -> Any:
        def update(carry: Any, now: Any) -> Any:
            weights, state = carry
            number, key = now
            value, gradient = jax.value_and_grad(loss)(weights, key)
            change, state = optimiser.update(gradient, state)
            jax.debug.callback(show, number, -value)
            return (optax.apply_updates(weights, change), state), -value

        updates = jnp.arange(1, UPDATES + 1), jax.random.split(key, UPDATES)
        return jax.lax.scan(update, (weights, optimiser.init(weights)), updates)[1]

    scores = train(jnp.zeros(3), jax.random.key(0))
    jax.effects_barrier()
    return scores.tolist()


def main() -> None:
    """Let each agent learn, and draw the learning curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", default="own_environment.png")
    given = parser.parse_args()
    lines = []
    with bars() as add:
        for name, agent in {"NumPy": numpy_agent, "PyTorch": torch_agent, "JAX": jax_agent}.items():
            lines.append(Line(name, 1, [agent(add(f"{name} agent", UPDATES))]))
    draw(given.picture, lines, "updates")


if __name__ == "__main__":
    main()
