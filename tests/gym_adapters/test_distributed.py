"""Environments on a cluster: as `SyncVectorEnv` has them, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import contextmanager

import cloudpickle
import dask
import dask.array as da
import distributed
import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import arrayferry as af
from arrayferry_gym.distributed import (
    DaskEngine,
    DistributedVectorEnv,
    Engine,
    EnvFailedError,
    EnvTimeoutError,
    Host,
    NotReadyError,
    NoWorkerError,
    SchedulerLostError,
    SpaceMismatchError,
    WorkerSetupError,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

CARTPOLE = functools.partial(gym.make, "CartPole-v1")
MODES = list(AutoresetMode)


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


@contextmanager
def cluster(n_workers=2, **options):
    settings = {
        "distributed.worker.daemon": True,
        # after this time a cluster gives up a nanny whose worker is just being started again
        "distributed.deploy.lost-worker-timeout": "1h",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
            **options,
        ) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client():
    with cluster() as made, distributed.Client(made) as client:
        yield client


@pytest.fixture
def mortal():
    """A client of a cluster whose workers may be killed."""
    with cluster() as made, distributed.Client(made) as client:
        yield client


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [CARTPOLE, Odd], ids=["cartpole", "odd"])
def test_steps_are_those_of_sync_vector_env(client, mode, make):
    steps = 1000 if make is CARTPOLE else 400
    sync = SyncVectorEnv([make] * 5, autoreset_mode=mode)
    envs = DistributedVectorEnv([make] * 5, client=client, autoreset_mode=mode)
    compare(envs, sync, steps)
    envs.close()


def test_more_groups_than_workers_and_different_bounds(client):
    fns = [
        lambda i=i: gym.wrappers.TransformObservation(
            CARTPOLE(), lambda x: x, spaces.Box(-i - 9, i + 9, (4,), np.float32)
        )
        for i in range(5)
    ]
    sync = SyncVectorEnv(fns, observation_mode="different")
    envs = DistributedVectorEnv(fns, client=client, groups=3, observation_mode="different")
    compare(envs, sync, 150)
    envs.close()
    with pytest.raises(SpaceMismatchError, match="environment 1 has the spaces"):
        DistributedVectorEnv(fns, client=client)


def test_spaces_that_cannot_be_stacked(client):
    class Talking(gym.Env):
        observation_space = spaces.Text(5)
        action_space = spaces.Text(5)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return "start", {}

        def step(self, action):
            return action[::-1], 1.0, bool(self.np_random.random() < 0.2), False, {}

    sync = SyncVectorEnv([Talking] * 3)
    envs = DistributedVectorEnv([Talking] * 3, client=client)
    compare(envs, sync, 80)
    envs.close()
    with pytest.raises(af.OptionError, match="are no arrays"):
        DistributedVectorEnv([Talking], client=client, to="dask")


def test_call_attributes_and_images(client):
    sync = SyncVectorEnv([functools.partial(Odd, i) for i in range(5)])
    envs = DistributedVectorEnv([functools.partial(Odd, i) for i in range(5)], client=client)
    for env in (sync, envs):
        env.reset(seed=1)
        env.step(env.action_space.sample())
    same(envs.call("add", 2, times=3), sync.call("add", 2, times=3))
    same(envs.get_attr("tag"), sync.get_attr("tag"))
    same(envs.np_random_seed, sync.np_random_seed)
    same(envs.render(), sync.render())
    assert envs.render_mode == "rgb_array"
    for values in (7, [1, 2, 3, 4, 5]):
        envs.set_attr("tag", values)
        sync.set_attr("tag", values)
        same(envs.get_attr("tag"), sync.get_attr("tag"))
    with pytest.raises(af.OptionError, match="2 values were passed to 5"):
        envs.set_attr("tag", [1, 2])
    with pytest.raises(EnvFailedError, match="environment 0 raised AttributeError") as info:
        envs.get_attr("nothing")
    assert isinstance(info.value.__cause__, AttributeError)
    envs.step(envs.action_space.sample())  # which does no harm
    envs.close()


def test_mistakes(client):
    for wrong in ([], CARTPOLE, "CartPole-v1", [CARTPOLE, 3]):
        with pytest.raises(af.OptionError, match="env_fns"):
            DistributedVectorEnv(wrong, client=client)
    for options in (
        {"groups": 0},
        {"timeout": -1},
        {"autoreset_mode": "never"},
        {"observation_mode": "odd"},
        {"client": 3},
        {"client": client, "engine": DaskEngine(client)},
    ):
        with pytest.raises(af.OptionError):
            DistributedVectorEnv([CARTPOLE], **{"client": client, **options})
    with pytest.raises(af.UnknownBackendError):
        DistributedVectorEnv([CARTPOLE], client=client, to="nothing")
    lock = threading.Lock()
    with pytest.raises(af.OptionError, match="cannot be pickled"):
        DistributedVectorEnv([lambda: lock], client=client)
    envs = DistributedVectorEnv([CARTPOLE] * 3, client=client)
    with pytest.raises(NotReadyError, match="not been reset"):
        envs.step([0, 0, 0])
    envs.reset(seed=1)
    for actions in (np.zeros(2, int), [0, 1, 0, 1], 1, torch.zeros(4)):
        with pytest.raises(af.ConversionError, match="3 environments need one action each"):
            envs.step(actions)
    for mask in (np.ones(3), np.zeros(3, bool), np.ones(2, bool), "all"):
        with pytest.raises(af.OptionError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(af.OptionError, match="2 seeds"):
        envs.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(envs)
    envs.step([0, 1, 0])
    envs.close()
    envs.close()
    for use in (envs.reset, envs.render, lambda: envs.step([0, 0, 0])):
        with pytest.raises(NotReadyError, match="closed"):
            use()
    disabled = DistributedVectorEnv(
        [functools.partial(gym.make, "CartPole-v1", max_episode_steps=1)] * 2,
        client=client,
        autoreset_mode="Disabled",
    )
    disabled.reset()
    disabled.step([0, 0])
    with pytest.raises(NotReadyError, match="0, 1 have ended"):
        disabled.step([0, 0])
    disabled.close()


def test_clients_that_are_refused(client):
    async def use():
        address = client.scheduler.address
        async with distributed.Client(address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(af.OptionError, match="asynchronous"):
                DistributedVectorEnv([CARTPOLE], client=other)

    asyncio.run(use())
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(af.OptionError, match="it is closed"):
        DistributedVectorEnv([CARTPOLE], client=closed)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(SchedulerLostError, match="no scheduler at"),
    ):
        DistributedVectorEnv([CARTPOLE], client="tcp://127.0.0.1:1")


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_results_and_actions_of_other_libraries(client, to):
    sync = SyncVectorEnv([CARTPOLE] * 4)
    envs = DistributedVectorEnv([CARTPOLE] * 4, client=client, to=to)
    array = {"torch": torch.Tensor, "jax": jax.Array}[to]
    observations, _ = envs.reset(seed=2)
    assert isinstance(observations, array)
    np.testing.assert_array_equal(np.asarray(observations), sync.reset(seed=2)[0])
    make = {"torch": torch.tensor, "jax": jax.numpy.asarray}[to]
    for _ in range(30):
        results = envs.step(make([1, 0, 1, 1]))
        for x, y in zip(results[:4], sync.step(np.array([1, 0, 1, 1])), strict=False):
            assert isinstance(x, array)
            np.testing.assert_allclose(np.asarray(x), y)
    envs.close()


@pytest.mark.parametrize("make", [CARTPOLE, Odd], ids=["cartpole", "odd"])
def test_observations_stay_on_the_workers(client, make):
    sync = SyncVectorEnv([make] * 5, autoreset_mode="SameStep")
    envs = DistributedVectorEnv([make] * 5, client=client, to="dask", autoreset_mode="SameStep")

    def check(lazy, expected):
        if isinstance(expected, dict):
            for key in expected:
                check(lazy[key], expected[key])
        elif isinstance(expected, tuple):
            for x, y in zip(lazy, expected, strict=True):
                check(x, y)
        else:
            assert isinstance(lazy, da.Array)
            assert len(lazy.chunks[0]) == 2
            assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(lazy.compute(), expected)

    lazy, _ = envs.reset(seed=2)
    check(lazy, sync.reset(seed=2)[0])
    sync.action_space.seed(1)
    kept = [(lazy, sync.reset(seed=2)[0])]
    for _ in range(30):
        actions = sync.action_space.sample()
        one, other = envs.step(actions), sync.step(actions)
        same(one[1:], other[1:])
        kept.append((one[0], other[0]))
    for lazy, expected in kept[::7]:
        check(lazy, expected)
    leaf = kept[-1][0]["camera"] if make is Odd else kept[-1][0]
    where = client.who_has(distributed.futures_of(leaf))
    assert len({worker for (worker,) in where.values()}) == 2  # each chunk where it was made
    del lazy, leaf, kept, one, where
    envs.close()
    gc.collect()
    eventually(
        lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    )


def eventually(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid):
    """Tell whether a process runs, which one does not that has ended and that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def actors(client):
    """Return the number of actors on the workers, and of tasks of ours at the scheduler."""
    held = client.run(lambda dask_worker: len(dask_worker.state.actors))
    tasks = client.run_on_scheduler(
        lambda dask_scheduler: [k for k in dask_scheduler.tasks if "arrayferry" in str(k)]
    )
    return sum(held.values()), len(tasks)


