"""Write files of gymnax's Breakout and pgx's 2048 for the page to play environments, with agents that are trained here.

usage: python tools/play_suites.py FOLDER     It takes two minutes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from arrayferry_envs import evaluate, export, make_functional, wrap
from arrayferry_gym.wrappers import kernels

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from ppo import PPO, Network, Settings
from ppo_jit import train

CELLS, LEAST = 3, -1e9


class Player(nn.Module):
    """What a player knows of a board: a number for each action, which is small if it is not allowed, and the value."""

    actions: int

    @nn.compact
    def __call__(self, observation: Any) -> Any:
        """Return both for boards in a batch of any shape."""
        parts = observation if isinstance(observation, dict) else {"observation": observation}
        board = parts["observation"].astype(jnp.float32)
        x = board.reshape(*board.shape[:-CELLS], -1)
        for _ in range(2):
            x = nn.relu(nn.Dense(64)(x))
        scores, value = nn.Dense(self.actions)(x), nn.Dense(1)(x)
        if "action_mask" in parts:
            scores = jnp.where(parts["action_mask"] != 0, scores, LEAST)
        return jnp.concatenate([scores, value], -1)


GAMES = {
    "breakout": ("gymnax/Breakout-MinAtar", 1.0, Settings(600, 64, 128, learning_rate=4e-3)),
    "game_2048": ("pgx/2048", 0.01, Settings(500, 64, 64, learning_rate=1e-3)),
}
"""For each file, the environment, by what rewards are multiplied in the training, and how it learns."""


def main(folder: Path) -> None:
    """Train an agent for each, and write it and the environment."""
    for name, (env_id, scale, settings) in GAMES.items():
        env, started = make_functional(env_id), time.perf_counter()
        net = Player(int(env.action_space.n))
        space = env.observation_space
        sample = jax.tree.map(jnp.asarray, space.sample())
        settings = settings._replace(gamma=0.99, minibatches=8)
        agent = PPO(settings, Network(lambda key, net=net, x=sample: net.init(key, x), net.apply))
        scaled = wrap(env, kernels.TransformReward(lambda reward, scale=scale: scale * reward))
        params, _ = jax.jit(lambda seed, agent=agent, env=scaled: train(agent, seed, env=env))(0)
        jax.block_until_ready(params)
        trained = time.perf_counter()
        options = {"policy_params": params, "key": jax.random.key(1), "num_envs": 100}
        score = np.mean(evaluate(env, agent.greedy, **options).returns)
        for file, policy in (
            (name, {}),
            (f"{name}_agent", {"policy": agent.greedy, "policy_params": params}),
        ):
            metadata = export(env, folder / f"{file}.onnx", **policy)
            (folder / f"{file}.json").write_text(json.dumps(metadata))
        print(
            f"{env_id}: return {score:.0f}, trained in {trained - started:.0f} s, "
            f"written in {time.perf_counter() - trained:.0f} s"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
