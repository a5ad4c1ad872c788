"""Trajectories that are collected on workers, beside loops in one process."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import pickle
import sys
import threading
import time

import cloudpickle
import distributed
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from remote_workers import (
    CARTPOLE,
    Counting,
    DaskWorkers,
    Failing,
    ThreadEngine,
    actors,
    cluster,
    eventually,
    kill,
    same,
)

import arrayferry as af
import arrayferry_gym.distributed
from arrayferry_gym.distributed import (
    Collector,
    DistributedVectorEnv,
    EnvFailedError,
    EnvTimeoutError,
    NotReadyError,
    PolicyFailedError,
    WorkerSetupError,
)
from arrayferry_gym.functional import CartPole, rollout

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
WEIGHTS = np.array([0.1, 0.5, 1.0, 0.7], np.float32)


@pytest.fixture(scope="module")
def client():
    with cluster() as made, distributed.Client(made, set_as_default=False) as client:
        yield client


@pytest.fixture
def mortal():
    """A client of a cluster of its own, whose workers may be killed."""
    with cluster() as made, distributed.Client(made, set_as_default=False) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """Nothing is left on the workers, and the garbage collector is not needed for that."""
    gc.disable()
    try:
        yield
        if "client" in request.fixturenames:
            client = request.getfixturevalue("client")
            eventually(lambda: actors(client) == (0, 0))
    finally:
        gc.enable()


def leaning(params, observation, key):
    """A policy that is a table: it draws nothing."""
    lean = observation @ params
    return (lean > 0) * 1, {"lean": lean}


def still(params, observation, key):
    return np.zeros(len(observation), int), None


def drawing(params, observation, rng):
    return rng.integers(observation.shape[:1], 0, 2), None


def collected(envs, policy, params, client, count, **options):
    """Return some trajectories."""
    with Collector(envs, policy, params, client=client, seed=3, **options) as collector:
        return list(itertools.islice(collector, count))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_steps_are_those_of_sync_vector_env(client, groups):
    def table(params, observation, key):
        return (observation[:, 0] > params) * 1, {"lean": observation[:, 2] * 2}

    makers = [CARTPOLE] * 5
    parts = collected(makers, table, 0.01, client, 3, num_steps=40, groups=groups)
    envs = SyncVectorEnv(makers, autoreset_mode="SameStep")
    observation, _ = envs.reset(seed=3)
    began, totals, lengths = np.ones(5, bool), np.zeros(5), np.zeros(5, np.int32)
    for part in parts:
        for step in range(40):
            same(part.observation[step], observation)
            action, extras = table(0.01, observation, None)
            observation, reward, terminated, truncated, infos = envs.step(action)
            totals = np.where(began, 0, totals) + reward
            lengths = np.where(began, np.int32(0), lengths) + np.int32(1)
            final = observation.copy()
            for row in np.flatnonzero(terminated | truncated):
                final[row] = infos["final_obs"][row]
            same(
                tuple(x[step] for x in part[1:10] if not isinstance(x, dict)),
                (action, reward, terminated, truncated, final, began, totals, lengths),
            )
            same(part.extras["lean"][step], extras["lean"])
            began = terminated | truncated
    assert sum(part.terminated.sum() for part in parts) > 5
    same(parts[0].group, np.repeat(np.arange(groups), np.bincount(parts[0].group)))
    assert not any(part.restarted.any() for part in parts)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_random_numbers_follow_from_seed_group_segment_and_step(client, library):
    def policy(params, observation, key):
        if library == "jax":
            return jax.random.randint(key, observation.shape[:1], 0, 2), None
        return key.integers(observation.shape[:1], 0, 2), None

    options = {"num_steps": 6, "groups": 2, "policy_xp": library}
    one, other = (collected([CARTPOLE] * 4, policy, None, client, 3, **options) for _ in range(2))
    for x, y in zip(one, other, strict=True):
        same(x, y)
    if library != "jax":
        rng = af.registry.backend(library).random((3, 1, 2, 5))
        assert one[2].action[5, 2:].tolist() == rng.integers((2,), 0, 2).tolist()
    else:
        key = af.registry.backend("jax").random((3, 1, 2)).key()
        drawn = jax.random.randint(jax.random.fold_in(key, 5), (2,), 0, 2)
        assert one[2].action[5, 2:].tolist() == drawn.tolist()


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_policies_with_a_state(client, library):
    def policy(params, observation, key, steps):
        return (steps % 2 == 0) * 1, {"steps": steps}, steps + 1

    start = np.arange(4, dtype=np.float32) * 10
    first, second = collected(
        [CARTPOLE] * 4, policy, None, client, 2, num_steps=30, policy_xp=library, policy_state=start
    )
    length = np.concatenate([first.episode_length, second.episode_length])
    steps = np.concatenate([first.extras["steps"], second.extras["steps"]])
    np.testing.assert_array_equal(steps, start + length - 1)
    assert (length == 1).sum() > 4


def test_a_module_with_a_state(client):
    class Alternates(torch.nn.Module):
        def forward(self, observation, steps):
            return (steps % 2).int(), steps + 1

    (segment,) = collected(
        [CARTPOLE] * 4, Alternates(), None, client, 1, num_steps=12, policy_state=np.zeros(4)
    )
    np.testing.assert_array_equal(segment.action, (segment.episode_length - 1) % 2)


def test_a_module_and_its_weights(client):
    class Best(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, observation):
            return self.linear(observation).argmax(-1)

    module = Best()
    with Collector(
        [CARTPOLE] * 4, module, num_steps=8, client=client, seed=1, to="torch"
    ) as collector:
        for version, state in enumerate([None, Best().state_dict(), Best()]):
            if state is not None:
                module.load_state_dict(state if isinstance(state, dict) else state.state_dict())
                collector.update(state)
            part = next(collector)
            assert part.version.tolist() == [version] * 4
            assert torch.equal(part.action, module(part.observation))
            assert part.extras is None
            assert part.action.grad_fn is None


def test_weights_are_those_at_the_time_of_the_update(client):
    params = torch.ones(4, requires_grad=True)
    with Collector(
        [CARTPOLE] * 2, leaning, params, num_steps=4, client=client, policy_xp="torch"
    ) as collector:
        next(collector)
        collector.update(params)
        with torch.no_grad():
            params *= -1
        part = next(collector)
        assert part.version.tolist() == [1, 1]
        np.testing.assert_array_equal(part.action, part.observation.sum(-1) > 0)


def test_asynchronous_segments_are_each_returned_once_and_in_order(client):
    slow = [CARTPOLE] * 2 + [Sleeping] * 2
    with Collector(
        slow, leaning, WEIGHTS, num_steps=8, groups=2, client=client, seed=3, mode="async"
    ) as collector:
        seen = {0: [], 1: []}
        while len(seen[1]) < 2:
            part = next(collector)
            (group,) = set(part.group.tolist())
            seen[group].append(part)
            collector.update(WEIGHTS)
        assert len(seen[0]) > 4 * len(seen[1])  # a slow group holds nobody up
        versions = [part.version[0] for part in seen[0]]
        assert versions == sorted(versions)
        assert versions[-1] > 0
        stats = collector.stats
    fast = [CARTPOLE] * 4  # the slow group makes no difference to the other
    expected = collected(fast, leaning, WEIGHTS, client, len(seen[0]), num_steps=8, groups=2)
    for part, whole in zip(seen[0], expected, strict=True):
        same(part.observation, whole.observation[:, :2])
    assert stats.segments >= len(seen[0]) + len(seen[1])
    assert stats.steps == stats.segments * 16
    assert stats.lost == 0
    assert len(stats.workers) == 2
    assert all(0 <= own.idle <= 1 for own in stats.workers.values())


class Sleeping(gym.Env):
    observation_space = gym.make("CartPole-v1").observation_space
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(0.01)
        return np.zeros(4, np.float32), 1.0, False, False, {}


def functional(params, observation, key):
    return jax.random.bernoulli(key, jax.nn.sigmoid(observation @ params)).astype(int), {
        "x": observation[:, 0]
    }


def test_functional_environments_are_rollouts(client):
    parts = collected(CartPole, functional, WEIGHTS, client, 2, num_steps=30, num_envs=5, groups=2)
    params = jnp.asarray(WEIGHTS)
    for group, rows in enumerate([slice(0, 2), slice(2, 5)]):
        carry = None
        for number, part in enumerate(parts):
            key = af.registry.backend("jax").random((3, group, number)).key()
            n = rows.stop - rows.start
            carry, expected = rollout(CartPole(), functional, params, key, 30, n, carry=carry)
            for name in expected._fields[:-2]:
                jax.tree.map(
                    lambda x, y: np.testing.assert_array_equal(x[:, rows], y),  # noqa: B023
                    getattr(part, name),
                    getattr(expected, name),
                )


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_checkpoint_goes_on_exactly(client, mode):
    options = {"num_steps": 12, "num_envs": 4, "groups": 2, "mode": mode, "seed": 3}
    with Collector(CartPole, functional, WEIGHTS, client=client, **options) as collector:
        next(collector)
        state = pickle.loads(pickle.dumps(collector.state_dict()))
        after = [next(collector) for _ in range(3)]
    with Collector(CartPole, functional, WEIGHTS, client=client, **options) as collector:
        collector.load_state_dict(state)
        again = [next(collector) for _ in range(3)]
        with pytest.raises(af.OptionError, match="num_steps"):
            collector.load_state_dict({**state, "num_steps": 13})
        numbers = ("numbers", [1]), ("numbers", [-1, 1])
        others = ("version", "a"), ("restarts", None), ("states", [1, 2])
        for name, value in (*numbers, *others):
            with pytest.raises(af.OptionError, match="is not a state of a collector"):
                collector.load_state_dict({**state, name: value})
        with pytest.raises(af.OptionError):
            collector.load_state_dict({"nonsense": 1})
    for group in range(2):
        one, other = ([part for part in parts if group in part.group] for parts in (after, again))
        for x, y in zip(one, other, strict=False):
            same(x, y)
    assert {0, 1} >= {int(group) for part in again for group in part.group}


def test_ordinary_environments_begin_anew_from_a_checkpoint(client):
    options = {"num_steps": 5, "groups": 2, "seed": 3}
    with Collector([CARTPOLE] * 4, drawing, None, client=client, **options) as collector:
        next(collector)
        state = collector.state_dict()
        assert not next(collector).restarted.any()
        collector.load_state_dict(state)
        one = next(collector)
        assert one.restarted.all()
        assert one.began[0].all()
        assert not next(collector).restarted.any()
        collector.load_state_dict(state)
        same(next(collector), one)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_trajectories_stay_on_the_workers(client, mode):
    with Collector(
        CartPole, functional, WEIGHTS, num_steps=9, num_envs=6, groups=2, seed=3, client=client,
        to="dask", mode=mode, infos=(),
    ) as collector:  # fmt: skip
        part = next(collector)
        if mode == "sync":
            assert part.observation.chunks == ((9,), (3, 3), (4,))
            (expected,) = collected(
                CartPole, functional, WEIGHTS, client, 1, num_steps=9, num_envs=6, groups=2
            )
            np.testing.assert_array_equal(
                client.compute(part.observation).result(), expected.observation
            )
            blocks = list(af.stream(part.reward, "numpy", client=client))
            np.testing.assert_array_equal(np.concatenate(blocks), expected.reward)
        else:
            assert part.observation.shape == (9, 3, 4)
            next(collector), next(collector)
        del part

    def held():
        return sum(
            client.run(
                lambda dask_worker: len([k for k in dask_worker.data if "arrayferry" in str(k)])
            ).values()
        )

    eventually(lambda: held() == 0)


def test_infos(client, tmp_path):
    class Telling(Counting):
        def step(self, action):
            *rest, info = super().step(0)
            if self.t % 2:
                info = {"t": self.t, "deep": np.ones((2, 3)) * self.t}
            return *rest, info

    folder = str(tmp_path)
    makers = [lambda i=i: Telling(folder, i, 5) for i in range(3)]

    options = {"num_steps": 6, "groups": 2, "infos": ("t", "deep", "never")}
    (part,) = collected(makers, still, None, client, 1, **options)
    odd = part.episode_length % 2 == 1
    np.testing.assert_array_equal(part.info["_t"], odd)
    np.testing.assert_array_equal(part.info["t"], np.where(odd, part.episode_length, 0))
    assert part.info["deep"].shape == (6, 3, 2, 3)
    assert not part.info["_never"].any()
    assert part.info["never"].shape == (6, 3)


# What goes wrong.


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_environment_that_raises_is_named(client, mode):
    makers = [lambda: Failing("none")] * 3 + [lambda: Failing("raise")]

    def policy(params, observation, key):
        return (observation[:, 0] * params).astype(int), None

    with Collector(
        makers, policy, np.float32(0), num_steps=4, groups=2, client=client, seed=3, mode=mode
    ) as collector:
        next(collector)
        collector.update(np.float32(1))
        with pytest.raises(
            EnvFailedError,
            match=r"environment 3 raised KeyError: 'broken part', in step \d of segment \d of group 1",
        ) as failure:
            list(itertools.islice(collector, 50))
        assert failure.value.indices == (3,)
        collector.update(np.float32(0))
        parts = list(itertools.islice(collector, 8))
        while not any(part.restarted.any() for part in parts):
            parts.append(next(collector))
        restarts = [part.restarted[part.group == 1].all() for part in parts if 1 in part.group]
        assert restarts.count(True) == 1
        assert restarts.index(True) <= (mode == "async")  # one was ready before the failure


def test_actions_are_checked_strictly_where_that_is_asked_for(client):
    def wide(params, observation, key):
        return np.full((2, 1), 100.0), None  # float64, beyond the limits

    makers = [functools.partial(gym.make, "Pendulum-v1")] * 2
    options = {"num_steps": 3, "groups": 1, "client": client}
    with Collector(makers, wide, check_actions="fit", **options) as collector:
        assert next(collector).action.dtype == np.float64
    with (
        Collector(makers, wide, check_actions="strict", **options) as collector,
        pytest.raises(PolicyFailedError, match="in step 0 of segment 0"),
    ):
        next(collector)


def test_an_interrupted_call_loses_nothing(client, monkeypatch):
    options = {"num_steps": 4, "groups": 2, "client": client, "seed": 3}
    expected = collected([CARTPOLE] * 4, drawing, None, client, 3, num_steps=4, groups=2)
    with Collector([CARTPOLE] * 4, drawing, None, **options) as collector:
        pool = collector._placement.pool
        receive, interrupted = pool.receive, []

        def interrupting(*args):
            result = receive(*args)
            if len(interrupted) < 2:
                interrupted.append(True)
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(pool, "receive", interrupting)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                next(collector)
        for part in expected:
            same(next(collector), part)


class Numbering(gym.Env):
    """Returns how many steps it has taken in all."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.array([self.steps], float), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps], float), 1.0, False, False, {}