def test_two_on_one_client_and_closing_leaves_nothing(client, tmp_path):
    class Closing(Counting):
        def close(self):
            self._write("close")

    eventually(lambda: actors(client) == (0, 0))
    one = DistributedVectorEnv([CARTPOLE] * 3, client=client)
    other = DistributedVectorEnv(
        [functools.partial(Closing, str(tmp_path), i) for i in range(4)], client=client
    )
    assert actors(client) == (4, 4)
    one.reset(seed=1), other.reset(seed=1)
    for _ in range(5):
        one.step([0, 1, 0])
        assert other.step(np.arange(4))[1].tolist() == [0, 1, 2, 3]
    one.close()
    other.step(np.arange(4))
    other.close()
    assert all((tmp_path / str(i)).read_text().endswith("close\n") for i in range(4))
    eventually(lambda: actors(client) == (0, 0))
    forgotten = DistributedVectorEnv([CARTPOLE] * 3, client=client)
    forgotten.reset()
    del forgotten
    gc.collect()
    eventually(lambda: actors(client) == (0, 0))
    assert client.status == "running"


def test_an_environment_that_raises(client):
    envs = DistributedVectorEnv([lambda: Failing("raise")] * 4, client=client)
    envs.reset()
    with pytest.raises(EnvFailedError, match=r"environment 2 raised KeyError.*broken part") as info:
        envs.step([0, 0, 1, 0])
    error = info.value
    assert (error.indices, error.original) == ((2,), "KeyError")
    assert error.worker in client.nthreads()
    assert isinstance(error.__cause__, KeyError)
    assert "in step" in "".join(error.__notes__)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(NotReadyError, match="Call reset"):
        envs.step([0] * 4)
    envs.reset()
    assert envs.step([0] * 4)[1].tolist() == [1] * 4
    envs.close()


