"""Agents in PyTorch and JAX learn CartPole in environments in NumPy and JAX.

Each agent and each environment is written for its own library only. The adapter between them
detects both libraries at run time. Run it with `make demo`.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

import arrayferry as af
from arrayferry_gym.vector import ArrayConversion

ENVS = 16
STEPS = 64
UPDATES = 100
EPOCHS = 6
DISCOUNT, GAE_LAMBDA, CLIP, LEARNING_RATE = 0.98, 0.9, 0.2, 4e-3


class TorchAgent:
    """Proximal policy optimisation in PyTorch; every array it gets is a tensor."""

    name = "PyTorch"

    def __init__(self, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)
        )
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=LEARNING_RATE)
        self.torch = torch

    def first_action(self) -> Any:
        return self.torch.zeros(ENVS, dtype=self.torch.int64)

    def act(self, observation: Any) -> tuple[Any, Any, Any]:
        with self.torch.no_grad():
            out = self.net(observation)
            policy = self.torch.distributions.Categorical(logits=out[:, :2])
            action = policy.sample()
            return action, policy.log_prob(action), out[:, 2]

    def learn(self, batch: dict[str, list[Any]]) -> None:
        torch = self.torch
        data = {key: torch.stack(parts) for key, parts in batch.items()}
        advantage, target = _advantages(data, torch.zeros(ENVS), torch.stack)
        mask = data["valid"] > 0
        advantage = (advantage - advantage[mask].mean()) / (advantage[mask].std() + 1e-6)
        for _ in range(EPOCHS):
            out = self.net(data["observation"])
            policy = torch.distributions.Categorical(logits=out[..., :2])
            ratio = (policy.log_prob(data["action"]) - data["log_prob"]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            surrogate = torch.minimum(ratio * advantage, clipped * advantage)
            loss = -surrogate + 0.5 * (out[..., 2] - target) ** 2 - 0.01 * policy.entropy()
            self.optimiser.zero_grad()
            loss[mask].mean().backward()
            self.optimiser.step()


class JaxAgent:
    """The same in JAX; every array it gets is a `jax.Array`."""

    name = "JAX"

    def __init__(self, seed: int) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        self.key, one, two = jax.random.split(jax.random.key(seed), 3)
        self.params = {
            "w1": jax.random.normal(one, (4, 64)) * 0.5,
            "b1": jnp.zeros(64),
            "w2": jax.random.normal(two, (64, 3)) * 0.1,
            "b2": jnp.zeros(3),
        }
        optimiser = optax.adam(LEARNING_RATE)
        self.state = optimiser.init(self.params)

        def net(params: Any, x: Any) -> tuple[Any, Any]:
            out = jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
            return jax.nn.log_softmax(out[..., :2]), out[..., 2]

        def act(params: Any, key: Any, x: Any) -> Any:
            key, subkey = jax.random.split(key)
            log_probs, value = net(params, x)
            action = jax.random.categorical(subkey, log_probs)
            log_prob = jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0]
            return key, (action, log_prob, value)

        def loss(params: Any, data: Any, advantage: Any, target: Any) -> Any:
            log_probs, value = net(params, data["observation"])
            log_prob = jnp.take_along_axis(log_probs, data["action"][..., None], -1)[..., 0]
            ratio = jnp.exp(log_prob - data["log_prob"])
            clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
            surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
            entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
            losses = -surrogate + 0.5 * (value - target) ** 2 - 0.01 * entropy
            return (losses * data["valid"]).sum() / data["valid"].sum()

        def learn(params: Any, state: Any, batch: Any) -> Any:
            data = {key: jnp.stack(parts) for key, parts in batch.items()}
            advantage, target = _advantages(data, jnp.zeros(ENVS), jnp.stack)
            mask = data["valid"] > 0
            mean, std = advantage.mean(where=mask), advantage.std(where=mask)
            advantage = (advantage - mean) / (std + 1e-6)
            for _ in range(EPOCHS):
                grads = jax.grad(loss)(params, data, advantage, target)
                updates, state = optimiser.update(grads, state)
                params = optax.apply_updates(params, updates)
            return params, state

        self._act, self._learn, self.jnp = jax.jit(act), jax.jit(learn), jnp

    def first_action(self) -> Any:
        return self.jnp.zeros(ENVS, dtype=self.jnp.int32)

    def act(self, observation: Any) -> tuple[Any, Any, Any]:
        self.key, result = self._act(self.params, self.key, observation)
        return result  # type: ignore[no-any-return]

    def learn(self, batch: dict[str, list[Any]]) -> None:
        self.params, self.state = self._learn(self.params, self.state, batch)


def _advantages(data: dict[str, Any], zeros: Any, stack: Any) -> tuple[Any, Any]:
    """Generalised advantage estimation, backwards in time, in the library of `data`."""
    advantage, next_value = zeros, data["value"][-1]
    found = []
    for step in range(STEPS - 2, -1, -1):
        running = 1.0 - data["done"][step]
        delta = data["reward"][step] + DISCOUNT * next_value * running - data["value"][step]
        advantage = delta + DISCOUNT * GAE_LAMBDA * running * advantage
        next_value = data["value"][step]
        found.append(advantage)
    advantages = stack([*found[::-1], zeros])
    return advantages, advantages + data["value"]


def train(env_id: str, agent: Any, show: Any) -> tuple[str, float, float, float]:
    """Train an agent. Return the environment's library, steps per second, returns before and after."""
    envs = ArrayConversion(gym.make_vec(env_id, num_envs=ENVS))
    envs.reset(seed=3)
    observation, reward, terminated, truncated, _ = envs.step(agent.first_action())
    library = envs.env_backend.name
    returns, running, ones = [], np.zeros(ENVS), np.ones(ENVS)
    first, steps, started = None, 0, time.perf_counter()
    for update in range(UPDATES):
        batch: dict[str, list[Any]] = {
            key: []
            for key in ("observation", "action", "log_prob", "value", "reward", "done", "valid")
        }
        for step in range(STEPS):
            action, log_prob, value = agent.act(observation)
            valid = 1.0 - 1.0 * (terminated | truncated)
            batch["observation"].append(observation)
            observation, reward, terminated, truncated, _ = envs.step(action)
            done = 1.0 * (terminated | truncated)
            not_last = 1.0 if step < STEPS - 1 else 0.0
            for key, item in (("action", action), ("log_prob", log_prob), ("value", value)):
                batch[key].append(item)
            batch["reward"].append(1.0 * reward)
            batch["done"].append(done)
            batch["valid"].append(valid * not_last)
            running += af.convert(reward, "numpy") * ones
            for index in np.flatnonzero(af.convert(done, "numpy")):
                returns.append(running[index])
                running[index] = 0.0
            steps += ENVS
        agent.learn(batch)
        recent = float(np.mean(returns[-30:])) if returns else 0.0
        if first is None and len(returns) >= 30:
            first = float(np.mean(returns[:30]))
            started, steps = time.perf_counter(), 0
        show(update + 1, recent)
    seconds = time.perf_counter() - started
    envs.close()
    return library, steps / seconds, first or 0.0, float(np.mean(returns[-30:]))


