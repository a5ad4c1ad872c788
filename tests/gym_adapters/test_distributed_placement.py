"""Where distributed environments live, what they leave on workers, and workers that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
import threading

import cloudpickle
import dask
import distributed
import gymnasium as gym
import numpy as np
import pytest
import remote_workers
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from remote_workers import CARTPOLE, eventually

import arrayferry as af
from arrayferry_gym.distributed import (
    Collector,
    DaskEngine,
    DistributedVectorEnv,
    Engine,
    EnvFailedError,
    EnvTimeoutError,
    Host,
    NoWorkerError,
    SchedulerLostError,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


class Fails(gym.Env):
    """Fails at an action of 1, in a step or a reset."""

    observation_space = spaces.Box(0, 1e9, (1000,), np.float32)
    action_space = spaces.Discrete(2)
    level = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if options:
            raise KeyError("broken")
        return np.full(1000, self.level, np.float32), {}

    def step(self, action):
        if action:
            raise KeyError("broken")
        return np.ones(1000, np.float32), 1.0, False, False, {}

    def climb(self):
        self.level += 1

    def home(self):
        return distributed.get_worker().name


@contextlib.contextmanager
def cluster(**options):
    """Return a cluster whose workers are threads of this process, which starts at once."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 9}),
        remote_workers.cluster(**{"processes": False, "protocol": "tcp", **options}) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client():
    with cluster() as made, distributed.Client(made) as client:
        yield client


def held(client):
    """Return how many of our arrays the workers have, and how many tasks the scheduler knows."""
    keys = [
        key
        for worker in client.cluster.workers.values()
        for key in worker.data
        if "arrayferry-" in str(key) and "host" not in str(key)
    ]
    return len(keys), len(client.cluster.scheduler.tasks)


# What is left on workers.


def following(params, observation, rng):
    """Take the action that the weights name, which fails if it is 1."""
    return np.full(len(observation), int(params)), None


