"""Trajectories from a cluster: beside loops by hand, and TorchRL's collector.

    python benchmarks/cluster.py

Times are the shortest of many interleaved repeats. Two processors at least are needed, as the workers are two.
"""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from row import Check, Row, microseconds
from timing import Block, fastest_block

from arrayferry_cluster import Collector
from arrayferry_envs import CartPole

RESULTS = Path(__file__).parent / "results"


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


def table(params: Any, observation: Any, rng: Any) -> tuple[Any, Any]:
    """A policy for ordinary environments."""
    return (observation[:, 0] > params) * 1, None


def loop(makers: list[Callable[[], gym.Env]], params: Any, num_steps: int) -> Any:
    """Collect in a task, as one writes it by hand. The environments stay in the worker."""
    from distributed.worker import get_worker

    worker = get_worker()
    state = getattr(worker, "envs_by_hand", None)
    if state is None or state[0] != len(makers):
        envs = SyncVectorEnv(makers, autoreset_mode="SameStep")
        state = worker.envs_by_hand = [len(makers), envs, envs.reset(seed=0)[0]]
    _, envs, observation = state
    parts: list[list[Any]] = [[] for _ in range(6)]
    for _ in range(num_steps):
        action, _ = table(params, observation, None)
        after, reward, terminated, truncated, infos = envs.step(action)
        final = after
        if "final_obs" in infos:
            final = after.copy()
            for row in np.flatnonzero(terminated | truncated):
                final[row] = infos["final_obs"][row]
        step = observation, action, reward, terminated, truncated, final
        for part, x in zip(parts, step, strict=True):
            part.append(x)
        observation = after
    state[2] = observation
    return [np.stack(part) for part in parts]


def torchrl_collector() -> Any:
    """TorchRL's collector with the same environments, policy and number of steps."""
    import torch
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import MultiSyncCollector
    from torchrl.envs import GymEnv, SerialEnv

    def policy(observation: Any) -> Any:
        return torch.nn.functional.one_hot((observation[..., 0] > 0).long(), 2)

    made = functools.partial(SerialEnv, 8, functools.partial(GymEnv, "CartPole-v1"))
    module = TensorDictModule(policy, in_keys=["observation"], out_keys=["action"])
    return MultiSyncCollector([made] * 2, module, frames_per_batch=16 * 128, total_frames=-1)


def cartpoles_row(client: Any, seconds: float) -> Row:
    """16 CartPoles, beside tasks by hand and TorchRL."""
    names = list(client.nthreads())
    makers = [functools.partial(gym.make, "CartPole-v1")] * 16
    collector = Collector(makers, table, 0.0, num_steps=128, client=client, seed=0)
    other = torchrl_collector()

    def by_hand() -> Any:
        tasks = [
            client.submit(loop, makers[:8], 0.0, 128, workers=[name], pure=False) for name in names
        ]
        parts = client.gather(tasks)
        return [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]

    ways = {"by hand": by_hand, "TorchRL": iter(other).__next__, "Collector": collector.__next__}
    times = fastest_block({name: Block(lambda: None, way) for name, way in ways.items()}, seconds)
    collector.close(), other.shutdown()
    del other, ways
    gc.collect()  # what TorchRL leaves hangs when Python ends
    return Row(
        "Trajectory from a cluster",
        "128 steps of 16 CartPoles, two workers",
        (
            Check(times["Collector"] / times["by hand"], 1.1, "x tasks by hand"),
            Check(times["Collector"] / times["TorchRL"], 0.2, "x TorchRL's collector"),
        ),
        ", ".join(f"{name} {1e3 * took:.1f} ms" for name, took in times.items()),
        microseconds(times),
    )


def slow_row(busy: bool, client: Any, seconds: float) -> Row:
    """16 environments of 5 ms, beside two processes with pipes."""
    makers = [functools.partial(Taking, 0.005, busy)] * 16
    pipes = Pipes(makers)
    collector = Collector(makers, table, 0.0, num_steps=16, client=client, seed=0)
    actions = np.zeros(16, np.int64)

    def piped() -> None:
        for _ in range(16):
            pipes.step(actions)

    ways = {"pipes": piped, "Collector": collector.__next__}
    times = fastest_block({name: Block(lambda: None, way) for name, way in ways.items()}, seconds)
    collector.close(), pipes.close()
    return Row(
        "Trajectory from a cluster",
        f"16 steps of 16 environments that {'compute' if busy else 'sleep'} for 5 ms, two workers",
        (Check(times["Collector"] / times["pipes"], 1.1, "x two processes with pipes"),),
        ", ".join(f"{name} {1e3 * took / 16:.2f} ms a step" for name, took in times.items()),
        microseconds(times),
    )


def deciding(params: Any, observation: Any, key: Any) -> tuple[Any, Any]:
    """A policy in JAX."""
    import jax

    for weights in params[:-1]:
        observation = jax.nn.tanh(observation @ weights)
    return jax.random.categorical(key, observation @ params[-1]), None


def pin(core: int) -> None:
    """Pin this process to a core, with all threads that it has."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def functional_row(client: Any, seconds: float) -> Row:
    """Rollouts on two workers, beside those of one worker, each pinned to one core."""
    for core, name in zip(sorted(os.sched_getaffinity(0)), client.nthreads(), strict=False):
        client.run(pin, core, workers=[name])
    rng = np.random.default_rng(0)
    shapes = [(4, 64), (64, 64), (64, 2)]
    params = [rng.normal(size=shape).astype(np.float32) / 8 for shape in shapes]
    one, *_ = client.nthreads()
    options: dict[str, Any] = {
        "num_steps": 256, "num_envs": 4_096, "client": client, "seed": 0, "groups": 2, "final_observation": False,
    }  # fmt: skip
    ways = {
        "one": Collector(CartPole, deciding, params, workers=[one], **options),
        "two": Collector(CartPole, deciding, params, **options),
    }
    for collector in ways.values():
        next(collector), next(collector)
    blocks = {
        name: Block(lambda: None, functools.partial(next, collector))
        for name, collector in ways.items()
    }
    times = fastest_block(blocks, seconds)
    for collector in ways.values():
        collector.close()
    return Row(
        "Trajectory from a cluster",
        "4,096 functional CartPoles, 256 steps",
        (Check(times["two"] / times["one"], 1 / 1.4, "x one worker"),),
        ", ".join(f"{name} {1e3 * took:.0f} ms" for name, took in times.items()),
        microseconds(times),
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
        rows = [cartpoles_row(client, seconds)]
        rows += [slow_row(busy, client, seconds) for busy in (True, False)]
        return [*rows, functional_row(client, seconds)]  # last, as it pins the workers to cores


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