@pytest.mark.parametrize(
    ("failure", "named"), [("exit", "SystemExit"), ("info", "TypeError: cannot pickle")]
)
def test_other_failures_do_not_end_the_worker(client, failure, named):
    before = client.nthreads()
    envs = DistributedVectorEnv([lambda: Failing(failure)] * 4, client=client)
    envs.reset()
    with pytest.raises(EnvFailedError, match=f"environment 1 raised {named}") as info:
        envs.step([0, 1, 0, 0])
    assert info.value.indices == (1,)
    envs.reset()
    envs.step([0] * 4)
    envs.close()
    assert client.nthreads() == before


def test_constructors_that_raise(client):
    def make():
        raise ValueError("no such level")

    with pytest.raises(EnvFailedError, match=r"environment 1 raised ValueError: no such level"):
        DistributedVectorEnv([CARTPOLE, make], client=client)
    eventually(lambda: actors(client) == (0, 0))


def test_what_workers_cannot_import(client, tmp_path, monkeypatch):
    (tmp_path / "only_here_env.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("only_here_env")
    began = time.monotonic()
    with pytest.raises(WorkerSetupError, match="cannot import only_here_env") as info:
        DistributedVectorEnv([CARTPOLE] * 3 + [module.make], client=client)
    assert time.monotonic() - began < 60  # it does not wait until the time is over
    assert (info.value.module, info.value.indices) == ("only_here_env", (3,))
    assert info.value.worker in client.nthreads()
    eventually(lambda: actors(client) == (0, 0))
    name = "arrayferry_gym.distributed._seat"

    def hide():
        saved = sys.modules.pop(name, None)
        sys.modules[name] = None
        sys.modules["saved"] = saved

    def show():
        sys.modules[name] = sys.modules.pop("saved")

    client.run(hide)
    try:
        with pytest.raises(WorkerSetupError, match=f"cannot import {name}"):
            DistributedVectorEnv([CARTPOLE], client=client)
    finally:
        client.run(show)
    eventually(lambda: actors(client) == (0, 0))


def kill(client, address):
    """Kill the process of a worker, as the system does when memory runs out."""
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


def restored(client):
    """Tell whether both workers are there. A nanny does not restart one that it believes still starts."""
    nannies = client.cluster.workers.values()
    return len(client.nthreads()) == 2 and all(
        nanny.process.status.name == "running" for nanny in nannies
    )


def homes(envs):
    """Return the number of environments on each worker, as the workers see it."""
    return Counter(envs.call("home"))


class Homely(Counting):
    def home(self):
        return distributed.get_worker().address


@pytest.mark.parametrize(("mode", "deaths"), [("NextStep", 10), ("SameStep", 3), ("Disabled", 3)])
def test_workers_killed_again_and_again(mortal, tmp_path, mode, deaths):
    count = 8
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(count)],
        client=mortal,
        autoreset_mode=mode,
    )
    observations, _ = envs.reset(seed=3)
    assert sorted(homes(envs).values()) == [4, 4]
    reports, expected = Counter(), Counter()
    answered = [[] for _ in range(count)]
    t, ended = np.zeros(count, int), np.zeros(count, bool)
    rng = np.random.default_rng(4)
    for number in range(100 * deaths):
        if number % 100 == 50:
            eventually(lambda: restored(mortal))
            where = envs.call("home")
            address = sorted(set(where))[rng.integers(len(set(where)))]
            expected.update(index for index, home in enumerate(where) if home == address)
            pid = mortal.run(os.getpid, workers=[address])[address]
            if number % 200 == 50:
                os.kill(pid, signal.SIGKILL)
            else:  # in the middle of a step
                killer = threading.Timer(0.002, os.kill, (pid, signal.SIGKILL))
                killer.start()
        before = observations
        results = envs.step(np.full(count, number))
        if number % 200 == 150:
            killer.join()
        observations, rewards, terminations, truncations, infos = results
        lost = infos.get("worker_lost", np.zeros(count, bool))
        reports.update(np.flatnonzero(lost).tolist())
        for i in range(count):
            if lost[i]:
                assert (rewards[i], terminations[i], truncations[i]) == (0, False, True)
                last = infos["final_obs"][i] if mode == "SameStep" else observations[i]
                np.testing.assert_array_equal(last, before[i])
                t[i] = 0
            elif mode == "NextStep" and ended[i]:
                assert (rewards[i], observations[i][1], truncations[i]) == (0, 0, False)
                t[i] = 0
            else:  # no step is lost, none is doubled
                t[i] += 1
                answered[i].append(str(number))
                assert (rewards[i], truncations[i]) == (number, False)
                assert terminations[i] == (t[i] >= 37 + i)
                final = mode == "SameStep" and terminations[i]
                shown = infos["final_obs"][i] if final else observations[i]
                assert shown.tolist() == [i, t[i], shown[2]]
                if final:
                    t[i] = 0
        ended = terminations | truncations
        if mode == "Disabled" and ended.any():
            observations, infos = envs.reset(options={"reset_mask": ended})
            lost = infos.get("worker_lost", np.zeros(count, bool))
            reports.update(np.flatnonzero(lost).tolist())
            t[ended] = 0
    assert reports == expected
    for i in range(count):  # the files of the environments tell the same
        written = [line for line in (tmp_path / str(i)).read_text().split() if line != "reset"]
        assert len(written) == len(set(written))
        assert [line for line in written if line in set(answered[i])] == answered[i]
        assert len(written) - len(answered[i]) <= expected[i]
    eventually(lambda: restored(mortal))

    def balanced():
        nonlocal ended
        for _ in range(50):
            if mode == "Disabled" and ended.any():
                envs.reset(options={"reset_mask": ended})
            *_, terminations, truncations, _ = envs.step(np.zeros(count, int))
            ended = terminations | truncations
        return sorted(homes(envs).values()) == [4, 4]

    eventually(balanced)
    envs.close()
    eventually(lambda: actors(mortal) == (0, 0))


