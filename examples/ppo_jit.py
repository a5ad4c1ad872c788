"""A whole training in one compiled call: environments, agent and optimiser, for several seeds at once if you like.

Run it with `python examples/ppo_jit.py`, with `--seeds 5`, or with `--network flax`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ppo import NETWORKS, PPO, Settings
from report import Add, Line, Result, bars, draw, table

from arrayferry_envs import CartPole, Trajectory, evaluate, rollout

SHOWN = 10
"""After how many updates the bar moves. To call Python takes about half as long as an update."""


def train(
    agent: PPO, seed: Any, show: Callable[..., None] | None = None, env: Any = None
) -> tuple[Any, Any]:
    """Train an agent. It is a pure function of the seed, so that `jit` and `vmap` apply.

    Args:
        agent: the agent.
        seed: a whole number.
        show: is called now and then with the seed, the number of updates, and the score.
        env: the environment. The default is `CartPole`.

    Returns:
        The parameters of the network, and the score after each update.

    Examples:
        >>> agent = PPO(Settings(updates=2, num_envs=4, num_steps=8))
        >>> params, scores = jax.jit(lambda seed: train(agent, seed))(0)
        >>> scores.shape
        (2,)
    """
    env, settings = env or CartPole(), agent.settings
    starting, beginning, going = jax.random.split(jax.random.key(seed), 3)
    learner = agent.init(starting)
    envs, first = rollout(env, agent.policy, learner.params, beginning, 1, settings.num_envs)

    def update(carry: Any, now: Any) -> tuple[Any, Any]:
        learner, envs, totals = carry
        number, key = now
        acting, learning = jax.random.split(key)
        envs, transitions = rollout(
            env, agent.policy, learner.params, acting, settings.num_steps, settings.num_envs, carry=envs
        )  # fmt: skip
        learner = agent.learn(learner, transitions, learning)
        totals, score = returns(totals, transitions)
        if show is not None:
            jax.lax.cond(
                number % SHOWN == 0, lambda: jax.debug.callback(show, seed, number, score), lambda: None
            )  # fmt: skip
        return (learner, envs, totals), score

    numbers = jnp.arange(1, settings.updates + 1)
    keys = jax.random.split(going, settings.updates)
    carry, scores = jax.lax.scan(update, (learner, envs, first.reward[0]), (numbers, keys))
    return carry[0].params, scores


def returns(totals: Any, transitions: Trajectory) -> tuple[Any, Any]:
    """Return the rewards so far of episodes that go on, and the mean return of those that ended, nan if none did.

    Args:
        totals: the rewards so far before these transitions, of each environment.
        transitions: the transitions.
    """

    def step(total: Any, now: Any) -> tuple[Any, Any]:
        reward, ended = now
        total = total + reward
        return jnp.where(ended, 0.0, total), total

    ended = transitions.terminated | transitions.truncated
    totals, reached = jax.lax.scan(step, totals, (transitions.reward, ended))
    return totals, reached.mean(where=ended)


def run(name: str, agent: PPO, seeds: list[int], add: Add) -> Result:
    """Compile the training of all seeds at once, train, and play 100 episodes with each agent."""
    if len(seeds) > 1:
        name = f"{name}, {len(seeds)} at once"
    bar = {seed: add(f"{name}: seed {seed}", agent.settings.updates) for seed in seeds}

    def one(seed: Any) -> tuple[Any, Any]:
        return train(agent, seed, lambda seed, update, score: bar[int(seed)](update, score))

    def play(params: Any) -> Any:
        options = {"policy_params": params, "key": jax.random.key(0), "num_envs": 100}
        return evaluate(CartPole(), agent.greedy, **options).returns.mean()

    argument = jnp.array(seeds)
    started = time.perf_counter()
    training = jax.jit(jax.vmap(one)).lower(argument).compile()
    compiled = time.perf_counter()
    params, curves = jax.block_until_ready(training(argument))
    done = time.perf_counter()
    jax.effects_barrier()  # the last bars
    scores = jax.jit(jax.vmap(play))(params)
    steps = len(seeds) * agent.settings.updates * agent.settings.per_update
    return Result(
        name, compiled - started, done - compiled, steps, scores.tolist(), curves.tolist()
    )


def main() -> None:
    """Train, print what was measured, and draw the learning curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--network", choices=NETWORKS, default="equinox")
    parser.add_argument("--picture", default="ppo_jit.png")
    given = parser.parse_args()
    agent = PPO(Settings(), given.network)
    seeds = list(range(given.seed, given.seed + given.seeds))
    with bars() as add:
        result = run("JAX, compiled", agent, seeds, add)
    table([result])
    for seed, score in zip(seeds, result.scores, strict=True):
        print(f"seed {seed}: {score:.1f}")
    draw(given.picture, [Line(result.name, agent.settings.per_update, result.curves)], "steps", 10)


if __name__ == "__main__":
    main()
