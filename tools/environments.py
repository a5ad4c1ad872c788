"""Train an agent on each environment of arrayferry and of arrayferry-classic, and draw it.

`python tools/environments.py` prints the rows of the table in docs/environments.md, and writes a picture of each
environment into docs/assets/envs. It takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import arrayferry_classic  # noqa: F401
import gymnasium as gym
import torch
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from PIL import Image
from stable_baselines3 import PPO

from arrayferry_envs import evaluate
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.wrappers.vector import FlattenObservation

PICTURES = Path(__file__).parents[1] / "docs/assets/envs"
NUM_ENVS, EPISODES, WIDTH = 16, 10, 160
LIMIT = 1000
"""The limit of steps where the environment has none."""


def described(space: Any) -> str:
    """Return a space in a few words.

    Examples:
        >>> described(spaces.Box(-1, 1, (3,))), described(spaces.Tuple([spaces.Discrete(2)] * 2))
        ('Box (3,)', 'Discrete 2, Discrete 2')
    """
    if isinstance(space, spaces.Tuple):
        return ", ".join(map(described, space))
    return f"Discrete {space.n}" if isinstance(space, spaces.Discrete) else f"Box {space.shape}"


def made(env: Any) -> Any:
    """Make environments whose observations Stable-Baselines3's network takes."""
    envs = env.make_vec(
        NUM_ENVS, autoreset_mode="SameStep", max_episode_steps=env.max_episode_steps or LIMIT
    )
    return FlattenObservation(envs) if isinstance(env.observation_space, spaces.Tuple) else envs


def returns(env: Any, steps: int) -> Any:
    """Return those of episodes of an agent that has learned for some steps."""
    agent = PPO("MlpPolicy", SB3VecEnv(made(env)), n_steps=128, seed=0, device="cpu")
    agent.learn(steps)

    def policy(params: Any, observation: Any, rng: Any) -> tuple[Any, None]:
        return agent.predict(observation, deterministic=True)[0], None

    return evaluate(made(env), policy, key=1, episodes=EPISODES).returns


def draw(env: Any, path: Path) -> None:
    """Write the first image of an episode."""
    single = env.make(xp="numpy", render_mode="rgb_array")
    single.reset(seed=0)
    image = Image.fromarray(single.render())
    single.close()
    image.resize((WIDTH, WIDTH * image.height // image.width)).quantize(32).save(path)


def main() -> None:
    """Print the table, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=100_000, help="those of each training, in all environments"
    )
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for spec in sorted(gym.registry.values(), key=lambda spec: spec.name):
        if spec.namespace != "arrayferry":
            continue
        cls = load_env_creator(spec.kwargs["functional"])
        env, name = cls(), cls.__name__
        draw(env, PICTURES / f"{name}.png")
        found = returns(env, given.steps)
        print(
            f"| ![](assets/envs/{name}.png) | `{name}` | {described(env.observation_space)} | "
            f"{described(env.action_space)} | {env.max_episode_steps or 'none'} | {found.mean():.4g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