def test_losses_that_are_noticed_in_calls_and_resets(mortal, tmp_path):
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(6)], client=mortal
    )
    envs.reset(seed=3)
    envs.set_attr("length", [100, 101, 102, 103, 104, 105])
    observations, *_ = envs.step(np.arange(6))
    where = envs.call("home")
    kill(mortal, where[0])
    assert set(envs.call("home")) == {where[5]}  # all are asked again on the other worker
    assert envs.get_attr("length") == (100, 101, 102, 103, 104, 105)
    for expected in (True, False):
        results = envs.step(np.arange(6))
        lost = [home == where[0] for home in where]
        if expected:
            assert results[-1]["worker_lost"].tolist() == results[3].tolist() == lost
            assert (results[0][lost] == observations[lost]).all()
        else:
            assert "worker_lost" not in results[-1]
            assert results[0][lost][:, 1].tolist() == [0] * sum(lost)
            assert results[0][:, 1].max() == 3
    eventually(lambda: restored(mortal))

    def balanced():
        envs.reset(seed=4)
        return sorted(homes(envs).values()) == [3, 3]

    eventually(balanced)
    kill(mortal, envs.call("home")[2])
    first, infos = envs.reset(seed=5)
    assert infos["worker_lost"].sum() == 3
    second, infos = envs.reset(seed=5)
    assert infos == {}
    np.testing.assert_array_equal(first, second)  # the seeds are those of the reset
    assert not envs.step(np.arange(6))[3].any()
    envs.close()


