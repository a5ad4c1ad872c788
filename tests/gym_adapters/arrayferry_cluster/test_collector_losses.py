"""Workers that die, hang or come back, a scheduler that dies, and what comes of the segments."""

import collections
import contextlib
import functools
import gc
import importlib
import itertools
import os
import signal
import sys
import threading

import cloudpickle
import distributed
import jax
import numpy as np
import pytest
import remote_workers
from cases import crossed
from distributed.comm.core import CommClosedError
from remote_workers import KINDS, WEIGHTS, Failing, acting, connected, eventually, functional, kill

import arrayferry_cluster
from arrayferry_cluster import Collector, EnvFailedError, EnvTimeoutError, NoWorkerError
from arrayferry_envs import CartPole

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture(scope="module")
def mortal_cluster():
    with connected() as client:
        yield client


@pytest.fixture
def mortal(mortal_cluster):
    """A client of two workers that may be killed. Nothing is left on them."""
    eventually(
        lambda: remote_workers.restored(mortal_cluster) and answered(prepared, mortal_cluster)
    )
    yield mortal_cluster
    eventually(lambda: remote_workers.restored(mortal_cluster))
    # what Dask makes of calls of actors, and of stacks, refers to itself
    empty = lambda: answered(remote_workers.held, mortal_cluster) == []  # noqa: E731
    eventually(lambda: empty() or gc.collect() < 0, 60)


def prepared(client):
    """Import on each worker what segments need, which takes none of their time."""
    for module in ("arrayferry_envs", "gymnasium", "jax.numpy"):
        client.run(importlib.import_module, module)
    return True


def answered(function, client):
    """Return what the function returns, or None if a worker has just died, which Dask does not know yet."""
    with contextlib.suppress(CommClosedError):
        return function(client)


def made(kind, client, mode, **options):
    """Return a collector of two groups of two environments."""
    common = {"num_steps": 10, "groups": 2, "seed": 3, "mode": mode, "client": client}
    options = {**common, **options}
    if kind == "functional":
        return Collector(CartPole, functional, WEIGHTS, num_envs=4, **options)
    return Collector([remote_workers.Numbering] * 4, remote_workers.versions, 0, **options)


class History:
    """What became of the segments of each group, held to what must become of them."""

    def __init__(self, kind):
        self.kind = kind
        self.parts = collections.defaultdict(list)
        self.restarts = 0

    def take(self, part):
        for group in sorted(set(part.group.tolist())):
            rows = part.group == group
            own = {
                name: getattr(part, name)[:, rows] for name in ("observation", "action", "began")
            }
            (restarted,) = set(part.restarted[rows].tolist())
            self.restarts += restarted
            if self.kind == "ordinary":
                assert (part.extras[:, rows] == part.version[rows]).all()
                self._check_numbers(group, own["observation"], own["began"], restarted)
            self.parts[group].append(own)

    def _check_numbers(self, group, observation, began, restarted):
        seeds, steps = observation[:, :, 0], observation[:, :, 1]
        if self.parts[group] and not restarted:
            before = self.parts[group][-1]["observation"]
            assert (steps[0] == before[-1, :, 1] + 1).all(), "a step is lost, or there twice"
            assert (seeds[0] == before[0, :, 0]).all(), "it begins anew, and does not say so"
        else:
            assert not steps[0].any()
            assert began[0].all()
            used = {tuple(part["observation"][0, :, 0]) for part in self.parts[group]}
            assert tuple(seeds[0]) not in used, "a group that begins anew has new seeds"
        assert (np.diff(steps, axis=0) == 1).all()
        assert (seeds == seeds[0]).all()


@functools.cache
def undisturbed(count):
    """Return the segments of functional environments whose workers live."""
    history = History("functional")
    with connected(1, processes=False) as client, made("functional", client, "sync") as collector:
        for part in itertools.islice(collector, count):
            history.take(part)
    return history.parts