@pytest.mark.parametrize("failing", ["step", "gather", "assemble"])
def test_nothing_is_left_of_a_segment_that_fails(client, failing, monkeypatch):
    with Collector(
        [Fails] * 4, following, np.array(0), num_steps=3, groups=4, client=client, to="dask"
    ) as collector:
        for _ in range(3):
            part = next(collector)
            arrays = held(client)[0]
            if failing == "step":
                collector.update(np.array(1))
                with pytest.raises(EnvFailedError):
                    next(collector)
                collector.update(np.array(0))
                for _ in range(4):  # the other groups fail as well
                    with contextlib.suppress(EnvFailedError):
                        next(collector)
            else:
                method = getattr(DaskEngine, failing)

                def interrupted(self, *args, method=method):
                    if method.__name__ == "gather":
                        method(self, *args)
                    raise KeyboardInterrupt

                with monkeypatch.context() as patch:
                    patch.setattr(DaskEngine, failing, interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        next(collector)
            shown = part.observation[1:].compute()  # what was returned before is still there
            np.testing.assert_array_equal(shown, 1)
            del shown, part
            part = next(collector)
            eventually(lambda arrays=arrays: held(client)[0] <= arrays)
            np.testing.assert_array_equal(part.observation[1:].compute(), 1)
    np.testing.assert_array_equal(part.observation[1:].compute(), 1)  # also after it is closed
    del part
    gc.collect()
    eventually(lambda: held(client) == (0, 0))


class _Closing(Fails):
    """Closes noticeably, and can set neither a level of 7 nor be made with it."""

    def __init__(self, path):
        self.path = path

    def __setattr__(self, name, value):
        if (name, value) == ("level", 7):
            raise ValueError("no level 7")
        super().__setattr__(name, value)

    def close(self):
        with open(self.path, "a") as file:
            file.write("closed\n")


def test_an_environment_that_fails_while_it_is_made_is_closed(tmp_path):
    from arrayferry_gym.distributed._workers.host import Hosted
    from arrayferry_gym.distributed._workers.messages import EnvSetup, Failure, Start, from_bytes

    path = tmp_path / "log"
    factory = cloudpickle.dumps(functools.partial(_Closing, str(path)))
    faults = {"attributes": {"level": 7}}, {"start": Start(None, {"fail": 1})}
    for number, fault in enumerate(faults, 1):
        host = Host()
        request = functools.partial(Hosted.make, setup=EnvSetup(0, factory, **fault))
        failure = from_bytes(host.answer(cloudpickle.dumps(request)))
        assert isinstance(failure, Failure)
        assert (failure.index, failure.type) == (0, ("ValueError", "KeyError")[number - 1])
        assert path.read_text() == "closed\n" * number


def test_what_arrives_late_is_not_kept(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "gate_of_a_test", gate := threading.Event())
    with Collector(
        [functools.partial(_Waiting, "gate_of_a_test")] * 2,
        following, np.array(0), num_steps=1, groups=2, client=client, to="dask", timeout=3,
    ) as collector:  # fmt: skip
        next(collector)
        collector.update(np.array(1))
        with pytest.raises(EnvTimeoutError):
            next(collector)
        gate.set()
    gc.collect()
    eventually(lambda: held(client) == (0, 0))


class _Waiting(Fails):
    def __init__(self, module):
        self.module = module

    def step(self, action):
        if action:
            sys.modules[self.module].wait(60)
        return super().step(0)


def test_a_segment_that_is_lost_names_its_worker():
    with cluster() as made, distributed.Client(made) as client:
        collector = Collector(
            [Fails] * 2, following, np.array(0), num_steps=1, client=client, to="dask"
        )
        lazy = next(collector).observation
        worker = next(iter(made.workers.values()))
        address = worker.address
        client.sync(worker.close)
        eventually(lambda: len(client.nthreads()) < 2)
        futures = distributed.futures_of(lazy)
        eventually(lambda: any(future.status in ("lost", "cancelled") for future in futures))
        for value in (lazy, {"k": [lazy]}, {"k": [lazy + 1]}):
            with pytest.raises(af.ConversionError) as caught:
                af.convert(value, "torch")
            assert f"collected on the worker {address}, which is gone" in str(caught.value)
            assert "another target" in caught.value.remedy
        collector.close()


# Where they live.


def homes(envs):
    """Return the numbers of environments on each worker, without calling them."""
    found = {}
    for host in envs._placement.hosts:
        found[host.worker] = found.get(host.worker, 0) + len(host.indices)
    return sorted(found.values())


def test_workers_are_chosen(client):
    addresses = list(client.nthreads())
    _, worker = client.cluster.workers.values()
    for chosen in ([worker.address], (str(worker.name),), {worker.address, "nobody"}):
        envs = DistributedVectorEnv([Fails] * 4, client=client, workers=chosen)
        assert homes(envs) == [4]
        assert {host.worker for host in envs._placement.hosts} == {worker.address}
        envs.close()
    with pytest.raises(NoWorkerError, match=r"none came within 0.2 s"):
        DistributedVectorEnv([Fails], client=client, workers=["nobody"], timeout=0.2)
    with pytest.raises(NoWorkerError, match="2 workers instead of 3, and no more came"):
        DistributedVectorEnv([Fails], client=client, min_workers=3, timeout=0.2)
    for wrong in (
        {"workers": "tcp://1.2.3.4:5"},
        {"workers": []},
        {"workers": [3]},
        {"min_workers": 0},
        {"min_workers": 1.0},
        {"min_workers": True},
        {"resources": ["GPU"]},
        {"resources": {"GPU": "one"}},
    ):
        with pytest.raises(af.OptionError, match=next(iter(wrong))):
            DistributedVectorEnv([Fails], client=client, **wrong)
        if "min_workers" not in wrong:
            with pytest.raises(af.OptionError, match=next(iter(wrong))):
                DaskEngine(client, **wrong)
    with pytest.raises(af.OptionError, match="options of Dask's engine"):
        DistributedVectorEnv([Fails], engine=DaskEngine(client), workers=addresses)
    envs = DistributedVectorEnv([Fails] * 2, engine=DaskEngine(client, workers=addresses[:1]))
    assert homes(envs) == [2]
    envs.close()


def test_resources_say_where():
    with cluster(n_workers=1, resources={"GPU": 1}) as made, distributed.Client(made) as client:
        envs = DistributedVectorEnv([Fails] * 2, client=client, resources={"GPU": 1})
        assert homes(envs) == [2]
        envs.close()
        for resources in ({"GPU": 2}, {"GPU": 1, "FPGA": 1}):
            with pytest.raises(NoWorkerError):
                DistributedVectorEnv([Fails], client=client, resources=resources, timeout=0.2)


def test_it_waits_for_workers():
    with cluster(n_workers=1) as made, distributed.Client(made) as client:
        timer = threading.Timer(0.3, made.scale, (3,))
        timer.start()
        envs = DistributedVectorEnv([Fails] * 6, client=client, min_workers=3)
        assert homes(envs) == [2, 2, 2]
        envs.close()
        timer.join()


def test_a_full_reset_spreads_them():
    with cluster(n_workers=1) as made, distributed.Client(made) as client:
        sync = SyncVectorEnv([CARTPOLE] * 6)
        envs = DistributedVectorEnv([CARTPOLE] * 6, client=client)
        called = DistributedVectorEnv([Fails] * 4, client=client)
        called.reset()
        called.call("climb")
        assert homes(envs) == [6]

        def same():
            for found, expected in zip(envs.step([0] * 6), sync.step([0] * 6), strict=True):
                np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))

        envs.reset(seed=1), sync.reset(seed=1)
        made.scale(2)
        client.wait_for_workers(2)
        same()
        mask = np.array([True] * 5 + [False])
        envs.reset(options={"reset_mask": mask}), sync.reset(options={"reset_mask": mask})
        np.testing.assert_array_equal(np.asarray(envs.reset()[0]), sync.reset()[0])
        assert homes(envs)[-1] == 6  # a move would change their random numbers
        found, infos = envs.reset(seed=2)
        assert infos == {}
        np.testing.assert_array_equal(np.asarray(found), sync.reset(seed=2)[0])
        assert homes(envs) == [3, 3]
        for _ in range(30):
            same()
        assert homes(envs) == [3, 3]
        first, _ = called.reset(seed=3)
        assert homes(called)[-1] == 4  # a method may have changed them
        np.testing.assert_array_equal(first, 1)
        envs.close(), called.close()