def check_with_interrupt(mode, comes, *, loses):
    """Collect segments, and check that each comes once. An interrupt comes at one line of the second or third call.

    Args:
        mode: of the collector.
        comes: is given each line that the collector comes to, and returns whether the interrupt comes there.
        loses: whether a host is lost before the second call.

    Returns:
        Whether there was an interrupt.
    """
    folder = os.path.dirname(arrayferry_gym.distributed.__file__)
    told = []

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "line" and not told and comes(frame):
            told.append(f"{frame.f_code.co_qualname} {frame.f_lineno}")
            raise KeyboardInterrupt
        return trace

    def policy(params, observation, key):
        return np.zeros(len(observation), int), np.full(len(observation), params)

    engine = ThreadEngine(2)
    with Collector(
        [Numbering] * 2, policy, 0, num_steps=2, groups=2, mode=mode, engine=engine
    ) as collector:
        seen, restarts, calls = {0: [], 1: []}, 0, 0
        while min(map(len, seen.values())) < 3:
            calls += 1
            if calls == 2 and loses:
                engine.gone.append(collector._placement.hosts[0].handle)
            before = sys.gettrace()
            if 1 < calls < 4:
                sys.settrace(trace)
            try:
                part = next(collector)
            except KeyboardInterrupt:
                collector.update(collector.version + 1)
                continue
            finally:
                sys.settrace(before)
            restarts += part.restarted.sum()
            for row, group in enumerate(part.group.tolist()):
                if part.restarted[row]:
                    seen[group] = []
                seen[group].append(int(part.observation[0, row, 0]))
                assert part.extras[0, row] == part.version[row], told
    for numbers in seen.values():
        assert numbers == list(range(0, 2 * len(numbers), 2)), (told, seen)
    assert restarts == loses
    return bool(told)


