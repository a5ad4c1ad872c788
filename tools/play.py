"""Write the files of the page to play environments: they, agents that were trained here, and ONNX Runtime for browsers.

usage: python tools/play.py FOLDER [DIST]     DIST is the folder `dist` of the npm package onnxruntime-web
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from arrayferry_classic import FrozenLake, Taxi

import arrayferry as af
from arrayferry_envs import CartPole, Pendulum, evaluate, export

RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
CANDIDATES = 20


def balance(params: Any, observation: Any, rng: Any) -> Any:
    """Push to the side to which a weighted sum of the observation points."""
    xp = af.namespace_of(observation)
    return xp.astype(observation @ params > 0, xp.int64), None


def swing(params: Any, observation: Any, rng: Any) -> Any:
    """Swing a pendulum up by its energy, and hold it there."""
    xp = af.namespace_of(observation)
    cosine, sine, speed = observation[:, 0], observation[:, 1], observation[:, 2]
    missing = 5.0 - speed * speed / 6 - 5.0 * cosine
    pumped = xp.where(speed * missing >= 0, 2.0 + 0 * speed, -2.0 + 0 * speed)
    held = -params[0] * sine - params[1] * speed
    return xp.where(cosine > params[2], held, pumped)[:, None], None


def look_up(params: Any, observation: Any, rng: Any) -> Any:
    """Take the best action of each state."""
    xp = af.namespace_of(observation)
    return xp.take(params, observation, axis=0), None


def search(env: Any, policy: Any, center: Any, spread: Any) -> Any:
    """Return the best of some random parameters."""
    rng = np.random.default_rng(0)
    best = -np.inf, center
    for _ in range(CANDIDATES):
        params = (center + spread * rng.normal(size=len(center))).astype(np.float32)
        scored = evaluate(
            env, policy, policy_params=params, episodes=8, num_envs=8, policy_xp="numpy"
        )
        score = float(np.mean(scored.returns))
        best = max(best, (score, params), key=lambda pair: pair[0])
    print(f"{env!r}: {best[0]:.0f}")
    return best[1]


def best_actions(env: Any, discount: float = 0.99) -> Any:
    """Return the best action of each state, by value iteration."""
    table = env.default_params
    values = np.zeros(len(table.next_state))
    for _ in range(2_000):
        after = table.reward + discount * np.where(table.terminated, 0, values[table.next_state])
        of_actions = (table.probability * after).sum(-1)
        values = of_actions.max(-1)
    return of_actions.argmax(-1)


def main(folder: Path, runtime: Path | None) -> None:
    """Write all files."""
    zeros, ones = np.zeros(4), np.ones(4)
    agents = {
        "cart_pole": (CartPole(), balance, search(CartPole(), balance, zeros, ones)),
        "pendulum": (
            Pendulum(),
            swing,
            search(Pendulum(), swing, np.array([10.0, 2.0, 0.85]), np.array([4, 1, 0.05])),
        ),
        "frozen_lake": (FrozenLake(), look_up, best_actions(FrozenLake())),
        "taxi": (Taxi(), look_up, best_actions(Taxi())),
    }
    for name, (env, policy, params) in agents.items():
        for file, options in (
            (name, {}),
            (f"{name}_agent", {"policy": policy, "policy_params": params}),
        ):
            metadata = export(env, folder / f"{file}.onnx", **options)
            (folder / f"{file}.json").write_text(json.dumps(metadata))
    for name in RUNTIME if runtime else ():
        shutil.copy(runtime / name, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