def main() -> int:
    """Train all pairs, print the table, and return the exit status."""
    warnings.simplefilter("ignore")
    names = {"numpy": "NumPy", "jax": "JAX", "torch": "PyTorch"}
    rows = []
    for env_id in ("CartPole-v1", "phys2d/CartPole-v1"):
        for make in (TorchAgent, JaxAgent):
            agent = make(seed=1)

            def show(
                update: int, recent: float, title: str = f"{env_id}, {agent.name} agent"
            ) -> None:
                bar = "#" * (30 * update // UPDATES)
                end = "\n" if update == UPDATES else ""
                if sys.stdout.isatty() or update % 10 == 0 or end:
                    lead = "\r" if sys.stdout.isatty() else ""
                    print(
                        f"{lead}{title:38} [{bar:30}] return {recent:6.1f}",
                        end=end or ("" if lead else "\n"),
                        flush=True,
                    )

            library, rate, before, after = train(env_id, agent, show)
            target = "torch" if make is TorchAgent else "jax"
            route = af.route(library, target)
            how = "not converted" if not route.steps else "copied" if route.copies else "shared"
            rows.append((names[library], agent.name, how, rate, before, after))
    print(
        f"\n{'environment':12} {'agent':8} {'observations':14} {'steps/s':>8} {'return before':>14} {'after':>7}"
    )
    for env, agent_name, how, rate, before, after in rows:
        print(f"{env:12} {agent_name:8} {how:14} {rate:8,.0f} {before:14.1f} {after:7.1f}")
    learned = all(after > 3 * before for *_, before, after in rows)
    print("\nEvery agent learned." if learned else "\nAn agent did not learn.")
    return 0 if learned else 1


if __name__ == "__main__":
    sys.exit(main())
