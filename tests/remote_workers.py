"""Workers that carry environments: of a Dask cluster, and processes that are called over pipes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import sys
import time

import cloudpickle
import dask
import gymnasium as gym
import numpy as np
from clusters import local_cluster
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from arrayferry_gym.distributed import Engine, Host

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

CARTPOLE = functools.partial(gym.make, "CartPole-v1")


class Odd(gym.Env):
    """Episodes of random lengths, nested observations, and infos of all kinds."""

    metadata = {"render_modes": ["rgb_array"], "odd": True}
    render_mode = "rgb_array"
    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (4, 3), np.uint8),
            "parts": spaces.Tuple([spaces.Discrete(7), spaces.Box(-9, 9, (2,), np.float64)]),
        }
    )
    action_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})

    def __init__(self, tag=0):
        self.tag = tag

    def _observation(self):
        rng = self.np_random
        camera = rng.integers(0, 255, (4, 3), np.uint8)
        return {"camera": camera, "parts": (int(rng.integers(7)), rng.uniform(-9, 9, 2))}

    def _info(self):
        info = {"t": self.t}
        draw = self.np_random.random()
        if draw < 0.3:
            info |= {"x": draw, "yes": True, "text": "abc", "deep": {"n": np.float32(draw)}}
        if draw < 0.2:
            info |= {"array": np.arange(3) * self.t, "none": None, "deep": {"list": [1, self.t]}}
        return info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {**self._info(), "options": options}

    def step(self, action):
        self.t += 1
        reward = float(action["a"]) + float(action["b"].sum())
        draw = self.np_random.random()
        return self._observation(), reward, draw < 0.05, draw > 0.97, self._info()

    def render(self):
        return np.full((2, 2, 3), self.t, np.uint8)

    def add(self, number, times=1):
        return self.tag + number * times


class Counting(gym.Env):
    """Counts its steps since its reset, and writes each to a file, one for each environment."""

    observation_space = spaces.Box(0, 1e9, (3,), np.float64)
    action_space = spaces.Discrete(1_000_000)

    def __init__(self, folder, index, length=37):
        self.length = length + index
        self.path = os.path.join(folder, str(index))
        self.index = index

    def _write(self, what):
        with open(self.path, "a") as file:
            file.write(f"{what}\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.draw = 0, self.np_random.random()
        self._write("reset")
        return np.array([self.index, 0, self.draw]), {}

    def step(self, action):
        self.t += 1
        self._write(int(action))
        observation = np.array([self.index, self.t, self.draw])
        return observation, float(action), self.t >= self.length, False, {}


class Failing(gym.Env):
    """Does at an action of 1 what it is made for."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, failure):
        self.failure = failure

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        info = {}
        if action == 1 and self.failure == "raise":
            raise KeyError("broken part")
        if action == 1 and self.failure == "exit":
            sys.exit(3)
        if action == 1 and self.failure == "hang":
            time.sleep(1000)
        if action == 1 and self.failure == "info":
            info = {"generator": (x for x in ())}
        return np.ones(1, np.float32), 1.0, False, False, info


def eventually(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def same(x, y):
    """Compare two values completely: structure, types, dtypes and values."""
    assert type(x) is type(y), (x, y)
    if isinstance(x, dict):
        assert list(x) == list(y)
        for key in x:
            same(x[key], y[key])
    elif isinstance(x, (tuple, list)):
        assert len(x) == len(y)
        for a, b in zip(x, y, strict=True):
            same(a, b)
    elif isinstance(x, np.ndarray):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if x.dtype == object:
            same(list(x), list(y))
        else:
            np.testing.assert_array_equal(x, y)
    else:
        assert x == y or (x != x and y != y)


def compare(envs, sync, steps, seed=5):
    """Take the same steps in both."""
    assert envs.observation_space == sync.observation_space
    assert envs.action_space == sync.action_space
    assert envs.metadata == sync.metadata
    same(envs.reset(seed=seed), sync.reset(seed=seed))
    sync.action_space.seed(seed)
    ends = 0
    for number in range(steps):
        actions = sync.action_space.sample()
        one, other = envs.step(actions), sync.step(actions)
        same(one, other)
        over = other[2] | other[3]
        ends += over.sum()
        if sync.autoreset_mode == AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over, "number": number}
            same(envs.reset(options=dict(options)), sync.reset(options=dict(options)))
        if number == steps // 2:
            seeds = [7, None, *range(2, sync.num_envs)]
            same(envs.reset(seed=seeds, options={}), sync.reset(seed=seeds, options={}))
    assert ends > 10