@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupt_at_any_line_loses_nothing(mode, loses):
    places = {}

    def noted(frame):
        places.setdefault((frame.f_code, frame.f_lineno))

    check_with_interrupt(mode, noted, loses=loses)
    assert len(places) > 80
    for place in places:
        at_that = lambda frame, at=place: (frame.f_code, frame.f_lineno) == at  # noqa: E731
        check_with_interrupt(mode, at_that, loses=loses)


@pytest.mark.long
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupt_at_any_moment_loses_nothing(mode, loses):
    for number in range(10_000):
        left = iter(range(number, -1, -1))
        if not check_with_interrupt(mode, lambda frame, left=left: next(left) == 0, loses=loses):
            break
    assert number > 200


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_worker_that_is_lost_while_the_groups_of_another_are_made_again(mode, monkeypatch):
    engine = ThreadEngine(2)
    options = {"num_steps": 2, "groups": 2, "mode": mode, "engine": engine}
    with Collector([Numbering] * 2, drawing, **options) as collector:
        for _ in range(4):
            next(collector)
        first, second = (host.handle for host in collector._placement.hosts)
        engine.gone.append(first)

        def workers():
            if second not in engine.gone:
                engine.gone.append(second)
                return ["worker 1"]
            return engine.names

        monkeypatch.setattr(engine, "workers", workers)
        seen = {0: [], 1: []}
        while min(map(len, seen.values())) < 3:
            part = next(collector)
            for row, group in enumerate(part.group.tolist()):
                seen[group].append((part.restarted[row], part.observation[0, row, 0]))
        for parts in seen.values():
            begins = [number for restarted, number in parts].index(0)
            assert parts[begins:][:2] == [(True, 0), (False, 2)][: len(parts) - begins]
        assert collector.stats.lost == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_error_after_the_last_step_loses_nothing(mode, monkeypatch):
    options = {"num_steps": 2, "groups": 1, "mode": mode, "to": "torch"}
    with Collector([Numbering] * 2, still, engine=ThreadEngine(1), **options) as collector:
        convert, failures = collector._convert, [MemoryError, af.ConversionError("no memory")]

        def failing(value):
            if failures:
                raise failures.pop()
            return convert(value)

        monkeypatch.setattr(collector, "_convert", failing)
        for error in (af.ConversionError, MemoryError):
            with pytest.raises(error):
                next(collector)
        assert [int(next(collector).observation[0, 0, 0]) for _ in range(3)] == [0, 2, 4]


