"""Environments on a cluster: beside two processes with pipes, and beside Gymnasium's vector environments.

    python benchmarks/cluster.py

Times are the shortest of many interleaved repeats. Two processors at least are needed, as the first comparison
keeps two workers busy.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from row import Check, Row, microseconds
from timing import Block, fastest_block

from arrayferry_gym.distributed import DistributedVectorEnv

RESULTS = Path(__file__).parent / "results"
COUNTS = (1, 4, 16, 64)


class Taking(gym.Env):
    """An environment whose steps take a given time.

    Args:
        seconds: the time.
        busy: whether it computes during that time, or sleeps.
    """

    observation_space = spaces.Box(-1, 1, (8,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0, busy: bool = True) -> None:
        self.seconds, self.busy = seconds, busy

    def reset(  # noqa: D102
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(8, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: D102
        end = time.perf_counter() + self.seconds
        if not self.busy:
            time.sleep(self.seconds)
        while time.perf_counter() < end:
            pass
        return np.zeros(8, np.float32), 1.0, False, False, {}


def serve(pipe: Any, makers: list[Callable[[], gym.Env]]) -> None:
    """Step environments in a process, as one writes it by hand."""
    envs = [make() for make in makers]
    for env in envs:
        env.reset()
    while (actions := pipe.recv()) is not None:
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        observations, rewards, terminations, truncations, _ = zip(*steps, strict=True)
        pipe.send((np.stack(observations), *map(np.array, (rewards, terminations, truncations))))


class Pipes:
    """Two processes with pipes."""

    def __init__(self, makers: list[Callable[[], gym.Env]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.half = len(makers) // 2
        self.pipes, self.processes = [], []
        for part in (makers[: self.half], makers[self.half :]):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there, part), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all environments."""
        self.pipes[0].send(actions[: self.half])
        self.pipes[1].send(actions[self.half :])
        parts = [pipe.recv() for pipe in self.pipes]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def step_block(envs: Any, count: int) -> Block:
    actions = np.zeros(count, np.int64)
    return Block(lambda: None, lambda: envs.step(actions))


def pipes_row(busy: bool, client: Any, seconds: float) -> Row:
    """16 environments of 5 ms on two workers, beside two processes with pipes."""
    makers = [functools.partial(Taking, 0.005, busy)] * 16
    pipes = Pipes(makers)
    envs = DistributedVectorEnv(makers, client=client)
    envs.reset()
    blocks = {"pipes": step_block(pipes, 16), "cluster": step_block(envs, 16)}
    times = fastest_block(blocks, seconds)
    envs.close(), pipes.close()
    ratio = times["cluster"] / times["pipes"]
    kind = "compute" if busy else "sleep"
    return Row(
        "Environments on a cluster",
        f"16 environments that {kind} for 5 ms, two workers",
        (Check(ratio, 1.1, "x two processes with pipes"),),
        ", ".join(f"{name} {1e3 * took:.2f} ms" for name, took in times.items()),
        microseconds(times),
    )


def overhead_row(count: int, client: Any, seconds: float) -> Row:
    """A step of cheap environments, beside Gymnasium's vector environments."""
    makers = [Taking] * count
    ways = {
        "sync": SyncVectorEnv(makers),
        "async": AsyncVectorEnv(makers, context="spawn"),
        "cluster": DistributedVectorEnv(makers, client=client),
    }
    for envs in ways.values():
        envs.reset()
    times = fastest_block({name: step_block(envs, count) for name, envs in ways.items()}, seconds)
    for envs in ways.values():
        envs.close()
    return Row(
        "Environments on a cluster",
        f"a step of {count} environments that do nothing",
        note=", ".join(f"{name} {1e3 * took:.2f} ms" for name, took in times.items()),
        numbers=microseconds(times),
    )


def distributed_rows(seconds: float = 10.0) -> list[Row]:
    """All rows."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        rows = [pipes_row(busy, client, seconds) for busy in (True, False)]
        return rows + [overhead_row(count, client, seconds / 2) for count in COUNTS]


def main() -> None:
    """Measure, print, and save."""
    rows = distributed_rows(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
    for row in rows:
        print(f"{row.what:58} {row.figure:70} {row.goal:10} {row.verdict}")
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps([row.as_json() for row in rows], indent=1)
    (RESULTS / "cluster.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