@contextlib.contextmanager
def cluster(n_workers=2, **options):
    options = {"processes": True, "silence_logs": logging.CRITICAL, **options}
    # after this time a cluster gives up a nanny whose worker is just being started again
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        local_cluster(n_workers, **options) as made,
    ):
        yield made


def actors(client):
    """Return the number of actors on the workers, and of tasks of ours at the scheduler."""
    held = client.run(lambda dask_worker: len(dask_worker.state.actors))
    tasks = client.run_on_scheduler(
        lambda dask_scheduler: [k for k in dask_scheduler.tasks if "arrayferry" in str(k)]
    )
    return sum(held.values()), len(tasks)


class DaskWorkers:
    """The workers of a cluster of two. One that is killed is started again."""

    def __init__(self, client):
        self.client = client
        self.options = {"client": client}

    def pids(self, address):
        """Return the processes of a worker."""
        return [self.client.run(os.getpid, workers=[address])[address]]

    def restored(self):
        """Tell whether both are there. A nanny does not restart one that it believes still starts."""
        nannies = self.client.cluster.workers.values()
        return len(self.client.nthreads()) == 2 and all(
            nanny.process.status.name == "running" for nanny in nannies
        )

    def left(self):
        """Return how much of the environments is left on them."""
        return sum(actors(self.client))


class PipeWorkers:
    """Two workers whose hosts are processes. One that is killed is away until it is restored."""

    def __init__(self):
        self.engine = PipeEngine(2)
        self.options = {"engine": self.engine}

    def pids(self, name):
        """Return the processes of a worker."""
        self.engine.away.add(name)
        return [process.pid for process, _, worker in self.engine.hosts if worker == name]

    def restored(self):
        """Bring back the one that is away."""
        self.engine.away.clear()
        return True

    def left(self):
        """Return how much of the environments is left on them."""
        return len(self.engine.hosts)


def kill(workers, name):
    """Kill the processes of a worker, as the system does when memory runs out."""
    for pid in workers.pids(name):
        os.kill(pid, signal.SIGKILL)


def serve(pipe, name):
    os.environ["NAME_OF_THE_WORKER"] = name
    host = Host()
    while (request := pipe.recv_bytes()) != b"end":
        pipe.send_bytes(host.answer(request))


class PipeEngine(Engine):
    """Hosts in processes of this machine.

    Attributes:
        names: the workers.
        away: those of them that cannot be used now.
        hosts: for each host its process, the pipe to it and its worker.
    """

    def __init__(self, count):
        self.names = [f"worker {number}" for number in range(count)]
        self.away = set()
        self.hosts = []

    def workers(self):
        return [name for name in self.names if name not in self.away]

    def place(self, workers, timeout):
        context = multiprocessing.get_context("fork")
        placed = []
        for name in workers:
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there, name), daemon=True)
            process.start()
            there.close()
            placed.append((process, here, name))
        self.hosts += placed
        return placed

    def call(self, host, request):
        try:
            host[1].send_bytes(request)
        except OSError:
            pass
        return host

    def gather(self, calls, timeout):
        answers, end = [], time.monotonic() + timeout
        for _, pipe, _ in calls:
            try:
                ready = pipe.poll(max(0, end - time.monotonic()))
                answers.append(pipe.recv_bytes() if ready else None)
            except (OSError, EOFError):
                answers.append(None)
        return answers

    def lost(self, host):
        process, pipe, _ = host
        process.join(5 if pipe.closed or pipe.poll() else 0)  # its end is known then
        return not process.is_alive()

    def release(self, host):
        if host in self.hosts:
            self.hosts.remove(host)
            process, pipe, _ = host
            process.kill()
            process.join()
            pipe.close()

    def close(self):
        for host in list(self.hosts):
            self.release(host)


class ThreadEngine(Engine):
    """Hosts in threads of this process. Calls begin with `start` or `gather`, as on a cluster.

    Attributes:
        gone: the hosts that were lost.
    """

    def __init__(self, count):
        self.names = [f"worker {number}" for number in range(count)]
        self.gone = []

    def workers(self):
        return self.names

    def place(self, workers, timeout):
        return [(Host(), concurrent.futures.ThreadPoolExecutor(1)) for _ in workers]

    def call(self, host, request):
        return {"host": host, "request": request}

    def start(self, calls):
        for call in calls:
            if "answer" not in call:
                host, pool = call["host"]
                call["answer"] = pool.submit(host.answer, call["request"])

    def gather(self, calls, timeout):
        self.start(calls)
        return [
            None if self.lost(call["host"]) else call["answer"].result(timeout) for call in calls
        ]

    def lost(self, host):
        return host in self.gone

    def release(self, host):
        host[1].shutdown(wait=False)

    def close(self):
        pass