def test_observations_on_a_worker_that_dies(mortal, tmp_path):
    fns = [functools.partial(Homely, str(tmp_path), i) for i in range(6)]
    envs = DistributedVectorEnv(fns, client=mortal, to="dask", groups=4)
    envs.reset(seed=3)
    for _ in range(3):
        lazy, *_ = envs.step(np.zeros(6, int))
    np.testing.assert_array_equal(lazy.compute()[:, :2], [[i, 3] for i in range(6)])
    kill(mortal, envs.call("home")[0])
    for number in (4, 0, 1):
        lazy, _, _, cut, infos = envs.step(np.zeros(6, int))
        if number == 4:
            lost = cut
            assert (infos["worker_lost"] == lost).all()
            assert 0 < lost.sum() < 6
            number = 0
        x = lazy.compute()
        assert x[:, 0].tolist() == list(range(6))
        assert (x[lost, 1] == number).all()
    assert (x[~lost, 1] == 6).all()
    eventually(lambda: restored(mortal))

    def balanced():
        envs.reset()
        return sorted(homes(envs).values()) == [3, 3]

    eventually(balanced)
    envs.close()


@pytest.mark.parametrize("groups", [None, 4])
def test_an_environment_that_hangs(groups):
    with cluster() as made, distributed.Client(made) as client:
        fns = [lambda: Failing("hang")] * 4
        envs = DistributedVectorEnv(fns, client=client, timeout=3, groups=groups)
        other = DistributedVectorEnv([CARTPOLE] * 2, client=client)
        envs.reset()
        began = time.monotonic()
        with pytest.raises(
            EnvTimeoutError, match="environment 1 did not answer within 3 s"
        ) as info:
            envs.step([0, 1, 0, 0])
        assert 3 <= time.monotonic() - began < 100  # it hangs for much longer
        assert isinstance(info.value, TimeoutError)
        assert info.value.indices == (1,)
        assert info.value.worker in client.nthreads()
        with pytest.raises(NotReadyError, match="Call reset"):
            envs.step([0] * 4)
        other.reset(), other.step([0, 1])  # others on that worker go on
        _, infos = envs.reset()
        assert infos == {}
        assert envs.step([0] * 4)[1].tolist() == [1] * 4
        with pytest.raises(EnvTimeoutError):
            envs.step([0, 0, 0, 1])
        began = time.monotonic()
        envs.close(), other.close()
        assert time.monotonic() - began < 100
        eventually(lambda: actors(client)[1] == 0)


