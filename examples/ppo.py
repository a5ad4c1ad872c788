"""Proximal policy optimisation in JAX, for CartPole, with a network in Equinox or in Flax.

`ppo_gymnasium.py` takes it to Gymnasium's environment, step by step, and `ppo_jit.py` compiles it together with one.

Source: Schulman et al., Proximal policy optimization algorithms, 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from arrayferry_envs import Trajectory
from arrayferry_gym import advantages

OBSERVATION, ACTIONS, HIDDEN = 4, 2, 64


class Settings(NamedTuple):
    """How an agent learns. These are for CartPole."""

    updates: int = 200
    num_envs: int = 16
    num_steps: int = 32
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 5e-3
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    gradient_norm: float = 0.5

    @property
    def per_update(self) -> int:
        """How many steps of environments an update takes."""
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> int:
        """How many of them a minibatch has."""
        return self.per_update // self.minibatches

    @property
    def total(self) -> int:
        """How many minibatches are learned from in all."""
        return self.updates * self.epochs * self.minibatches


class Learner(NamedTuple):
    """What changes when an agent learns."""

    params: Any
    optimiser: Any


class Network(NamedTuple):
    """A network as two functions: `init(key)` returns its parameters, `apply(params, observation)` its outputs."""

    init: Callable[[Any], Any]
    apply: Callable[[Any, Any], Any]


def equinox_network() -> Network:
    """Return a network of Equinox."""

    def make(key: Any) -> Any:
        return eqx.nn.MLP(OBSERVATION, ACTIONS + 1, HIDDEN, depth=1, activation=jnp.tanh, key=key)

    static = eqx.filter(make(jax.random.key(0)), eqx.is_array, inverse=True)

    def apply(params: Any, observation: Any) -> Any:
        return jnp.vectorize(eqx.combine(params, static), signature="(i)->(o)")(observation)

    return Network(lambda key: eqx.filter(make(key), eqx.is_array), apply)


def flax_network() -> Network:
    """Return the same network in Flax."""
    net = nn.Sequential([nn.Dense(HIDDEN), nn.tanh, nn.Dense(ACTIONS + 1)])
    return Network(lambda key: net.init(key, jnp.zeros(OBSERVATION)), net.apply)


NETWORKS = {"equinox": equinox_network, "flax": flax_network}


class PPO:
    """An agent, as pure functions.

    Args:
        settings: how it learns.
        network: "equinox", "flax", or a network whose outputs are a number for each action, and the value.

    Examples:
        >>> agent = PPO(Settings(), "flax")
        >>> learner = agent.init(jax.random.key(0))
        >>> action, log_prob = agent.policy(learner.params, jnp.zeros((16, 4)), jax.random.key(1))
        >>> action.shape, log_prob.shape
        ((16,), (16,))
    """

    def __init__(self, settings: Settings, network: str | Network = "equinox") -> None:
        self.settings = settings
        self.network = NETWORKS[network]() if isinstance(network, str) else network
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(settings.gradient_norm),
            optax.adam(optax.linear_schedule(settings.learning_rate, 0.0, settings.total)),
        )

    def init(self, key: Any) -> Learner:
        """Return a learner that has learned nothing."""
        params = self.network.init(key)
        return Learner(params, self.optimiser.init(params))

    def outputs(self, params: Any, observation: Any) -> tuple[Any, Any]:
        """Return the log-probability of each action, and the value."""
        outputs = self.network.apply(params, observation)
        return jax.nn.log_softmax(outputs[..., :-1]), outputs[..., -1]

    def policy(self, params: Any, observation: Any, key: Any) -> tuple[Any, Any]:
        """Return random actions, and their log-probabilities."""
        log_probs, _ = self.outputs(params, observation)
        action = jax.random.categorical(key, log_probs)
        return action, _chosen(log_probs, action)

    def greedy(self, params: Any, observation: Any, key: Any = None) -> tuple[Any, None]:
        """Return the most probable actions."""
        return self.outputs(params, observation)[0].argmax(-1), None

    def learn(self, learner: Learner, transitions: Trajectory, key: Any) -> Learner:
        """Return the learner after one update, from transitions with log-probabilities as extras.

        Each minibatch is drawn at random from all transitions, which is quicker than a permutation.
        """
        settings = self.settings
        _, value = self.outputs(learner.params, transitions.observation)
        _, following = self.outputs(learner.params, transitions.final_observation)
        advantage = advantages(
            transitions, value, following, gamma=settings.gamma, lam=settings.lam
        )
        data = transitions, advantage, advantage + value
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)  # time and environments

        def minibatch(learner: Learner, rows: Any) -> tuple[Learner, None]:
            gradient = jax.grad(self.loss)(learner.params, *jax.tree.map(lambda x: x[rows], data))
            change, state = self.optimiser.update(gradient, learner.optimiser)
            return Learner(optax.apply_updates(learner.params, change), state), None

        shape = (settings.epochs * settings.minibatches, settings.minibatch)
        rows = jax.random.randint(key, shape, 0, settings.per_update)
        return jax.lax.scan(minibatch, learner, rows)[0]

    def loss(self, params: Any, transitions: Trajectory, advantage: Any, target: Any) -> Any:
        """Return the loss of a batch of transitions."""
        settings = self.settings
        log_probs, value = self.outputs(params, transitions.observation)
        ratio = jnp.exp(_chosen(log_probs, transitions.action) - transitions.extras)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        gain = jnp.minimum(ratio * advantage, clipped * advantage)
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
        value_loss = (value - target) ** 2
        losses = -gain + settings.value_weight * value_loss - settings.entropy_weight * entropy
        return losses.mean()


def _chosen(log_probs: Any, action: Any) -> Any:
    return jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]
