"""Gradients of functional environments across libraries."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

import arrayferry as af
from arrayferry_envs import Functions, Pendulum

MANY = 3


DIFFERENCES = ((5e-4, 1.0), (3e-3, 0.15))
"""For actions and gravity: the distance, and the error it may have. Derivatives are up to 1,000."""


def return_in_torch(actions, gravity):
    """The return of some steps in PyTorch itself."""
    envs = Pendulum().make_vec(MANY, xp="torch", differentiable=True, params={"gravity": gravity})
    envs.reset(seed=0)
    return sum(envs.step(action)[1].double().sum() for action in actions)


@jax.jit
def return_in_jax(actions, gravity):
    """The same in one compiled call in JAX."""
    functions = Functions(Pendulum())

    def one(env_state, action):
        env_state, outcome = functions.step(
            jax.random.key(0), env_state, action, {"gravity": gravity}
        )
        return env_state, outcome.reward.astype(float).sum()

    env_state, _ = functions.reset(jax.random.key(0), MANY, {"gravity": gravity})
    env_state, _ = one(env_state, actions[0])  # from here on in float64
    return jax.lax.scan(one, env_state, actions[1:])[1].sum()


@pytest.mark.long
@pytest.mark.parametrize("steps", [10, 100])
def test_pendulum_from_torch(x64, steps):
    """By finite differences, along several directions."""
    crossed = af.agnostic("jax", differentiable=True)(return_in_jax)
    rng = np.random.default_rng(0)
    actions = torch.tensor(rng.uniform(-1, 1, (steps, MANY, 1)))
    gravity = torch.tensor([9.0, 10.0, 11.0], dtype=torch.float64)
    for total in (return_in_torch, crossed):
        inputs = [x.clone().requires_grad_() for x in (actions, gravity)]
        gradients = torch.autograd.grad(total(*inputs), inputs)
        for index, (gradient, (distance, error)) in enumerate(
            zip(gradients, DIFFERENCES, strict=True)
        ):
            assert gradient.shape == inputs[index].shape
            for _ in range(3):
                direction = torch.tensor(rng.normal(size=tuple(gradient.shape)))
                ends = []
                for sign in (1, -1):
                    moved = [actions, gravity]
                    moved[index] = moved[index] + sign * distance * direction
                    with torch.no_grad():
                        ends.append(float(total(*moved)))
                difference = (ends[0] - ends[1]) / (2 * distance)
                found = float((gradient * direction).sum())
                assert found == pytest.approx(difference, rel=1e-2, abs=error)


def test_a_policy_in_torch_learns_through_an_environment_in_jax():
    """The gradient crosses twice a step: to the environment in JAX, and back to the policy."""
    functions = Functions(Pendulum())

    @af.agnostic("jax", differentiable=True)
    @jax.jit
    def step(env_state, action):
        env_state, outcome = functions.step(jax.random.key(0), env_state, action)
        return env_state, outcome.observation, outcome.reward

    start, observation = functions.reset(
        jax.random.key(0), 8, {"start_angle": 0.3, "start_angular_velocity": 0.0}
    )
    first = af.convert(observation, "torch")
    policy = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(policy.weight)
    torch.nn.init.zeros_(policy.bias)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.5)
    returns = []
    for _ in range(30):
        env_state, observation, total = start, first, 0.0
        for _ in range(20):
            env_state, observation, reward = step(env_state, policy(observation))
            total = total + reward.mean()
        optimiser.zero_grad()
        (-total).backward()
        optimiser.step()
        returns.append(total.item())
    assert returns[-1] > 0.5 * returns[0]