def test_the_scheduler_is_gone():
    with cluster() as made:
        client = distributed.Client(made)
        envs = DistributedVectorEnv([CARTPOLE] * 4, client=client, timeout=1000)
        envs.reset()
        made.close()
        began = time.monotonic()
        for use in (lambda: envs.step([0] * 4), envs.reset):
            with pytest.raises(SchedulerLostError) as info:
                use()
            assert isinstance(info.value, ConnectionError)
        envs.close()
        assert time.monotonic() - began < 100
        client.close()


def test_no_worker_is_left():
    with cluster(1) as made, distributed.Client(made) as client:
        envs = DistributedVectorEnv([CARTPOLE] * 4, client=client, timeout=4)
        envs.reset()
        pids = list(client.run(os.getpid).values())
        made.scale(0)  # the scheduler forgets a worker before its process has ended
        eventually(lambda: not client.nthreads() and not any(map(alive, pids)))
        with pytest.raises(NoWorkerError, match="none came within 4 s") as info:
            envs.step([0] * 4)
        assert info.value.indices == (0, 1, 2, 3)
        made.scale(1)
        eventually(lambda: client.nthreads())
        envs.reset()
        envs.step([0] * 4)
        envs.close()


def serve(pipe):
    host = Host()
    while (request := pipe.recv_bytes()) != b"end":
        pipe.send_bytes(host.answer(request))


class PipeEngine(Engine):
    """Hosts in processes of this machine."""

    def __init__(self, count):
        self.names = [f"slot {number}" for number in range(count)]
        self.hosts = []

    def workers(self):
        return self.names

    def place(self, workers, timeout):
        context = multiprocessing.get_context("fork")
        placed = []
        for _ in workers:
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there,), daemon=True)
            process.start()
            there.close()
            placed.append((process, here))
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
        for _, pipe in calls:
            try:
                ready = pipe.poll(max(0, end - time.monotonic()))
                answers.append(pipe.recv_bytes() if ready else None)
            except (OSError, EOFError):
                answers.append(None)
        return answers

    def lost(self, host):
        host[0].join(5 if host[1].closed or host[1].poll() else 0)  # its end is known then
        return not host[0].is_alive()

    def release(self, host):
        if host in self.hosts:
            self.hosts.remove(host)
            host[0].kill()
            host[0].join()
            host[1].close()

    def close(self):
        for host in list(self.hosts):
            self.release(host)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_another_engine(tmp_path):
    engine = PipeEngine(2)
    envs = DistributedVectorEnv([Odd] * 5, engine=engine, autoreset_mode="SameStep")
    compare(envs, SyncVectorEnv([Odd] * 5, autoreset_mode="SameStep"), 200)
    envs.close()
    assert engine.hosts == []
    with pytest.raises(af.OptionError, match="PipeEngine cannot keep arrays"):
        DistributedVectorEnv([CARTPOLE], engine=engine, to="dask")
    fns = [functools.partial(Counting, str(tmp_path), i) for i in range(4)]
    envs = DistributedVectorEnv(fns, engine=engine, timeout=3)
    envs.reset(seed=1)
    os.kill(engine.hosts[0][0].pid, signal.SIGKILL)
    *_, cut, infos = envs.step(np.zeros(4, int))
    assert cut.tolist() == infos["worker_lost"].tolist() == [True, True, False, False]
    assert envs.step(np.zeros(4, int))[0][:, 1].tolist() == [0, 0, 2, 2]
    os.kill(engine.hosts[0][0].pid, signal.SIGSTOP)
    with pytest.raises(EnvTimeoutError):
        envs.step(np.zeros(4, int))
    envs.reset()
    envs.close()
    assert engine.hosts == []


