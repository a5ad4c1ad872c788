"""Recurrent PPO in one compiled call: CartPole whose velocities are hidden, so that the agent must remember.

The policy has a state, a row for each environment. The rollout gives it back where an episode goes on, and begins it
anew with each episode. To learn, the network is run again along each sequence, from the state at its start.

Run it with `python examples/ppo_recurrent.py`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from ppo import Settings

from arrayferry_envs import CartPole, FunctionalEnv, evaluate, rollout, wrap
from arrayferry_gym import advantages
from arrayferry_gym.wrappers import kernels

HIDDEN = 64
SETTINGS = Settings(updates=600, num_envs=64, learning_rate=3e-3, gamma=0.98, entropy_weight=0.0)


def environment() -> FunctionalEnv:
    """Return CartPole whose observations are only the position and the angle."""
    seen = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return wrap(CartPole(), kernels.TransformObservation(lambda x: x[:, ::2] * 5.0, seen))


class Network(eqx.Module):
    """A cell that remembers, and what it says: a number for each action, and the value."""

    encode: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 3)
        self.encode = eqx.nn.Linear(2, HIDDEN, key=keys[0])
        self.cell = eqx.nn.GRUCell(HIDDEN, HIDDEN, key=keys[1])
        self.head = eqx.nn.Linear(HIDDEN, 3, key=keys[2])

    def __call__(self, observation: Any, state: Any) -> tuple[Any, Any, Any]:
        """Return log-probabilities (n, 2), values (n,), and the next states, for observations (n, 2)."""
        state = jax.vmap(self.cell)(jnp.tanh(jax.vmap(self.encode)(observation)), state)
        outputs = jax.vmap(self.head)(state)
        return jax.nn.log_softmax(outputs[:, :2]), outputs[:, 2], state


class Extras(NamedTuple):
    """What the policy returns besides the action."""

    log_prob: Any
    state: Any  # before the step


def policy(network: Network, observation: Any, key: Any, state: Any) -> tuple[Any, Extras, Any]:
    """Return random actions, their log-probabilities, and the next states."""
    log_probs, _, after = network(observation, state)
    action = jax.random.categorical(key, log_probs)
    return action, Extras(jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0], state), after


def greedy(network: Network, observation: Any, key: Any, state: Any) -> tuple[Any, None, Any]:
    """Return the most probable actions, and the next states."""
    log_probs, _, after = network(observation, state)
    return log_probs.argmax(-1), None, after


def rerun(network: Network, steps: Any) -> tuple[Any, Any, Any]:
    """Run a network along sequences (time, n) of transitions.

    Returns:
        The log-probabilities of actions, the values, and the values of final observations.
    """

    def one(state: Any, now: Any) -> tuple[Any, Any]:
        observation, final, began = now
        state = jnp.where(began[:, None], 0.0, state)
        log_probs, value, state = network(observation, state)
        _, following, _ = network(final, state)
        return state, (log_probs, value, following)

    inputs = steps.observation, steps.final_observation, steps.began
    return jax.lax.scan(one, steps.extras.state[0], inputs)[1]  # type: ignore[no-any-return]


def loss(network: Network, steps: Any, advantage: Any, target: Any) -> Any:
    """Return the loss of sequences (time, n)."""
    log_probs, value, _ = rerun(network, steps)
    chosen = jnp.take_along_axis(log_probs, steps.action[..., None], -1)[..., 0]
    ratio = jnp.exp(chosen - steps.extras.log_prob)
    clipped = jnp.clip(ratio, 1 - SETTINGS.clip, 1 + SETTINGS.clip)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    value_loss = SETTINGS.value_weight * (value - target) ** 2
    return (-gain + value_loss - SETTINGS.entropy_weight * entropy).mean()


def train(seed: Any, settings: Settings = SETTINGS) -> tuple[Network, Any]:
    """Train a network. It is a pure function of the seed, so that `jit` and `vmap` apply.

    Returns:
        The network, and the mean length of the episodes that ended in each update, nan if none did.
    """
    env, groups = environment(), settings.minibatches
    starting, beginning, going = jax.random.split(jax.random.key(seed), 3)
    optimiser = optax.chain(
        optax.clip_by_global_norm(settings.gradient_norm),
        optax.adam(optax.linear_schedule(settings.learning_rate, 0.0, settings.total)),
    )
    network = Network(starting)
    memory = jnp.zeros((settings.num_envs, HIDDEN))
    envs, _ = rollout(env, policy, network, beginning, 1, settings.num_envs, policy_state=memory)

    def update(carry: Any, key: Any) -> tuple[Any, Any]:
        network, state, envs = carry
        acting, learning = jax.random.split(key)
        envs, steps = rollout(
            env, policy, network, acting, settings.num_steps, settings.num_envs, carry=envs
        )
        _, value, following = rerun(network, steps)
        advantage = advantages(steps, value, following, gamma=settings.gamma, lam=settings.lam)
        data = steps, advantage, advantage + value

        def minibatch(carry: Any, rows: Any) -> tuple[Any, None]:
            network, state = carry
            part = jax.tree.map(lambda x: x[:, rows], data)
            change, state = optimiser.update(jax.grad(loss)(network, *part), state)
            return (eqx.apply_updates(network, change), state), None

        keys = jax.random.split(learning, settings.epochs)
        order = jax.vmap(lambda key: jax.random.permutation(key, settings.num_envs))(keys)
        (network, state), _ = jax.lax.scan(
            minibatch, (network, state), order.reshape(-1, settings.num_envs // groups)
        )
        ended = steps.terminated | steps.truncated
        return (network, state, envs), steps.episode_length.mean(where=ended)

    start = network, optimiser.init(network), envs
    (network, _, _), lengths = jax.lax.scan(
        update, start, jax.random.split(going, settings.updates)
    )
    return network, lengths


def main(arguments: list[str] | None = None) -> float:
    """Train, and return the mean length of 100 episodes without exploration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    network, _ = jax.block_until_ready(jax.jit(train)(given.seed))
    seconds = time.perf_counter() - started
    memory = jnp.zeros((100, HIDDEN))
    played = evaluate(
        environment(), greedy, policy_params=network, key=jax.random.key(1), num_envs=100, policy_state=memory
    ).lengths  # fmt: skip
    score = float(played.mean())
    print(f"{seconds:.1f} s with compilation, then {score:.0f} steps an episode, of 500")
    return score


if __name__ == "__main__":
    main()