def test_an_environment_that_cannot_be_made_is_named(client):
    def broken():
        raise ValueError("no display")

    with pytest.raises(
        EnvFailedError, match="environment 1 raised ValueError: no display"
    ) as failure:
        Collector(
            [CARTPOLE, broken, CARTPOLE], leaning, WEIGHTS, num_steps=4, client=client, groups=1
        )
    assert failure.value.indices == (1,)


class Misshapen(Numbering):
    """Returns an observation of another shape at the first reset, or after some steps."""

    def __init__(self, after=None):
        self.after = after

    def _shown(self):
        return np.zeros(2 if self.steps == self.after else 1)

    def reset(self, *, seed=None, options=None):
        return self._shown(), {}

    def step(self, action):
        self.steps += 1
        return self._shown(), 1.0, False, False, {}


@pytest.mark.parametrize("after", [0, 1])
def test_a_wrong_shape_names_its_environment(after):
    makers = [Numbering, functools.partial(Misshapen, after), Numbering]
    options = {"num_steps": 2, "groups": 1, "engine": ThreadEngine(1)}
    with (
        Collector(makers, drawing, **options) as collector,
        pytest.raises(EnvFailedError, match="environment 1 raised ValueError") as failure,
    ):
        next(collector)
    assert failure.value.indices == (1,)
    envs = DistributedVectorEnv(makers, engine=ThreadEngine(1))
    with pytest.raises(EnvFailedError, match="environment 1 raised ValueError") as failure:
        (envs.reset(), envs.step([0, 0, 0]))
    assert failure.value.indices == (1,)
    envs.close()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda params, observation, key: (1 / params, None), r"ZeroDivisionError.*in step 0 of segment 0 of "),
        (lambda params, observation, key: 1, "the policy returned int, not 2"),
    ],
)  # fmt: skip
def test_a_policy_that_raises_is_named(client, policy, words):
    with (
        Collector([CARTPOLE] * 2, policy, 0.0, num_steps=4, client=client) as collector,
        pytest.raises(PolicyFailedError, match=words),
    ):
        next(collector)