SCRIPT = """
import os, sys, time, gymnasium as gym, distributed
from arrayferry_gym.distributed import DistributedVectorEnv

class Mine(gym.wrappers.TimeLimit):
    pass

def make():
    return Mine(gym.make("CartPole-v1"), 5)

def main():
    envs = DistributedVectorEnv([make, lambda: make()])
    envs.reset(seed=1)
    for _ in range(20):
        envs.step([0, 1])
    print(*envs._engine.client.run(os.getpid).values())
    END
"""


@pytest.mark.parametrize("end", ["envs.close()", "pass", "sys.exit()"])
def test_an_own_cluster_leaves_no_process(run_python, tmp_path, end):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("END", end) + "\nif __name__ == '__main__':\n    main()\n")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=True
    )
    pids = done.stdout.split()
    assert len(pids) == 2
    assert done.stderr == ""
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


@pytest.mark.skipif(
    distributed.__version__ < "2025",
    reason="older versions wait for ever for workers that cannot start",
)
def test_a_script_that_is_not_guarded(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("END", "pass") + "\nmain()\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("or pass a client.")
    assert "if __name__ == '__main__'" in done.stderr.splitlines()[-1]


def test_ctrl_c_in_a_step(client):
    class Interrupting(Failing):
        def step(self, action):
            if action:
                os.kill(self.failure, signal.SIGINT)
                time.sleep(0.5)
            return super().step(0)

    makes = [functools.partial(Interrupting, os.getpid())] * 2
    envs = DistributedVectorEnv(makes, client=client)
    envs.reset()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # others may have set theirs
    try:
        with pytest.raises(KeyboardInterrupt):
            envs.step([1, 0])
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(NotReadyError, match="a step was not finished"):
        envs.step([0, 0])
    envs.reset()
    assert envs.step([0, 0])[1].tolist() == [1, 1]
    envs.close()


def test_calls_through_the_scheduler(client, monkeypatch):
    async def refuse(*args, **kwargs):
        raise OSError("no way")

    monkeypatch.setattr("arrayferry_gym.distributed._dask.connect", refuse)
    envs = DistributedVectorEnv([CARTPOLE] * 3, client=client)
    compare(envs, SyncVectorEnv([CARTPOLE] * 3), 150)
    envs.close()


def test_without_distributed(run_python):
    script = textwrap.dedent(
        """
        import sys
        sys.modules["distributed"] = None
        import arrayferry as af
        import arrayferry_gym
        try:
            import arrayferry_gym.distributed
        except af.BackendUnavailableError as error:
            print(error)
        """
    )
    assert "pip install 'arrayferry[distributed]'" in run_python(script)
    assert (
        run_python("import sys, arrayferry_gym; print('distributed' in sys.modules)") == "False\n"
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_partial_reset_shows_nothing_of_a_lost_environment(mortal, tmp_path, mode):
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(4)],
        client=mortal,
        autoreset_mode=mode,
    )
    envs.reset(seed=3)
    for _ in range(3):
        seen = envs.step([0] * 4)[0]
    kill(mortal, envs.call("home")[0])
    envs.call("t")  # the loss is noticed here
    others = {"reset_mask": np.array([False, False, False, True])}
    rows, _ = envs.reset(options=others)
    np.testing.assert_array_equal(rows[:3], seen[:3])
    observations, _, _, truncations, infos = envs.step([0] * 4)
    assert truncations.tolist() == infos["worker_lost"].tolist()
    assert truncations[0]
    last = infos["final_obs"][0] if mode == AutoresetMode.SAME_STEP else observations[0]
    np.testing.assert_array_equal(last, seen[0])
    if mode == AutoresetMode.NEXT_STEP:
        np.testing.assert_array_equal(envs.reset(options=others)[0][0], seen[0])
        assert envs.step([0] * 4)[0][0].tolist() != seen[0].tolist()
    envs.close()


class Deadly(Failing):
    """Ends its process when it is reset with options."""

    def reset(self, *, seed=None, options=None):
        if options:
            os._exit(1)
        return super().reset()


