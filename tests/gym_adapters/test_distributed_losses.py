"""Workers that die, hang, stop or come back, and what happens to their environments."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections import Counter

import cloudpickle
import distributed
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from remote_workers import (
    CARTPOLE,
    Counting,
    DaskWorkers,
    Failing,
    PipeWorkers,
    actors,
    cluster,
    eventually,
    kill,
)

from arrayferry_gym.distributed import (
    DistributedVectorEnv,
    EnvTimeoutError,
    NotReadyError,
    NoWorkerError,
    SchedulerLostError,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture(scope="module")
def mortal_cluster():
    """A client of a cluster whose workers may be killed."""
    with cluster() as made, distributed.Client(made) as client:
        yield client


@pytest.fixture
def mortal(mortal_cluster):
    """The same, with both workers."""
    eventually(DaskWorkers(mortal_cluster).restored)
    return mortal_cluster


@pytest.fixture
def workers(request):
    """Two workers that may be killed, over pipes or of a cluster."""
    if request.param == "pipes":
        yield PipeWorkers()
    else:
        yield DaskWorkers(request.getfixturevalue("mortal"))


PIPES = pytest.mark.parametrize("workers", ["pipes"], indirect=True)
BOTH = pytest.mark.parametrize(
    "workers", ["pipes", pytest.param("dask", marks=pytest.mark.long)], indirect=True
)


def homes(envs):
    """Return the number of environments on each worker, as the workers see it."""
    return Counter(envs.call("home"))


class Homely(Counting):
    def home(self):
        return os.environ.get("NAME_OF_THE_WORKER") or distributed.get_worker().address


@pytest.mark.parametrize(
    ("workers", "mode", "deaths"),
    [
        ("pipes", "NextStep", 10),
        pytest.param("pipes", "SameStep", 6, marks=pytest.mark.long),
        pytest.param("pipes", "Disabled", 6, marks=pytest.mark.long),
        pytest.param("dask", "NextStep", 2, marks=pytest.mark.long),
    ],
    indirect=["workers"],
)
def test_workers_killed_again_and_again(workers, tmp_path, mode, deaths):
    count = 8
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(count)],
        **workers.options,
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
            eventually(workers.restored)
            envs._placement._next_look = 0
            where = envs.call("home")
            address = sorted(set(where))[rng.integers(len(set(where)))]
            expected.update(index for index, home in enumerate(where) if home == address)
            if number % 200 == 50:
                kill(workers, address)
            else:  # in the middle of a step
                (pid,) = workers.pids(address)
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
    eventually(workers.restored)

    def balanced():
        envs.reset()
        return sorted(homes(envs).values()) == [4, 4]

    eventually(balanced)
    envs.close()
    eventually(lambda: workers.left() == 0)


@BOTH
def test_losses_that_are_noticed_in_calls_and_resets(workers, tmp_path):
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(6)], **workers.options
    )
    envs.reset(seed=3)
    envs.set_attr("length", [100, 101, 102, 103, 104, 105])
    observations, *_ = envs.step(np.arange(6))
    where = envs.call("home")
    kill(workers, where[0])
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
    eventually(workers.restored)

    def balanced():
        envs.reset(seed=4)
        return sorted(homes(envs).values()) == [3, 3]

    eventually(balanced)
    kill(workers, envs.call("home")[2])
    first, infos = envs.reset(seed=5)
    assert infos["worker_lost"].sum() == 3
    second, infos = envs.reset(seed=5)
    assert infos == {}
    np.testing.assert_array_equal(first, second)  # the seeds are those of the reset
    assert not envs.step(np.arange(6))[3].any()
    envs.close()


@pytest.mark.parametrize("groups", [4, pytest.param(None, marks=pytest.mark.long)])
def test_an_environment_that_hangs(mortal, groups):
    client = mortal
    fns = [lambda: Failing("hang")] * 4
    envs = DistributedVectorEnv(fns, client=client, timeout=3, groups=groups)
    other = DistributedVectorEnv([CARTPOLE] * 2, client=client)
    envs.reset()
    began = time.monotonic()
    with pytest.raises(EnvTimeoutError, match="environment 1 did not answer within 3 s") as info:
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
    with cluster(processes=False, protocol="tcp") as made:
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
    with cluster(1, processes=False, protocol="tcp") as made, distributed.Client(made) as client:
        envs = DistributedVectorEnv([CARTPOLE] * 4, client=client, timeout=4)
        envs.reset()
        made.scale(0)
        eventually(lambda: not client.nthreads() and not made.workers)
        with pytest.raises(NoWorkerError, match="none came within 4 s") as info:
            envs.step([0] * 4)
        assert info.value.indices == (0, 1, 2, 3)
        made.scale(1)
        eventually(lambda: client.nthreads())
        envs.reset()
        envs.step([0] * 4)
        envs.close()


@PIPES
def test_a_worker_that_is_stopped_over_pipes(workers, tmp_path):
    fns = [functools.partial(Counting, str(tmp_path), i) for i in range(4)]
    envs = DistributedVectorEnv(fns, **workers.options, timeout=3)
    envs.reset(seed=1)
    os.kill(workers.engine.hosts[0][0].pid, signal.SIGSTOP)
    with pytest.raises(EnvTimeoutError):
        envs.step(np.zeros(4, int))
    envs.reset()
    envs.close()
    assert workers.left() == 0


@PIPES
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_partial_reset_shows_nothing_of_a_lost_environment(workers, tmp_path, mode):
    envs = DistributedVectorEnv(
        [functools.partial(Homely, str(tmp_path), i) for i in range(4)],
        **workers.options,
        autoreset_mode=mode,
    )
    envs.reset(seed=3)
    for _ in range(3):
        seen = envs.step([0] * 4)[0]
    kill(workers, envs.call("home")[0])
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


@PIPES
def test_an_environment_that_ends_each_process_is_named(workers):
    makes = [functools.partial(Failing, "none")] * 4
    makes[2] = functools.partial(Deadly, "none")
    envs = DistributedVectorEnv(makes, **workers.options)
    envs.reset()
    with pytest.raises(
        NoWorkerError, match=r"3 workers died while they made environment 2 again.*call reset"
    ) as error:
        envs.reset(options={"die": 1})
    assert error.value.indices == (2,)
    envs.close()


@pytest.mark.long
def test_a_busy_worker_does_not_stop_the_others(mortal):
    workers = DaskWorkers(mortal)
    envs = DistributedVectorEnv([functools.partial(Failing, "none")] * 4, client=mortal, timeout=8)
    envs.reset()
    kill(workers, next(iter(mortal.nthreads())))
    envs.step([0] * 4)
    eventually(lambda: len(mortal.nthreads()) == 2)
    known = {host.worker for host in envs._placement.hosts}
    (new,) = set(mortal.nthreads()) - known
    busy = mortal.submit(time.sleep, 40, workers=[new], pure=False)
    eventually(lambda: any(busy.key in map(str, keys) for keys in mortal.processing().values()))
    envs._placement._next_look = 0
    for _ in range(3):
        assert envs.step([0] * 4)[1].shape == (4,)
    envs.close()
    busy.cancel()
    kill(workers, new)  # which goes on with it


@pytest.mark.long
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
