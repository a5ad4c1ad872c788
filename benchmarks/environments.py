"""Environments: bare, and with our adapter, Gymnasium's, or a wrapper written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import gymnasium.wrappers
import gymnasium.wrappers.vector
import jax
import jax.numpy as jnp
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from timing import Block, fastest_block
from ways import enter_jax

import arrayferry_gym

__all__ = ["SETTINGS", "acting", "measure"]

STEPS = 20
"""Steps per sample, from the same start. With alternating actions, CartPole lasts 39 steps."""
COUNT = 64
"""Number of environments in a vector."""


class HandNumpyToTorch(gym.Wrapper):
    """A handwritten wrapper for one environment with known spaces."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step with a 0-d tensor."""
        observation, reward, terminated, truncated, info = self.env.step(int(action))
        return torch.from_numpy(observation), float(reward), terminated, truncated, info


class HandVectorNumpyToTorch(VectorWrapper):
    """The same for a vector environment."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        take = torch.from_numpy
        observation, reward, terminated, truncated, info = self.env.step(actions.numpy())
        return take(observation), take(reward), take(terminated), take(truncated), info


class HandVectorJaxToTorch(VectorWrapper):
    """The same for a JAX vector environment, with the copies that immutable arrays need."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        take, copy = torch.from_numpy, np.array
        observation, reward, terminated, truncated, info = self.env.step(
            enter_jax(actions.numpy().copy())
        )
        return (
            take(copy(observation)),
            take(copy(reward)),
            take(copy(terminated)),
            take(copy(truncated)),
            info,
        )


@jax.jit
def _advance(state: Any, actions: Any) -> tuple[Any, Any, Any, Any]:
    state = state * 0.5 + actions[:, None]
    reward = state.sum(axis=1)
    return state, reward, reward > 100.0, reward > 200.0


class JaxVector(VectorEnv):
    """A vector environment in JAX whose steps all cost the same.

    Gymnasium's own, `phys2d/CartPole-v1`, is not compiled as a whole: a step takes a millisecond
    or more, and recompiles for each new number of resets. The ten microseconds or so that an
    adapter adds cannot be measured against that.

    A step waits for its results, as any conversion must.
    """

    metadata = {"jax": True, "autoreset_mode": gym.vector.AutoresetMode.DISABLED}

    def __init__(self) -> None:
        self.num_envs = COUNT
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (), np.float32)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (COUNT, 4), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (COUNT,), np.float32)
        self.state = jnp.zeros((COUNT, 4), jnp.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start again from zeros."""
        self.state = jnp.zeros((COUNT, 4), jnp.float32)
        return self.state, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        self.state, reward, terminated, truncated = _advance(self.state, actions)
        self.state.block_until_ready()
        return self.state, reward, terminated, truncated, {}


Setting = dict[str, tuple[Callable[[], Any], list[Any]]]


def _numpy_actions() -> list[Any]:
    return [np.arange(COUNT, dtype=np.int64) % 2, 1 - np.arange(COUNT, dtype=np.int64) % 2]


def _cartpole() -> Setting:
    agent = [torch.tensor(0), torch.tensor(1)]

    def make() -> Any:
        return gym.make("CartPole-v1")

    return {
        "bare": (make, [0, 1]),
        "ours": (lambda: arrayferry_gym.NumpyToTorch(make()), agent),
        "peer": (lambda: gymnasium.wrappers.NumpyToTorch(make()), agent),
        "hand": (lambda: HandNumpyToTorch(make()), agent),
    }


def _cartpoles() -> Setting:
    agent = [torch.from_numpy(actions) for actions in _numpy_actions()]

    def make() -> Any:
        return gym.make_vec("CartPole-v1", num_envs=COUNT)

    return {
        "bare": (make, _numpy_actions()),
        "ours": (lambda: arrayferry_gym.vector.NumpyToTorch(make()), agent),
        "peer": (lambda: gymnasium.wrappers.vector.NumpyToTorch(make()), agent),
        "hand": (lambda: HandVectorNumpyToTorch(make()), agent),
    }


def _jax_vector() -> Setting:
    own = [jnp.asarray(actions, jnp.float32) for actions in _numpy_actions()]
    agent = [torch.from_numpy(actions.astype(np.float32)) for actions in _numpy_actions()]
    return {
        "bare": (JaxVector, own),
        "ours": (lambda: arrayferry_gym.vector.JaxToTorch(JaxVector()), agent),
        "peer": (lambda: gymnasium.wrappers.vector.JaxToTorch(JaxVector()), agent),
        "hand": (lambda: HandVectorJaxToTorch(JaxVector()), agent),
    }


SETTINGS: dict[str, Callable[[], Setting]] = {
    "NumpyToTorch over CartPole": _cartpole,
    "NumpyToTorch over 64 CartPoles": _cartpoles,
    "JaxToTorch over 64 in JAX": _jax_vector,
}


def blocks(setting: Setting) -> dict[str, Block]:
    """Twenty steps of each environment, with the same start and actions."""
    made = {}
    for name, (make, actions) in setting.items():
        env = make()
        made[name] = Block(_resetting(env), _stepping(env, actions))
    return made


def measure(what: str, seconds: float) -> dict[str, float]:
    """Measure the time of one step for each wrapper, in seconds."""
    times = fastest_block(blocks(SETTINGS[what]()), seconds)
    return {name: took / STEPS for name, took in times.items()}


def acting(seconds: float) -> dict[str, float]:
    """Measure the time of one step of an agent in PyTorch in 16 CartPoles of NumPy, in seconds."""
    torch.manual_seed(0)
    policy = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
        torch.nn.Linear(64, 2),
    )  # fmt: skip

    def block(adapter: Any) -> Block:
        env = adapter(gym.make_vec("CartPole-v1", num_envs=16, vectorization_mode="sync"))

        @torch.no_grad()
        def work() -> None:
            observation = env.reset(seed=1)[0]
            for _ in range(STEPS):
                logits = policy(torch.as_tensor(observation))
                actions = torch.distributions.Categorical(logits=logits).sample()
                observation = env.step(actions)[0]

        return Block(lambda: None, work)

    ways = {"ours": arrayferry_gym.vector.NumpyToTorch, "hand": HandVectorNumpyToTorch}
    times = fastest_block({name: block(adapter) for name, adapter in ways.items()}, seconds)
    return {name: took / STEPS for name, took in times.items()}


def _resetting(env: Any) -> Callable[[], object]:
    return lambda: env.reset(seed=1)


def _stepping(env: Any, actions: list[Any]) -> Callable[[], object]:
    first, second = actions

    def work() -> None:
        step = env.step
        for _ in range(STEPS // 2):
            step(first)
            step(second)

    return work
