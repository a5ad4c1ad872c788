"""Your trainer, one line changed: what an agent needs until it balances CartPole, over several vector environments.

    python benchmarks/trainers.py            # or with a number of seeds: 1

PPO of Stable-Baselines3 as it is, TorchRL's, and a loop as CleanRL writes them. The line that makes the environments is
all that changes. Each training runs in a process of its own, in turn with the others, until the last 100 episodes have a
mean return of 475. What comes before its second step, such as imports and compilation, is counted apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

NUM_ENVS, MOST, GOAL = 8, 300_000, 475.0
ROOT = Path(__file__).parents[1]


class Counted(VectorWrapper):
    """Counts steps and returns, and raises `DoneError` when the goal is reached."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(envs)
        self.returns, self.steps = deque[float](maxlen=100), 0
        self.totals, self.started = np.zeros(envs.num_envs), (0.0, 0.0)

    def step(self, actions: Any) -> Any:
        """Take a step."""
        results = self.env.step(actions)
        reward, ended = np.asarray(results[1]), np.asarray(results[2] | results[3])
        self.steps += len(reward)
        if self.steps == 2 * len(reward):
            self.started = time.perf_counter(), time.process_time()
        self.totals += reward
        self.returns.extend(self.totals[ended].tolist())
        self.totals[ended] = 0.0
        full = len(self.returns) == 100
        if self.steps >= MOST or (full and sum(self.returns) >= 100 * GOAL):
            raise DoneError
        return results


class DoneError(Exception):
    """The goal is reached, or there were too many steps."""


def envs_of(name: str) -> Any:
    """Make the environments: the one line that changes."""
    if name == "SyncVectorEnv":
        makes = [partial(gym.make, "CartPole-v1")] * NUM_ENVS
        return SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP)
    from arrayferry_envs import CartPole, make_vec

    if name.startswith("arrayferry, "):
        return CartPole().make_vec(NUM_ENVS, xp=name[12:], autoreset_mode="SameStep")
    return make_vec(f"{name}/CartPole-v1", NUM_ENVS, autoreset_mode="SameStep")


def by_sb3(envs: Any, seed: int) -> None:
    """Train by PPO of Stable-Baselines3, with the settings of its zoo for CartPole."""
    from stable_baselines3 import PPO

    from arrayferry_gym.sb3 import SB3VecEnv

    PPO(
        "MlpPolicy", SB3VecEnv(envs), n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20,
        learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left, seed=seed, device="cpu",
    ).learn(MOST)  # fmt: skip


def by_torchrl(envs: Any, seed: int) -> None:
    """Train by PPO of TorchRL: examples/torchrl_ppo.py."""
    import torchrl_ppo
    from ppo import Settings
    from torchrl.envs import RewardSum, TransformedEnv

    from arrayferry_gym.torchrl import TorchRLEnv

    def environment(_: int) -> Any:
        return TransformedEnv(TorchRLEnv(envs, categorical_actions=True), RewardSum())

    torchrl_ppo.environment = environment
    settings = Settings(num_envs=NUM_ENVS, updates=MOST // (32 * NUM_ENVS))
    torchrl_ppo.run(settings, seed, lambda name, updates: lambda done, score: None)


def by_loop(envs: Any, seed: int) -> None:
    """Train by a loop like CleanRL's."""
    import torch

    from arrayferry_gym import advantages
    from arrayferry_gym.vector import ArrayConversion

    envs = ArrayConversion(envs, target_xp="torch", stack_final=True, reward_dtype="float32")
    torch.manual_seed(seed)
    actor, critic = (
        torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, n))
        for n in (2, 1)
    )
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 2.5e-3)
    observation, _ = envs.reset(seed=seed)
    while True:
        seen: list[Any] = []
        with torch.no_grad():
            for _ in range(32):
                chosen = torch.distributions.Categorical(logits=actor(observation))
                action = chosen.sample()
                after, reward, terminated, truncated, infos = envs.step(action)
                last, log_prob = infos["final_obs"], chosen.log_prob(action)
                seen += [(observation, action, log_prob, reward, last, terminated, truncated)]
                observation = after
            obs, action, before, reward, last, *ends = map(torch.stack, zip(*seen, strict=True))
            value, following = critic(obs)[..., 0], critic(last)[..., 0]
            gained = advantages(reward, value, following, *ends, gamma=0.98, lam=0.8)
            data = [x.flatten(0, 1) for x in (obs, action, before, gained, gained + value)]
        for rows in torch.stack([torch.randperm(32 * NUM_ENVS) for _ in range(8)]).view(32, -1):
            x, act, old, gain, target = (each[rows] for each in data)
            ratio = (torch.distributions.Categorical(logits=actor(x)).log_prob(act) - old).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = policy + 0.5 * (critic(x)[:, 0] - target).square().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimiser.step()


TRAINERS = {"Stable-Baselines3": by_sb3, "TorchRL": by_torchrl, "a loop": by_loop}
OURS = ("arrayferry, numpy", "arrayferry, jax")
ROWS = [
    *(("Stable-Baselines3", x) for x in ("SyncVectorEnv", "envpool", "gymnax", *OURS)),
    *((trainer, x) for trainer in ("TorchRL", "a loop") for x in ("SyncVectorEnv", OURS[0])),
]


def train(trainer: str, name: str, seed: int) -> dict[str, Any]:
    """Train once, and return what it took."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    torch.set_num_threads(1)
    begun = time.perf_counter()
    envs = Counted(envs_of(name))
    try:
        TRAINERS[trainer](envs, seed)
    except DoneError:
        wall, processor = time.perf_counter(), time.process_time()
    reached = sum(envs.returns) >= 100 * GOAL
    return {
        "reached": reached, "steps": envs.steps, "wall": wall - envs.started[0],
        "processor": processor - envs.started[1], "before": envs.started[0] - begun,
    }  # fmt: skip


def main() -> None:
    """Train all in turn, and print the table: medians over seeds."""
    if len(sys.argv) == 4:
        print(json.dumps(train(sys.argv[1], sys.argv[2], int(sys.argv[3]))), flush=True)
        os._exit(0)
    found: dict[Any, list[Any]] = {row: [] for row in ROWS}
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for row in ROWS:
            command = [sys.executable, __file__, *row, str(seed)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[row].append(json.loads(done.stdout.splitlines()[-1]))
    print("| trainer | environments | reached | steps | seconds | processor | before |")
    print("|---|---|---|---|---|---|---|")
    for row, results in found.items():
        cells = [f"{sum(x['reached'] for x in results)}/{len(results)}"]
        cells += [f"{median(x['steps'] for x in results):,.0f}"]
        cells += [f"{median(x[k] for x in results):.1f}" for k in ("wall", "processor", "before")]
        print(f"| {' | '.join((*row, *cells))} |")


if __name__ == "__main__":
    main()
