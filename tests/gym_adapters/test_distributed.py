"""Environments on a cluster: as `SyncVectorEnv` has them, whatever happens to the workers."""

from __future__ import annotations

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
    with (
        dask.config.set({"distributed.worker.daemon": True}),
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
            seeds = [None, *range(1, sync.num_envs)]
            same(envs.reset(seed=seeds), sync.reset(seed=seeds)) if 0 else None
            same(envs.reset(seed=9, options={}), sync.reset(seed=9, options={}))
    assert ends > 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [CARTPOLE, Odd], ids=["cartpole", "odd"])
def test_a_thousand_steps_are_those_of_sync_vector_env(client, mode, make):
    sync = SyncVectorEnv([make] * 5, autoreset_mode=mode)
    envs = DistributedVectorEnv([make] * 5, client=client, autoreset_mode=mode)
    compare(envs, sync, 1000)
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
    compare(envs, sync, 60)
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
    lock = open(os.devnull)  # noqa: SIM115
    with lock, pytest.raises(af.OptionError, match="cannot be pickled"):
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


def test_an_asynchronous_client_is_refused():
    loop_client = distributed.Client.__new__(distributed.Client)
    loop_client._asynchronous = True
    loop_client._loop_runner = type("Runner", (), {"loop": None, "is_started": lambda self: 0})()
    loop_client.status = "newly-created"
    with pytest.raises(af.OptionError, match="asynchronous|not connected"):
        DistributedVectorEnv([CARTPOLE], client=loop_client)


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
    eventually(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def eventually(condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


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
    assert time.monotonic() - began < 10
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


def homes(envs):
    """Return the number of environments on each worker, as the workers see it."""
    return Counter(envs.call("home"))


class Homely(Counting):
    def home(self):
        return distributed.get_worker().address

    def where(self):
        return os.getpid()


@pytest.mark.parametrize("mode", MODES)
def test_workers_killed_ten_times_in_a_thousand_steps(mortal, tmp_path, mode):
    count, steps, deaths = 8, 1000, 10
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(count)],
        client=mortal,
        autoreset_mode=mode,
    )
    observations, _ = envs.reset(seed=3)
    assert set(homes(envs).values()) == {4}
    reports, victims = Counter(), Counter()
    logs = [["reset"] for _ in range(count)]  # what each environment must have done
    t = np.zeros(count, int)
    ended = np.zeros(count, bool)
    rng = np.random.default_rng(4)
    expected = Counter()
    for number in range(steps):
        dead = set()
        if number % (steps // deaths) == 50:
            by_home = {}
            for index, home in enumerate(envs.call("home")):
                by_home.setdefault(home, set()).add(index)
            address = sorted(by_home)[rng.integers(len(by_home))]
            dead = by_home[address]
            expected.update(dead)
            if number % 200 == 50:
                kill(mortal, address)
            else:  # in the middle of the step
                victims_pid = mortal.run(os.getpid, workers=[address])[address]
                subprocess.Popen(["/bin/sh", "-c", f"sleep 0.0005; kill -9 {victims_pid}"])
        before = observations
        observations, rewards, terminations, truncations, infos = envs.step(
            np.full(count, number)
        )
        lost = infos.get("worker_lost", np.zeros(count, bool))
        reports.update(np.flatnonzero(lost).tolist())
        if dead and not lost.any():
            victims.update(dead)  # it died after its answer: the next step reports it
        for i in range(count):
            if lost[i]:
                assert (rewards[i], terminations[i], truncations[i]) == (0, False, True)
                last = infos["final_obs"][i] if mode == AutoresetMode.SAME_STEP else observations[i]
                np.testing.assert_array_equal(last, before[i])
                t[i] = 0
            elif mode == AutoresetMode.NEXT_STEP and ended[i]:
                assert (rewards[i], observations[i][1]) == (0, 0)
                t[i] = 0
            else:
                t[i] += 1
                assert rewards[i] == number
                assert terminations[i] == (t[i] >= 37 + i)
                final = mode == AutoresetMode.SAME_STEP and terminations[i]
                shown = infos["final_obs"][i] if final else observations[i]
                assert shown[1] == t[i]  # no step lost, none doubled
                if final:
                    t[i] = 0
                logs[i].append(str(number))
        ended = terminations | truncations
        if mode == AutoresetMode.DISABLED and ended.any():
            observations, infos = envs.reset(options={"reset_mask": ended})
            assert "worker_lost" not in infos
            t[ended] = 0
    assert reports == expected
    assert sum(expected.values()) >= deaths
    for i in range(count):  # steps that were answered are in the files, in order and once
        written = (tmp_path / str(i)).read_text().split()
        done = [line for line in written if line != "reset"]
        assert len(done) == len(set(done))
        unanswered = [line for line in done if line not in set(logs[i])]
        assert len(unanswered) <= expected[i]
        assert [line for line in done if line in set(logs[i])] == logs[i][1:]
    eventually(lambda: len(mortal.nthreads()) == 2)
    time.sleep(1.1)
    for _ in range(100):
        *_, terminations, truncations, _ = envs.step(np.zeros(count, int))
        ended = terminations | truncations
        if mode == AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    found = homes(envs)
    assert len(found) == 2
    assert sorted(found.values()) == [4, 4]
    envs.close()
    eventually(lambda: actors(mortal) == (0, 0))