def check_history(client, kind, mode, number, kills):
    """Kill workers at random moments while segments are collected."""
    rng = np.random.default_rng([number, kind == "ordinary", mode == "sync"])
    over, stop, killed = threading.Event(), threading.Event(), []

    def killer():
        try:
            while len(killed) < kills and not stop.wait(rng.uniform(0, 2.0)):
                if kill(client, int(rng.integers(2))):
                    killed.append(True)
        finally:
            over.set()

    history = History(kind)
    with made(kind, client, mode) as collector:
        thread = threading.Thread(target=killer)
        thread.start()
        try:
            last = 3  # segments after the last kill
            while not over.is_set() or last:
                last -= over.is_set()
                history.take(next(collector))
                if kind == "ordinary":
                    collector.update(collector.version + 1)
            assert history.restarts <= collector.stats.lost <= 2 * kills
            assert len(killed) == kills
        finally:
            stop.set()
            thread.join()
    if kind == "functional":
        assert not history.restarts
        count = max(map(len, history.parts.values()))
        for group, expected in undisturbed(64 * -(-count // 64)).items():
            for own, whole in zip(history.parts[group], expected, strict=False):
                remote_workers.same(own, whole)


@pytest.mark.parametrize(("mode", "kind"), crossed(["sync", "async"], ["ordinary", "functional"]))
def test_each_segment_comes_once_and_each_loss_is_told_once(mortal, kind, mode):
    check_history(mortal, kind, mode, 0, kills=2)


@pytest.mark.long
@KINDS
@remote_workers.MODES
@pytest.mark.parametrize("number", range(1, 1 + int(os.environ.get("HISTORIES", "1"))))
def test_histories_of_ten_kills(mortal, kind, mode, number):
    check_history(mortal, kind, mode, number, kills=10)


def interrupted(client, kind, mode, comes):
    """Return the segments of each group that are collected with an interrupt at one line of the second or third call.

    Args:
        client: of the cluster.
        kind: of the environments.
        mode: of the collector.
        comes: is given each line that the collector comes to, and returns whether the interrupt comes there.
    """
    folder = os.path.dirname(arrayferry_cluster.__file__)
    thread, told, history, calls = threading.get_ident(), [], History(kind), 0

    def trace(frame, event, argument):
        name = frame.f_code.co_filename
        if not name.startswith(folder) or "_workers" in name or threading.get_ident() != thread:
            return None
        if event == "line" and not told and comes(frame):
            told.append(f"{frame.f_code.co_qualname} {frame.f_lineno}")
            raise KeyboardInterrupt
        return trace

    with made(kind, client, mode, num_steps=2) as collector:
        while min(len(history.parts[group]) for group in range(2)) < 4:
            calls += 1
            before = sys.gettrace()
            if 1 < calls < 4:
                sys.settrace(trace)
            try:
                part = next(collector)
            except KeyboardInterrupt:
                if kind == "ordinary":
                    collector.update(collector.version + 1)
                continue
            finally:
                sys.settrace(before)
            history.take(part)
        assert not history.restarts, told
        assert collector.stats.segments == sum(map(len, history.parts.values())), told
    return history.parts


@pytest.mark.long
@KINDS
@remote_workers.MODES
def test_an_interrupt_at_any_line_loses_nothing(kind, mode):
    places = {}

    def noted(frame):
        places.setdefault((frame.f_code, frame.f_lineno))

    with connected(processes=False) as client:
        whole = interrupted(client, kind, mode, noted)
        assert len(places) > 60
        for place in places:
            at_that = lambda frame, at=place: (frame.f_code, frame.f_lineno) == at  # noqa: E731
            for group, parts in interrupted(client, kind, mode, at_that).items():
                for part, expected in zip(parts, whole[group], strict=False):
                    remote_workers.same(part["observation"], expected["observation"])


@pytest.mark.long
def test_each_worker_compiles_once(mortal, tmp_path):
    path = str(tmp_path / "compiled")

    def counted(params, observation, key):
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        return functional(params, observation, key)

    options = {"num_steps": 300, "num_envs": 4, "groups": 2, "client": mortal}
    with Collector(CartPole, counted, WEIGHTS, **options) as collector:
        for number in range(20):
            next(collector)
            collector.update(WEIGHTS * number)
        assert set(compilations(path).values()) == {1}
        kill(mortal, 0)
        for _ in range(20):
            next(collector)
        eventually(lambda: remote_workers.restored(mortal))
        for _ in range(10_000):
            if len(compilations(path)) == 3:  # the worker that came back has work again
                break
            next(collector)
    assert list(compilations(path).values()) == [1, 1, 1]


def compilations(path):
    with open(path) as file:
        return collections.Counter(file.read().split())


@KINDS
def test_a_loss_between_two_calls(mortal, kind):
    history = History(kind)
    with made(kind, mortal, "sync") as collector:
        history.take(next(collector))
        workers = set(mortal.nthreads())
        kill(mortal, 0)
        eventually(lambda: not workers <= set(mortal.nthreads()))  # another may be there already
        for _ in range(3):
            history.take(next(collector))
        assert history.restarts == collector.stats.lost == (kind == "ordinary")


@pytest.mark.long
@pytest.mark.parametrize("groups", [1, 2])
def test_an_environment_that_hangs(mortal, groups):
    makers = [functools.partial(Failing, "hang"), Failing]
    options = {"num_steps": 4, "groups": groups, "client": mortal, "timeout": 4.0}
    with Collector(makers, acting, 0, **options) as collector:
        first = next(collector)
        workers = set(mortal.nthreads())
        collector.update(1)
        place = "environment 0 did not answer within 4 s, in step 0 of segment 1 of group 0 on"
        with pytest.raises(EnvTimeoutError, match=place) as failure:
            next(collector)
        assert failure.value.indices == (0,)
        assert failure.value.worker in workers
        assert isinstance(failure.value, TimeoutError)
        collector.update(0)
        part = next(collector)
        remote_workers.same(
            part.observation[:, part.group == 0], first.observation[:, part.group == 0]
        )
        assert part.restarted[part.group == 0].all()
        assert not part.restarted[part.group == 1].any()
        eventually(lambda: failure.value.worker not in mortal.nthreads())


@pytest.mark.long
def test_other_groups_of_a_worker_that_hangs_are_told(mortal):
    address = next(iter(mortal.nthreads()))
    makers = [functools.partial(Failing, "hang"), Failing]
    options = {"num_steps": 4, "groups": 2, "client": mortal, "timeout": 4.0}
    name = mortal.scheduler_info()["workers"][address]["name"]  # which it keeps
    with Collector(makers, acting, 0, workers=[str(name)], **options) as collector:
        next(collector)
        collector.update(1)
        with pytest.raises(EnvTimeoutError, match="environment 0"):
            next(collector)
        collector.update(0)
        # a segment of the other group may have been ready before
        told = sum(next(collector).restarted.astype(int) for _ in range(3))
        assert told.tolist() == [1, 1]
        assert collector.stats.lost == 1


@pytest.mark.long
def test_a_compiled_segment_that_hangs(mortal):
    def policy(params, observation, key):
        def wait(x):
            if x.any():
                threading.Event().wait(1000)
            return x

        weights = jax.pure_callback(wait, jax.ShapeDtypeStruct((), np.float32), params)
        return (observation[:, 0] > weights).astype(int), None

    options = {"num_steps": 4, "num_envs": 2, "groups": 1, "client": mortal, "timeout": 12.0}
    with Collector(CartPole, policy, np.float32(0), **options) as collector:
        next(collector)
        collector.update(np.float32(1))
        with pytest.raises(EnvTimeoutError, match="in segment 1 of group 0 on the worker tcp"):
            next(collector)
        collector.update(np.float32(0))
        assert next(collector).restarted.all()


@pytest.mark.long
def test_a_worker_that_answers_no_more(mortal):
    pids = mortal.run(os.getpid)
    makers = [Failing] * 2
    options = {"num_steps": 4, "groups": 2, "client": mortal, "timeout": 4.0}
    with Collector(makers, acting, 0, **options) as collector:
        next(collector)
        address, pid = next(iter(pids.items()))
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EnvTimeoutError, match="did not answer within 4 s") as failure:
            next(collector)
        assert failure.value.worker == address
        assert next(collector).restarted.sum() == 1


ENDING = [
    ("exit", "environment 0 raised SystemExit: 3"),
    pytest.param("kill", "died repeatedly in segment 1 of group 0", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("failure", "words"), ENDING)
def test_an_environment_that_ends_its_process_is_named(mortal, failure, words):
    workers = set(mortal.nthreads())
    options = {"num_steps": 4, "groups": 1, "client": mortal}
    with Collector([functools.partial(Failing, failure)], acting, 0, **options) as collector:
        next(collector)
        collector.update(1)
        with pytest.raises(EnvFailedError, match=words):
            next(collector)
        collector.update(0)
        assert next(collector).restarted.all()
    assert failure == "kill" or set(mortal.nthreads()) == workers


@pytest.mark.long
@KINDS
def test_no_worker_is_left(kind):
    with (
        connected(1, processes=False, protocol="tcp") as client,
        made(kind, client, "sync", timeout=3.0) as collector,
    ):
        history = History(kind)
        history.take(next(collector))
        client.cluster.scale(0)
        eventually(lambda: not client.nthreads() and not client.cluster.workers)
        for _ in range(2):
            with pytest.raises(NoWorkerError, match="none joined within 3 s") as failure:
                next(collector)
            assert isinstance(failure.value, ConnectionError)
        client.cluster.scale(1)
        for _ in range(3):
            history.take(next(collector))
        assert history.restarts == 2 * (kind == "ordinary")


@pytest.mark.parametrize("kind", ["ordinary", pytest.param("functional", marks=pytest.mark.long)])
def test_the_scheduler_is_gone(kind):
    with remote_workers.cluster(processes=False, protocol="tcp") as gone:
        client = distributed.Client(gone, set_as_default=False)
        with made(kind, client, "sync") as collector:
            next(collector)
            gone.close()
            for _ in range(2):
                words = "cannot be reached"
                with pytest.raises(arrayferry_cluster.SchedulerLostError, match=words) as failure:
                    next(collector)
                assert isinstance(failure.value, ConnectionError)
        client.close()


def test_no_worker_fits():
    with connected(1, processes=False, resources={"GPU": 1}) as client:
        options = {"num_steps": 2, "client": client, "timeout": 0.5}
        for wrong in ({"resources": {"GPU": 2}}, {"workers": ["other"]}):
            with pytest.raises(NoWorkerError, match="there is no worker"):
                Collector([remote_workers.CARTPOLE], acting, 0, **wrong, **options)
        with Collector(
            [remote_workers.CARTPOLE], acting, 0, resources={"GPU": 1}, **options
        ) as collector:
            next(collector)