class Unloadable(np.ndarray):
    """Weights that can be sent, and not be loaded."""

    def __reduce__(self):
        return _refused, ()


def _refused():
    raise ModuleNotFoundError("no module named 'theirs'", name="theirs")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_weights_that_cannot_be_loaded_are_replaced_by_no_others(mode):
    """Only the first of two groups is sent the weights that both need."""

    def policy(params, observation, rng):
        count = len(observation)
        return np.zeros(count, int), np.full(count, params)

    with Collector(
        [Numbering] * 2, policy, 0, num_steps=2, groups=2, mode=mode, engine=ThreadEngine(1)
    ) as collector:
        parts = [next(collector)]
        collector.update(np.zeros(()).view(Unloadable))
        with pytest.raises(WorkerSetupError, match="cannot import theirs"):
            parts.extend(itertools.islice(collector, 8))
        collector.update(2)
        parts.extend(itertools.islice(collector, 8))
    for part in parts:
        np.testing.assert_array_equal(part.extras, [part.version] * 2)
    assert parts[-1].version.tolist() == [2] * len(parts[-1].version)


def test_an_environment_that_hangs(mortal):
    policy = lambda params, observation, key: (np.ones(len(observation), int), None)  # noqa: E731
    makers = [lambda: Failing("none"), lambda: Failing("hang")]
    with Collector(makers, policy, num_steps=4, groups=2, client=mortal, timeout=2.0) as collector:
        begun = time.monotonic()
        place = "environment 1 did not answer within 2 s, in step 0 of segment 0 of group 1, on"
        with pytest.raises(EnvTimeoutError, match=place) as failure:
            next(collector)
        assert "ask for the next trajectories: its group begins anew" in str(failure.value)
        assert time.monotonic() - begun < 20


