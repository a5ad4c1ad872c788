"""What wrong ends of episodes cost: one PPO, four ways to treat time limits, ten seeds.

    python benchmarks/curves.py            # or with a number of seeds: 2

What the agent learns from at a truncation differs, and nothing else:

- `true last`: the value of the last observation, before the reset.
- `after reset`: the value of the observation after the reset, as if it came next.
- `termination`: no value, as if the task had ended.
- `extra steps`: NEXT_STEP mode, whose steps that only reset are learned from as others are.

The settings were fixed before the first run. Tasks: Pendulum with its limit of 200 steps, and CartPole with a limit of 50.
Values at truncations are compared with the discounted rewards of the same policy in the next 500 steps without a limit;
those also give the return without a limit.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

# on two processors, JAX 0.10.2 was seen to wait for itself for ever
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from scipy import stats

from arrayferry_envs import CartPole, Functions, Pendulum
from arrayferry_gym import advantages

STEPS, ENVS, LENGTH = 100_000, 16, 128
UPDATES = STEPS // (ENVS * LENGTH)
EPOCHS, MINIBATCHES, RATE, CLIP, GAMMA, LAM = 10, 16, 1e-3, 0.2, 0.95, 0.95
TASKS = {"Pendulum, limit 200": (Pendulum(), 200, 0.1), "CartPole, limit 50": (CartPole(), 50, 1.0)}
"""The environment, its limit, and what rewards are multiplied by for the agent."""
ARMS = {
    "true last": "SameStep",
    "after reset": "SameStep",
    "termination": "SameStep",
    "extra steps": "NextStep",
}
AFTER = 500
ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "benchmarks/results/curves.json", ROOT / "docs/assets/ends.png"


class Agent(NamedTuple):
    """The layers of the policy, the logarithm of its deviation, and the layers of the value."""

    policy: Any
    log_std: Any
    value: Any


def layers(key: Any, *sizes: int) -> Any:
    """Return the weights and biases of a network."""
    keys, scales = jax.random.split(key, len(sizes) - 1), (2**0.5, 2**0.5, 0.01)
    shapes = zip(keys, scales, sizes, sizes[1:], strict=False)
    return [(jax.nn.initializers.orthogonal(x)(k, (i, o)), jnp.zeros(o)) for k, x, i, o in shapes]


def network(layers: Any, x: Any) -> Any:
    """Return what a network makes of observations, (..., n)."""
    *hidden, (weight, bias) = layers
    for w, b in hidden:
        x = jnp.tanh(x @ w + b)
    return x @ weight + bias


def made(env: Any, key: Any) -> Agent:
    """Return an agent for an environment."""
    size, space = env.observation_space.shape[0], env.action_space
    outputs = int(space.n) if hasattr(space, "n") else space.shape[0]
    one, two = jax.random.split(key)
    return Agent(
        layers(one, size, 64, 64, outputs), jnp.zeros(outputs), layers(two, size, 64, 64, 1)
    )


def value(agent: Agent, observation: Any) -> Any:
    """Return the values of observations."""
    return network(agent.value, observation)[..., 0]


def log_prob(env: Any, agent: Agent, observation: Any, action: Any) -> Any:
    """Return the logarithms of the probabilities of actions."""
    out = network(agent.policy, observation)
    if hasattr(env.action_space, "n"):
        return jnp.take_along_axis(jax.nn.log_softmax(out), action[..., None], -1)[..., 0]
    return jax.scipy.stats.norm.logpdf(action, out, jnp.exp(agent.log_std)).sum(-1)


def act(env: Any, agent: Agent, observation: Any, key: Any) -> Any:
    """Draw an action for each environment."""
    out = network(agent.policy, observation)
    if hasattr(env.action_space, "n"):
        return jax.random.categorical(key, out)
    return out + jnp.exp(agent.log_std) * jax.random.normal(key, out.shape)


def play(env: Any, functions: Functions, agent: Agent, carry: Any, key: Any, steps: int) -> Any:
    """Take steps, and return the environments and what was seen."""

    def step(carry: Any, key: Any) -> Any:
        env_state, observation = carry
        acting, stepping = jax.random.split(key)
        action = act(env, agent, observation, acting)
        env_state, after = functions.step(stepping, env_state, action)
        return (env_state, after.observation), (observation, action, after)

    return jax.lax.scan(step, carry, jax.random.split(key, steps))


def learned(task: str, arm: str, agent: Agent, state: Any, seen: Any, key: Any, by: Any) -> Any:
    """Learn from what was seen."""
    (env, _, scale), (observation, action, after) = TASKS[task], seen
    before, following = value(agent, observation), value(agent, after.observation)
    terminated, truncated = after.terminated, after.truncated
    if arm == "true last":
        following = value(agent, after.final_observation)
    elif arm == "termination":
        terminated, truncated = terminated | truncated, truncated & False
    gained = advantages(
        scale * after.reward, before, following, terminated, truncated,
        gamma=GAMMA, lam=LAM,
    )  # fmt: skip
    batch = observation, action, gained, gained + before
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
    flat = (*flat, log_prob(env, agent, *flat[:2]))

    def loss(agent: Agent, part: Any) -> Any:
        observation, action, gained, target, old = part
        ratio = jnp.exp(log_prob(env, agent, observation, action) - old)
        gained = (gained - gained.mean()) / (gained.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
        error = value(agent, observation) - target
        return -jnp.minimum(ratio * gained, clipped * gained).mean() + 0.5 * (error**2).mean()

    def minibatch(carry: Any, rows: Any) -> Any:
        agent, state = carry
        grads = jax.grad(loss)(agent, jax.tree.map(lambda x: x[rows], flat))
        updates, state = by.update(grads, state)
        return (optax.apply_updates(agent, updates), state), None

    rows = [jax.random.permutation(k, ENVS * LENGTH) for k in jax.random.split(key, EPOCHS)]
    return jax.lax.scan(
        minibatch, (agent, state), jnp.stack(rows).reshape(EPOCHS * MINIBATCHES, -1)
    )[0]


def returns(totals: Any, after: Any) -> Any:
    """Return the rewards so far of episodes that go on, the sum of the returns of those that ended, and their number."""

    def step(total: Any, now: Any) -> Any:
        total = total + now[0]
        return jnp.where(now[1], 0.0, total), jnp.where(now[1], total, 0.0)

    totals, reached = jax.lax.scan(step, totals, (after.reward, after.ended))
    return totals, (reached.sum(), after.ended.sum())


def train(task: str, arm: str, seeds: Any) -> Any:
    """Train one agent for each seed, and return what is measured."""
    env, limit, scale = TASKS[task]
    functions = Functions(env, autoreset_mode=ARMS[arm], max_episode_steps=limit)
    endless = Functions(env, autoreset_mode="SameStep", max_episode_steps=None)
    by = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(RATE))

    def one(seed: Any) -> Any:
        making, beginning, going, testing, opening = jax.random.split(jax.random.key(seed), 5)
        agent = made(env, making)

        def update(carry: Any, key: Any) -> Any:
            agent, state, envs, totals = carry
            acting, learning = jax.random.split(key)
            envs, seen = play(env, functions, agent, envs, acting, LENGTH)
            agent, state = learned(task, arm, agent, state, seen, learning, by)
            totals, score = returns(totals, seen[2])
            return (agent, state, envs, totals), score

        carry = agent, by.init(agent), functions.reset(beginning, ENVS), jnp.zeros(ENVS)
        keys = jax.random.split(going, UPDATES)
        (agent, *_), (sums, counts) = jax.lax.scan(update, carry, keys)
        _, (observation, _, after) = play(
            env, endless, agent, endless.reset(opening, 256), testing, limit + AFTER
        )
        on = jnp.cumsum(after.terminated, 0) - after.terminated == 0
        alive = on[limit]  # in CartPole, some fall before the limit
        discounts = GAMMA ** jnp.arange(AFTER)
        rewards_on = scale * after.reward * on
        true = (rewards_on[limit:] * discounts[:, None]).sum(0)
        error = value(agent, observation[limit]) - true
        return {
            "curve": sums,
            "ended": counts,
            "return": (after.reward * on)[:500].sum(0).mean(),
            "true": jnp.where(alive, true, 0).sum() / alive.sum(),
            "error": jnp.where(alive, error, 0).sum() / alive.sum(),
        }

    return jax.jit(jax.vmap(one))(seeds)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the learning curves, and the values at truncations against what follows, with 95 % intervals."""
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    places = [-x for x in range(len(ARMS))]
    for row, (task, arms) in zip(figure.subplots(2, 3), found.items(), strict=True):
        row[0].set(title=f"{task}: return in training", xlabel="steps")
        row[1].set(title="return in 500 steps without a limit", yticks=places)
        row[2].set(title="error of values at truncations", yticks=places)
        row[2].axvline(0, color="grey", linewidth=0.8)
        for place, (arm, result) in zip(places, arms.items(), strict=True):
            sums, counts = np.array(result["curve"]), np.array(result["ended"])
            some = (counts > 0).all(0)  # where episodes of all seeds have ended
            curve = (sums / np.maximum(counts, 1))[:, some]
            middle, wide = curve.mean(0), interval(curve)
            steps = ENVS * LENGTH * np.arange(1, 1 + len(some))[some]
            (line,) = row[0].plot(steps, middle, label=arm)
            row[0].fill_between(steps, middle - wide, middle + wide, alpha=0.2)
            for axes, name in zip(row[1:], ("return", "error"), strict=True):
                x = np.array(result[name])
                axes.errorbar(x.mean(), place, xerr=interval(x), fmt="o", color=line.get_color())
                axes.set_yticklabels([*arms])
        row[0].legend()
    figure.savefig(path, dpi=100)


def interval(x: Any) -> Any:
    """Return half the width of the 95 % interval of a mean over seeds, by Student's t."""
    return stats.t.ppf(0.975, len(x) - 1) * x.std(0, ddof=1) / len(x) ** 0.5


def main() -> None:
    """Train, print a table, and draw the picture."""
    seeds = jnp.arange(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    found: dict[str, Any] = {task: {} for task in TASKS}
    for task, arm in product(TASKS, ARMS):
        started = time.perf_counter()
        result = {name: np.asarray(x) for name, x in train(task, arm, seeds).items()}
        found[task][arm] = {name: x.tolist() for name, x in result.items()}
        shown = (
            f"{name} {x.mean():.2f} +- {interval(x):.2f}"
            for name, x in result.items()
            if name not in ("curve", "ended")
        )
        print(f"{task} | {arm} | {' | '.join(shown)} | {time.perf_counter() - started:.0f} s")
    if len(seeds) >= 10:
        RESULTS.write_text(json.dumps(found), encoding="utf-8")
        draw(found, PICTURE)


if __name__ == "__main__":
    main()
