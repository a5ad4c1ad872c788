"""An agent in JAX learns on Gymnasium's CartPole, which is written in NumPy.

Run it with `python examples/ppo_gymnasium.py`. `ppo_jit.py` trains the same agent in one compiled call.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
from ppo import NETWORKS, PPO, Settings
from report import Line, bars, draw, table
from stepwise import run

from arrayferry_envs import Trajectory


class JaxAgent:
    """The agent of `ppo.py` with its state: all it does is compiled, and the loop is Python.

    Args:
        settings: how it learns.
        seed: a whole number.
        network: "equinox" or "flax".

    Examples:
        >>> agent = JaxAgent(Settings(updates=2, num_envs=4, num_steps=8), seed=0)
        >>> result = run("agent", agent, "numpy", 0, lambda name, updates: lambda done, score: None)
        >>> len(result.curves[0]), result.steps
        (2, 32)
    """

    library = "jax"

    def __init__(self, settings: Settings, seed: int, network: str = "equinox") -> None:
        self.settings = settings
        ppo = PPO(settings, network)
        self.key, key = jax.random.split(jax.random.key(seed))
        self.learner = ppo.init(key)

        @jax.jit
        def act(params: Any, observation: Any, key: Any) -> Any:
            key, acting = jax.random.split(key)
            return key, ppo.policy(params, observation, acting)

        @jax.jit
        def learn(learner: Any, steps: list[Trajectory], key: Any) -> Any:
            key, learning = jax.random.split(key)
            transitions = jax.tree.map(lambda *x: jnp.stack(x), *steps)
            return key, ppo.learn(learner, transitions, learning)

        self._act, self._learn, self._greedy = act, learn, jax.jit(ppo.greedy)

    def act(self, observation: Any) -> tuple[Any, Any]:
        self.key, result = self._act(self.learner.params, observation, self.key)
        return result

    def greedy(self, observation: Any) -> Any:
        return self._greedy(self.learner.params, observation)[0]

    def learn(self, steps: list[Trajectory]) -> None:
        self.key, self.learner = self._learn(self.learner, steps, self.key)


def main() -> None:
    """Train, print what was measured, and draw the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", choices=NETWORKS, default="equinox")
    parser.add_argument("--picture", default="ppo_gymnasium.png")
    given = parser.parse_args()
    agent = JaxAgent(Settings(), given.seed, given.network)
    with bars() as add:
        result = run("JAX agent, NumPy environment", agent, "numpy", given.seed, add)
    table([result])
    draw(given.picture, [Line(result.name, agent.settings.per_update, result.curves)], "steps", 10)


if __name__ == "__main__":
    main()