def test_the_timeout_counts_for_a_step(client):
    makers = [Sleeping] * 2
    (part,) = collected(makers, leaning, WEIGHTS, client, 1, num_steps=150, groups=2, timeout=0.8)
    assert part.reward.shape == (150, 2)


@pytest.mark.parametrize(("mode", "kills", "segments"), [
    ("sync", 2, 30), ("async", 2, 60),
    pytest.param("sync", 10, 200, marks=pytest.mark.long),
    pytest.param("async", 10, 200, marks=pytest.mark.long),
])  # fmt: skip
def test_workers_that_are_killed(mortal, tmp_path, mode, kills, segments):
    """Nothing is lost but what is told, and nothing is doubled: the logs of the environments say so."""
    workers = DaskWorkers(mortal)
    eventually(workers.restored)
    makers = [lambda i=i: Counting(str(tmp_path), i) for i in range(4)]

    def policy(params, observation, key):
        return np.arange(len(observation)) + 1000, None

    rng = np.random.default_rng(0)
    at = set(rng.choice(np.arange(3, segments - 5), kills, replace=False).tolist())
    with Collector(
        makers, policy, num_steps=20, groups=2, client=mortal, seed=3, mode=mode
    ) as collector:
        seen, told = {env: [] for env in range(4)}, 0
        for number in range(segments):
            if number in at:
                eventually(workers.restored)
                names = sorted(mortal.scheduler_info()["workers"])
                kill(workers, names[number % 2])
                eventually(lambda: names[number % 2] not in mortal.nthreads())  # noqa: B023
            part = next(collector)
            for row, env in enumerate(part.observation[0, :, 0].astype(int).tolist()):
                seen[env].append((part.observation[:, row], part.restarted[row]))
            told += int(part.restarted.any())
        assert 1 <= told <= 2 * kills
        assert collector.stats.lost >= 1
        eventually(workers.restored)
        collector._placement._next_look = 0
        for _ in range(4):
            next(collector)
        eventually(
            lambda: (
                len({host.worker for host in collector._placement.hosts if host.envs}) == 2
                or next(collector) is None
            )
        )
    for env, parts in seen.items():
        expected = None
        for observations, restarted in parts:
            for row, observation in enumerate(observations):
                if expected is not None and not (restarted and row == 0):
                    t, draw = expected
                    # the next step of the episode, or the first of another one
                    assert observation[1] in (t + 1, 0), (env, observation, expected)
                    if observation[1]:
                        assert observation[2] == draw
                    else:
                        assert t == 37 + env - 1
                expected = observation[1], observation[2]