def test_an_environment_that_ends_each_process_is_named(mortal):
    makes = [functools.partial(Failing, "none")] * 4
    makes[2] = functools.partial(Deadly, "none")
    envs = DistributedVectorEnv(makes, client=mortal)
    envs.reset()
    with pytest.raises(
        NoWorkerError, match="3 workers died while they made environment 2"
    ) as error:
        envs.reset(options={"die": 1})
    assert error.value.indices == (2,)
    envs.close()


def test_a_busy_worker_does_not_stop_the_others(mortal):
    envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 4, client=mortal, timeout=8)
    envs.reset()
    kill(mortal, next(iter(mortal.nthreads())))
    envs.step([0] * 4)
    eventually(lambda: len(mortal.nthreads()) == 2)
    known = {group.worker for group in envs._placement.groups}
    (new,) = set(mortal.nthreads()) - known
    busy = mortal.submit(time.sleep, 40, workers=[new], pure=False)
    eventually(lambda: any(busy.key in map(str, keys) for keys in mortal.processing().values()))
    envs._placement._next_look = 0
    for _ in range(3):
        assert envs.step([0] * 4)[1].shape == (4,)
    envs.close()
    busy.cancel()


def test_a_stopped_worker_is_left_out(mortal):
    envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 4, client=mortal, timeout=3)
    envs.reset()
    process = next(iter(mortal.run(os.getpid).values()))
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(EnvTimeoutError):
            envs.step([0] * 4)
        began = time.monotonic()
        envs.reset()
        assert time.monotonic() - began < 100  # it is stopped for ever
        assert envs.step([0] * 4)[1].shape == (4,)
        envs.close()
    finally:
        os.kill(process, signal.SIGKILL)


def test_closing_ends_the_threads_of_hosts(client):
    def count():
        return sum(
            client.run(
                lambda: sum(t.name == "arrayferry-host" for t in threading.enumerate())
            ).values()
        )

    client.run(gc.disable)
    try:
        before = count()
        for _ in range(3):
            envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 2, client=client)
            envs.reset()
            envs.close()
        eventually(lambda: count() <= before)
    finally:
        client.run(gc.enable)


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_process_leaves_them_alone(client):
    envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 2, client=client)
    envs.reset()
    child = os.fork()
    if not child:
        code = 1
        try:
            try:
                envs.step([0, 0])
            except NotReadyError as error:
                code = 0 if "forked" in str(error) else 2
            envs.close()
            del envs
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert envs.step([0, 0])[1].tolist() == [1, 1]
    envs.close()


class Taking(Failing):
    """Its actions are sequences, or arrays that it changes."""

    def __init__(self, space):
        super().__init__("none")
        self.action_space = space

    def step(self, action):
        if isinstance(action, np.ndarray):
            action *= 2
            reward = action.sum()
        else:
            reward = sum({0: 1, 1: 2, 2: 3}[x] for x in action)
        return np.ones(1, np.float32), float(reward), False, False, {}


def test_actions_are_those_of_sync_vector_env(client):
    makes = [functools.partial(Taking, spaces.Sequence(spaces.Discrete(3), seed=1))] * 3
    envs, sync = DistributedVectorEnv(makes, client=client), SyncVectorEnv(makes)
    envs.reset()
    sync.reset()
    sync.action_space.seed(2)
    for _ in range(10):
        actions = sync.action_space.sample()
        same(envs.step(actions)[1], sync.step(actions)[1])
    envs.close()
    makes = [functools.partial(Taking, spaces.Box(-1, 1, (2,), np.float32))] * 3
    envs = DistributedVectorEnv(makes, client=client)
    envs.reset()
    assert envs.step(jax.numpy.ones((3, 2)))[1].tolist() == [4.0] * 3
    envs.close()


def test_what_cannot_be_sent_is_named(client):
    envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 2, client=client)
    with pytest.raises(af.OptionError, match="cannot be pickled"):
        envs.reset(options={"lock": threading.Lock()})
    with pytest.raises(af.OptionError, match=r"seed=1.5 is not valid"):
        envs.reset(seed=1.5)
    envs.reset()
    with pytest.raises(af.OptionError, match="cannot be pickled"):
        envs.call("step", threading.Lock())
    assert envs.step([0, 0])[1].tolist() == [1, 1]
    envs.close()
