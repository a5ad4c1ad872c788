"""Rows on environments in JAX that other libraries step, by `translate=True`, against JAX itself. All take one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from row import Check, Row, microseconds
from timing import Block, fastest_block

import arrayferry as af
from arrayferry_envs import make_vec

__all__ = ["translated_rows"]

SECTION = "environments in JAX, translated"
GOALS = {
    ("arrayferry/CartPole-v0", 1_024): {"numpy": 10.0, "torch": 25.0},
    ("gymnax/Breakout-MinAtar", 256): {"numpy": 30.0, "torch": 70.0},
}
"""How many times the time of JAX a step may take."""
NAMES = {"numpy": "NumPy", "torch": "PyTorch"}
GYMNAX = Path(__file__).parent.parent / ".venv-gymnax/bin/python"


def translated_rows() -> list[Row]:
    """Environments in JAX, in other libraries."""
    if not GYMNAX.exists():
        return [Row(SECTION, "a step", (), "not measured: run make downstream first")]
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    done = subprocess.run(
        [GYMNAX, __file__],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags},
    )
    rows = []
    measured = json.loads(done.stdout.splitlines()[-1])
    for ((env_id, count), goals), times in zip(GOALS.items(), measured, strict=True):
        checks = tuple(
            Check(times[xp] / times["jax"], goal, f"x JAX's time in {NAMES[xp]}")
            for xp, goal in goals.items()
        )
        rows.append(Row(SECTION, f"a step of {count:,} {env_id}", checks, "", microseconds(times)))
    return rows


def _steps(env_id: str, count: int) -> dict[str, float]:
    """Time a step in each library, in seconds. Runs where gymnax is installed."""
    blocks, rng = {}, np.random.default_rng(0)
    libraries: Any = "jax", *NAMES
    for xp in libraries:
        envs: Any = make_vec(env_id, count, xp=xp, **({} if xp == "jax" else {"translate": True}))
        envs.reset(seed=0)
        choices = int(envs.single_action_space.n)
        actions = [af.convert(rng.integers(0, choices, count), xp) for _ in range(16)]

        def work(envs: Any = envs, actions: Any = actions) -> None:
            for action in actions:
                jax.block_until_ready(envs.step(action)[0])

        blocks[xp] = Block(lambda: None, work)
    return {xp: took / 16 for xp, took in fastest_block(blocks, 3.0).items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps([_steps(*each) for each in GOALS]) + "\n")