def arrays_nowhere(dask_scheduler):
    tasks = dask_scheduler.tasks.values()
    return [task.key for task in tasks if task.state == "memory" and not task.who_has]


def test_a_worker_that_dies_when_it_has_answered(mortal, monkeypatch):
    """Its arrays are gone before the scheduler knows of them, so that the segment is collected again."""
    workers = DaskWorkers(mortal)
    with Collector(
        [Numbering] * 2, drawing, num_steps=2, groups=2, seed=3, client=mortal, to="dask"
    ) as collector:
        collector._placement._next_look = float("inf")  # groups stay where they are
        engine = collector._placement.pool.engine
        assemble, killed = engine.assemble, []

        def fatal(references):
            if not killed:
                (array,) = {array.worker: array for array in references[0]}.values()
                killed.append(array.worker)
                kill(workers, array.worker)
                eventually(lambda: array.worker not in mortal.nthreads())
            return assemble(references)

        monkeypatch.setattr(engine, "assemble", fatal)
        parts = [next(collector) for _ in range(3)]
        assert [part.restarted.sum() for part in parts] == [1, 0, 0]
        seen = mortal.gather(mortal.compute([part.observation for part in parts]))
        assert np.concatenate(seen)[:, :, 0].tolist() == [[x, x] for x in range(6)]
        assert collector.stats.lost == 1
        eventually(lambda: not mortal.run_on_scheduler(arrays_nowhere))


def test_memory_is_flat(client):
    def size():
        import psutil

        return sum(client.run(lambda: psutil.Process().memory_info().rss).values())

    with Collector(
        [CARTPOLE] * 2, leaning, WEIGHTS, num_steps=64, client=client, to="dask"
    ) as collector:
        for _ in range(20):
            next(collector)
        data = client.run(lambda dask_worker: len(dask_worker.data))
        before = size()
        for _ in range(100):
            next(collector)
        eventually(
            lambda: (
                sum(client.run(lambda dask_worker: len(dask_worker.data)).values())
                <= sum(data.values()) + 30
            )
        )
        assert size() - before < 30e6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"mode": "fast"}, "mode='fast'"),
        ({"seed": -1}, "seed=-1"),
        ({"num_envs": 3}, "num_envs=3"),
        ({"groups": 0}, "groups=0"),
        ({"policy_state": np.zeros(3)}, "policy_state"),
        ({"env_params": {}}, "FunctionalEnv"),
        ({"infos": (1,)}, "infos"),
        ({"policy": 3}, "cannot be called"),
        ({"envs": CartPole, "num_envs": 2, "policy_xp": "torch"}, "computes in JAX"),
        ({"envs": CartPole}, "num_envs"),
        ({"policy": functools.partial(leaning, threading.Lock())}, "pickled"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_options_are_checked(client, options, match):
    options = {"num_steps": 4, **options}
    envs, policy = options.pop("envs", [CARTPOLE] * 2), options.pop("policy", leaning)
    with pytest.raises(af.OptionError, match=match):
        Collector(envs, policy, client=client, **options)


def test_a_collector_that_is_closed(client):
    collector = Collector([CARTPOLE] * 2, leaning, WEIGHTS, num_steps=4, client=client)
    assert "2 environments" in repr(collector)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(collector)
    collector.close()
    collector.close()
    for use in (lambda: next(collector), lambda: collector.update(1), collector.state_dict):
        with pytest.raises(NotReadyError, match="closed"):
            use()


def test_steps_in_the_background(client):
    envs = DistributedVectorEnv([Sleeping] * 4, client=client)
    envs.reset(seed=1)
    with pytest.raises(NotReadyError, match="step_async first"):
        envs.step_wait()
    begun = time.perf_counter()
    envs.step_async([0, 1, 0, 1])
    assert time.perf_counter() - begun < 0.015
    for use in (lambda: envs.step([0] * 4), envs.reset, lambda: envs.step_async([0] * 4)):
        with pytest.raises(NotReadyError, match="step_wait first"):
            use()
    assert envs.step_wait()[1].tolist() == [1.0] * 4
    assert envs.step([0] * 4)[1].tolist() == [1.0] * 4
    envs.step_async([0] * 4)
    envs.close()
    assert os.getpid()