def test_an_adaptive_cluster_keeps_workers_with_environments(client):
    scheduler = client.cluster.scheduler
    envs = DistributedVectorEnv([Fails], client=client)
    (home,) = {host.worker for host in envs._placement.hosts}
    (other,) = set(client.nthreads()) - {home}
    eventually(lambda: scheduler.workers[home].long_running)
    assert scheduler.workers_to_close(minimum=0, n=2) == [other]
    assert client.submit(abs, -3, workers=[home]).result(timeout=60) == 3  # its threads are free
    envs.close()
    eventually(lambda: not scheduler.workers[home].long_running)
    assert set(scheduler.workers_to_close(minimum=0, n=2)) == {home, other}


def test_environments_of_a_worker_that_leaves_move_at_once():
    with cluster() as made, distributed.Client(made) as client:
        envs = DistributedVectorEnv([Fails] * 4, client=client)
        envs.reset()
        leaving = next(iter(made.workers.values()))
        status, leaving.status = leaving.status, distributed.core.Status.closing_gracefully
        lost = [
            index
            for host in envs._placement.hosts
            for index in host.indices
            if host.worker == leaving.address
        ]
        *_, cut, infos = envs.step([0] * 4)
        assert np.flatnonzero(cut).tolist() == np.flatnonzero(infos["worker_lost"]).tolist() == lost
        assert homes(envs) == [4]
        assert envs.step([0] * 4)[3].tolist() == [False] * 4
        envs.close()
        leaving.status = status


# Constructors, over pipes and in threads.


class Line(Engine):
    """Hosts in this process, some of which die at some requests, or do not answer."""

    def __init__(self, count, dies=lambda worker, made: False):
        self.names = [f"slot {number}" for number in range(count)]
        self.dies = dies
        self.hosts = []
        self.dead = set()
        self.patience = []

    def workers(self):
        return [name for name in self.names if name not in self.dead]

    def place(self, workers, timeout):
        placed = [(Host(), worker) for worker in workers]
        self.hosts += placed
        return placed

    def call(self, host, request):
        return host, request

    def gather(self, calls, timeout):
        from arrayferry_gym.distributed._workers.messages import from_bytes

        answers = []
        for (host, worker), pickled in calls:
            request = from_bytes(pickled)
            name = request.func.__name__
            made = request.keywords["setup"].index if name == "make" else None
            self.patience.append((name, timeout))
            if worker in self.dead or self.dies(worker, made):
                self.dead.add(worker)
                answers.append(None)
            else:
                answers.append(host.answer(pickled))
        return answers

    def lost(self, host):
        return host[1] in self.dead

    def release(self, host):
        if host in self.hosts:
            self.hosts.remove(host)

    def close(self):
        self.hosts.clear()


@pytest.mark.parametrize("index", range(4))
def test_a_worker_may_die_in_a_constructor(index):
    doomed = f"slot {index // 2}"
    engine = Line(2, lambda worker, made: worker == doomed and made == index)
    sync = SyncVectorEnv([CARTPOLE] * 4)
    envs = DistributedVectorEnv([CARTPOLE] * 4, engine=engine)
    assert engine.dead == {doomed}
    assert homes(envs) == [4]
    observations, infos = envs.reset(seed=3)
    np.testing.assert_array_equal(observations, sync.reset(seed=3)[0])
    assert infos == {}
    assert not envs.step([0] * 4)[3].any()
    envs.close()
    assert engine.hosts == []


def test_a_constructor_that_ends_each_process_is_named():
    engine = Line(9, lambda worker, made: made == 2)
    with pytest.raises(NoWorkerError, match="3 workers died while they made environment 2") as info:
        DistributedVectorEnv([CARTPOLE] * 4, engine=engine)
    assert info.value.indices == (2,)
    assert "again" not in str(info.value)
    assert "reset" not in str(info.value)
    assert len(engine.dead) == 3
    assert engine.hosts == []


def test_no_worker_survives_the_constructors():
    engine = Line(2, lambda worker, made: made is not None)
    with pytest.raises(NoWorkerError, match="there is no worker for environments 0, 1, 2, 3"):
        DistributedVectorEnv([CARTPOLE] * 4, engine=engine, timeout=0.1)
    assert engine.hosts == []


def test_each_constructor_has_the_whole_timeout():
    engine = Line(2)
    envs = DistributedVectorEnv([CARTPOLE] * 6, engine=engine, timeout=7)
    assert [call for call in engine.patience if call[0] == "make"] == [("make", 7)] * 6
    envs.close()


def test_constructors_that_fail_leave_nothing(client):
    def make():
        raise ValueError("no such level")

    for fns in ([Fails, Fails, make, Fails], [make] * 3):
        with pytest.raises(
            EnvFailedError, match=r"environment [02] raised ValueError: no such level"
        ):
            DistributedVectorEnv(fns, client=client)
    eventually(lambda: held(client) == (0, 0))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "tcp://nobody.invalid:1"])
def test_a_wrong_address_is_told_soon(address, monkeypatch):
    waited = []
    make = distributed.Client.__init__

    def noted(self, *args, timeout=None, **options):
        waited.append(timeout)
        make(self, *args, timeout=0.2, **options)

    monkeypatch.setattr(distributed.Client, "__init__", noted)
    with pytest.raises(SchedulerLostError, match="no scheduler at"):
        DistributedVectorEnv([CARTPOLE], client=address)
    assert waited == [5.0]
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(SchedulerLostError),
    ):
        DistributedVectorEnv([CARTPOLE], client=address)
    assert waited == [5.0, 0.3]


def test_a_worker_that_is_gone_before_it_gets_a_host(client):
    """The scheduler may not know it yet when it is asked for workers, and Dask tries for long to reach it."""
    engine = DaskEngine(client)
    here = engine.workers()[0]
    hosts = engine.place([here, "tcp://127.0.0.1:9"], timeout=20)
    assert [host is None for host in hosts] == [False, True]
    engine.close()


def test_a_worker_that_is_late_does_not_stop_the_others(client, monkeypatch):
    engine = DaskEngine(client)
    here, late = engine.workers()
    run = client.run

    async def slow(*args, workers, **options):
        if workers == [late]:
            await asyncio.sleep(1000)
        return await run(*args, workers=workers, **options)

    monkeypatch.setattr(client, "run", slow)
    hosts = engine.place([here, late], timeout=3)
    assert [host is None for host in hosts] == [False, True]
    with pytest.raises(EnvTimeoutError, match=f"the worker {late} did not import") as info:
        engine.place([late], timeout=0.1)
    assert info.value.worker == late
    engine.close()


def test_ctrl_c_while_hosts_are_made_leaves_nothing(client, monkeypatch):
    engine = DaskEngine(client)
    here, late = engine.workers()
    run = client.run

    async def interrupted(*args, workers, **options):
        if workers == [late]:
            while not engine._hosts:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(1000)
        return await run(*args, workers=workers, **options)

    monkeypatch.setattr(client, "run", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # others may have set theirs
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.place([here, late], timeout=1000)
    finally:
        signal.signal(signal.SIGINT, before)
    eventually(lambda: held(client) == (0, 0))
    engine.close()
