"""Trajectories that are collected on workers, beside loops in one process."""

import ast
import asyncio
import functools
import gc
import importlib
import itertools
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import dask
import distributed
import distributed.actor
import gymnasium as gym
import jax
import numpy as np
import pytest
import remote_workers
import torch
from cases import crossed, quick_if
from clusters import certificate, local_cluster, tls_settings
from gymnasium.vector import SyncVectorEnv
from remote_workers import CARTPOLE, WEIGHTS, Failing, Numbering, eventually, functional, same

import arrayferry as af
import arrayferry_cluster
from arrayferry._utilities.options import stream_seed
from arrayferry_cluster import Collector, EnvFailedError, PolicyFailedError, WorkerSetupError
from arrayferry_cluster._dask.groups import LINKED
from arrayferry_cluster._workers.infos import Infos
from arrayferry_envs import CartPole, Pendulum, rollout, wrap
from arrayferry_gym import make_rng
from arrayferry_gym.wrappers import kernels, merge
from arrayferry_gym.wrappers.kernels import NormalizeObservation

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture(scope="module")
def client():
    """A client of two workers in this process, where JAX compiles once for all tests."""
    with remote_workers.connected(processes=False) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """Nothing is left on the cluster."""
    yield
    if "client" in request.fixturenames:
        client = request.getfixturevalue("client")
        eventually(lambda: not remote_workers.held(client) or gc.collect() < 0, 20)


def leaning(params, observation, key, lock=None):
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


@pytest.mark.parametrize("groups", quick_if([1, 2, 3], lambda groups: groups == 2))
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


class Doubling(gym.RewardWrapper):
    @af.agnostic("torch")
    def reward(self, reward):
        return 2 * reward


def test_environments_may_have_methods_for_any_library(client):
    @af.agnostic("torch")
    def standing(x):
        return torch.zeros(len(x), dtype=torch.int64)

    makers = [lambda: Doubling(CARTPOLE())] * 2
    policy = lambda params, x, rng: (standing(x), None)  # noqa: E731
    (part,) = collected(makers, policy, None, client, 1, num_steps=3)
    assert (part.reward == 2).all()


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_random_numbers_follow_from_seed_group_and_segment(client, library):
    def policy(params, observation, key):
        if library == "jax":
            return jax.random.randint(key, observation.shape[:1], 0, 2), None
        return key.integers(observation.shape[:1], 0, 2), None

    options = {"num_steps": 6, "groups": 2, "policy_xp": library}
    one, other = (collected([CARTPOLE] * 4, policy, None, client, 3, **options) for _ in range(2))
    for x, y in zip(one, other, strict=True):
        same(x, y)
    if library != "jax":
        rng = make_rng(library, stream_seed("policy", 3, 1, 2))
        drawn = [rng.integers((2,), 0, 2).tolist() for _ in range(6)]
        assert one[2].action[:, 2:].tolist() == drawn
    else:
        key = make_rng("jax", stream_seed("policy", 3, 1, 2)).key()
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
    class Best(torch.nn.Linear):
        def forward(self, observation):
            return super().forward(observation).argmax(-1)

    module = Best(4, 2)
    with Collector(
        [CARTPOLE] * 4, module, num_steps=8, client=client, seed=1, xp="torch"
    ) as collector:
        for version, state in enumerate([None, Best(4, 2).state_dict(), Best(4, 2)]):
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


class Waiting(Numbering):
    """Its steps wait until there is a file."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def step(self, action):
        eventually(lambda: os.path.exists(self.path))
        return super().step(action)


def test_asynchronous_segments_are_each_returned_once_and_in_order(client, tmp_path):
    path = str(tmp_path / "on")
    slow = [Numbering] * 2 + [functools.partial(Waiting, path)] * 2
    with Collector(
        slow, drawing, num_steps=8, groups=2, client=client, seed=3, mode="async"
    ) as collector:
        seen = {0: [], 1: []}
        while len(seen[1]) < 2:
            part = next(collector)
            (group,) = set(part.group.tolist())
            seen[group].append(part)
            collector.update(WEIGHTS)
            if group == 0 and len(seen[0]) == 6:  # a slow group holds nobody up
                assert not seen[1]
                Path(path).touch()
        versions = [part.version[0] for part in seen[0]]
        assert versions == sorted(versions)
        assert versions[-1] > 0
        stats = collector.stats
    assert stats.segments == len(seen[0]) + len(seen[1])
    assert stats.steps == stats.segments * 16
    assert stats.lost == 0
    fast = [Numbering] * 4  # the slow group makes no difference
    expected = collected(fast, drawing, None, client, 6, num_steps=8, groups=2)
    for part, whole in zip(seen[0], expected, strict=False):
        same((part.observation, part.action), (whole.observation[:, :2], whole.action[:, :2]))
    for part, whole in zip(seen[1], expected, strict=False):
        same((part.observation, part.action), (whole.observation[:, 2:], whole.action[:, 2:]))


def swinging(params, observation, key):
    return jax.random.uniform(key, (len(observation), 1), minval=-2, maxval=2), None


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        (CartPole(), functional),
        pytest.param(wrap(Pendulum(), NormalizeObservation()), swinging, marks=pytest.mark.long),
    ],
)
def test_functional_environments_are_rollouts(client, env, policy):
    options = {"num_steps": 30, "num_envs": 5, "groups": 2, "infos": ()}
    parts = collected(env, policy, WEIGHTS, client, 10, **options)
    for group, rows in enumerate([slice(0, 2), slice(2, 5)]):
        carry = None
        for number, part in enumerate(parts):
            key = make_rng("jax", stream_seed("segment", 3, group, number)).key()
            n = rows.stop - rows.start
            carry, expected = rollout(env, policy, WEIGHTS, key, 30, n, carry=carry)
            own = jax.tree.map(lambda x: x[:, rows], tuple(part[:10]))  # noqa: B023
            same(own, jax.tree.map(np.asarray, tuple(expected[:10])))


def exact(params, observation, key, offset):
    lean = observation @ params + offset
    wide = jax.numpy.full(len(observation), 2**40 if jax.config.jax_enable_x64 else 1)
    return (lean > 0) * 1, {"lean": lean, "wide": wide, "bits": jax.random.bits(key, wide.shape)}


@pytest.mark.parametrize("kind", ["ordinary", "functional"])
def test_jax_computes_with_the_settings_of_the_collector(client, enable_x64, kind):
    envs = [CARTPOLE] * 2 if kind == "ordinary" else CartPole
    options = {"num_steps": 3, "num_envs": 2, "groups": 1, "policy_xp": "jax"}
    with enable_x64(True):
        policy = functools.partial(exact, offset=jax.numpy.asarray(1 / 3))
        params = np.full(4, 1.1)
    for is_wide in (True, False, True):
        with enable_x64(is_wide), jax.threefry_partitionable(not is_wide):
            (part,) = collected(envs, policy, params, client, 1, **options)
            lean, extras = part.observation[0] @ params + 1 / 3, part.extras
            key = make_rng("jax", stream_seed("policy", 3, 0, 0)).key()
            bits = np.asarray(jax.random.bits(jax.random.fold_in(key, 0), (2,)))
        assert extras["lean"].dtype == (np.float64 if is_wide else np.float32)
        np.testing.assert_allclose(extras["lean"][0], lean, 1e-12 if is_wide else 1e-5)
        assert (extras["wide"] == (2**40 if is_wide else 1)).all()
        if kind == "ordinary":
            np.testing.assert_array_equal(extras["bits"][0], bits)


def tasks(client):
    keys = client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.tasks])
    return sum(str(key).startswith("segment") for key in keys)


@remote_workers.MODES
def test_chains_of_linked_segments_are_short(client, mode):
    options = {"num_steps": 500, "num_envs": 100, "groups": 1, "client": client, "mode": mode}
    with Collector(CartPole, functional, WEIGHTS, **options) as collector:
        counts = []
        for params in itertools.repeat(WEIGHTS, 3 * LINKED):
            next(collector)
            collector.update(params)
            counts.append(tasks(client))
    assert 1 < max(counts) <= LINKED + 4  # three more are under way or not yet returned


@remote_workers.MODES
def test_a_checkpoint_goes_on_exactly(client, mode):
    options = {"num_steps": 12, "num_envs": 4, "groups": 2, "mode": mode, "seed": 3}
    with Collector(CartPole, functional, WEIGHTS, client=client, **options) as collector:
        first = collector.state_dict()
        before = next(collector)
        state = pickle.loads(pickle.dumps(collector.state_dict()))
        after = [next(collector) for _ in range(3)]
        collector.load_state_dict(first)
        if mode == "sync":
            same(next(collector), before)
    with Collector(CartPole, functional, WEIGHTS, client=client, **options) as collector:
        next(collector)
        collector.load_state_dict(state)
        again = [next(collector) for _ in range(3)]
        with pytest.raises(af.OptionError, match=r"the state has \(groups, seed\) = \(2, 4\)"):
            collector.load_state_dict({**state, "seed": 4})
    for group in range(2):
        one, other = ([part for part in parts if group in part.group] for parts in (after, again))
        for x, y in zip(one, other, strict=False):
            same(x, y)
    with Collector([CARTPOLE], drawing, num_steps=2, client=client) as collector:
        next(collector)
        with pytest.raises(
            af.OptionError, match="ordinary environments cannot be saved in a state"
        ):
            collector.load_state_dict(collector.state_dict())


def test_a_checkpoint_after_a_failure_begins_anew(client):
    options = {"num_steps": 3, "num_envs": 4, "groups": 1, "seed": 3, "client": client}
    with Collector(CartPole, functional, WEIGHTS, **options) as collector:
        next(collector)
        collector.update(np.ones(5))
        with pytest.raises(EnvFailedError):
            next(collector)
        collector.update(WEIGHTS)
        state = pickle.loads(pickle.dumps(collector.state_dict()))
        expected = [next(collector) for _ in range(2)]
    assert expected[0].restarted.all()
    assert expected[0].began[0].all()
    with Collector(CartPole, functional, WEIGHTS, **options) as collector:
        collector.load_state_dict(state)
        for part in expected:
            same(next(collector), part)
        del state["restarts"]  # as older versions save it
        collector.load_state_dict(state)
        assert not next(collector).began[0].any()


class Named(gym.Wrapper):
    """Its info is text."""

    def step(self, action):
        return *self.env.step(action)[:4], {"name": "a"}


def named():
    return Named(gym.make("CartPole-v1"))


def test_infos_that_are_no_arrays_are_the_environments(client):
    with pytest.raises(EnvFailedError, match=r"environment.* raised .* the info 'name'"):
        collected([named] * 2, still, None, client, 1, num_steps=2, infos=("name",))


class Endless(CartPole):
    max_episode_steps = None


def test_kernels_that_need_the_limit_get_the_one_that_is_passed(client):
    env = wrap(Endless(), kernels.TimeAwareObservation())
    options = {"num_steps": 6, "num_envs": 2, "max_episode_steps": 4}
    with Collector(env, functional, np.ones(5), client=client, **options) as collector:
        assert collector.single_observation_space.shape == (5,)
        (part,) = itertools.islice(collector, 1)
    assert part.observation.shape == (6, 2, 5)
    assert part.observation[:, 0, 4].max() == 3


def test_statistics_of_kernels_are_read_merged_and_loaded(client):
    env = wrap(CartPole(), NormalizeObservation())
    options = {"num_steps": 6, "num_envs": 4, "groups": 2, "seed": 3, "client": client}
    with Collector(env, functional, WEIGHTS, **options) as collector:
        assert collector.statistics() == []
        next(collector)
        parts = [each["obs_rms"] for each in collector.statistics()]
        assert parts[0] != parts[1]
        whole = merge(parts)
        assert whole["count"] == sum(part["count"] for part in parts) > 2 * 12
    with Collector(
        env, functional, WEIGHTS, **options, wrapper_state={"obs_rms": whole}
    ) as collector:
        next(collector)
        again = [each["obs_rms"]["count"] for each in collector.statistics()]
    assert again == [whole["count"] + part["count"] for part in parts]
    with (
        Collector(CartPole, functional, WEIGHTS, **options) as collector,
        pytest.raises(af.OptionError, match="has no kernels with statistics"),
    ):
        collector.statistics()
    with pytest.raises(af.OptionError, match="wrapper_state and max_episode_steps are for a Func"):
        Collector([CARTPOLE], still, num_steps=1, client=client, wrapper_state={"obs_rms": whole})
    with pytest.raises(af.OptionError, match="are for a FunctionalEnv, but envs are 1 functions"):
        Collector([CARTPOLE], still, num_steps=1, client=client, env_params=np.ones(2))


@pytest.mark.parametrize("count", [1, 3])
def test_infos(client, count):
    options = {"num_steps": 6, "groups": count, "infos": ("t", "deep", "never")}
    makers = [functools.partial(Numbering, 3 + i) for i in range(3)]
    (part,) = collected(makers, still, None, client, 1, **options)
    odd = part.episode_length % 2 == 1
    np.testing.assert_array_equal(part.info["_t"], odd)
    np.testing.assert_array_equal(part.info["t"], np.where(odd, part.episode_length, 0))
    assert part.info["deep"].shape == (6, 3, 2, 3)
    assert not part.info["_never"].any()
    assert part.info["never"].shape == (6, 3)
    with pytest.raises(
        EnvFailedError, match=r"infos names 't', but the infos of the environment are \[\]"
    ):
        collected(CartPole, functional, WEIGHTS, client, 1, num_steps=2, num_envs=2, infos=("t",))


# What goes wrong.


@pytest.mark.parametrize("mode", [pytest.param("sync", marks=pytest.mark.long), "async"])
def test_an_environment_that_raises_is_named(client, mode):
    makers = [lambda: Failing("none")] * 3 + [lambda: Failing("raise")]

    options = {"num_steps": 4, "groups": 2, "client": client, "seed": 3, "mode": mode}
    with Collector(makers, remote_workers.acting, 0, **options) as collector:
        next(collector)
        collector.update(1)
        words = r"environment 3 raised KeyError: 'broken part', in step \d of segment \d of group 1"
        with pytest.raises(EnvFailedError, match=words) as failure:
            list(itertools.islice(collector, 50))
        assert failure.value.indices == (3,)
        collector.update(0)
        parts = list(itertools.islice(collector, 8))
        while not any(part.restarted.any() for part in parts):
            parts.append(next(collector))
        restarts = [part.restarted[part.group == 1].all() for part in parts if 1 in part.group]
        assert restarts.count(True) == 1
        assert restarts.index(True) <= (mode == "async")  # one was ready before the failure


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_an_error_after_the_last_step_loses_nothing(client, mode, monkeypatch):
    options = {"num_steps": 2, "groups": 1, "mode": mode, "xp": "torch", "client": client}
    with Collector([Numbering] * 2, still, **options) as collector:
        convert, failures = collector._convert, [MemoryError, af.ConversionError("no memory")]

        def failing(value):
            if failures:
                raise failures.pop()
            return convert(value)

        monkeypatch.setattr(collector, "_convert", failing)
        for error in (af.ConversionError, MemoryError):
            with pytest.raises(error):
                next(collector)
        assert [int(next(collector).observation[0, 0, 1]) for _ in range(3)] == [0, 2, 4]


def test_an_environment_that_cannot_be_made_is_named(client):
    def broken():
        raise ValueError("no display")

    words = "environment 1 raised ValueError: no display"
    with pytest.raises(EnvFailedError, match=words) as failure:
        Collector([CARTPOLE, broken, CARTPOLE], leaning, WEIGHTS, num_steps=4, client=client)
    assert failure.value.indices == (1,)
    assert isinstance(failure.value.__cause__, ValueError)
    assert failure.value.worker in client.nthreads()
    with pytest.raises(arrayferry_cluster.SpaceMismatchError, match="environment 2") as mismatch:
        Collector([CARTPOLE, CARTPOLE, Failing], leaning, WEIGHTS, num_steps=4, client=client)
    assert mismatch.value.indices == (2,)


class Wrong(Numbering):
    """Returns something else as observation after some steps, the last of which may end an episode."""

    def __init__(self, observation, after, length=7):
        super().__init__(length)
        self.observation, self.after = observation, after

    def _shown(self):
        return self.observation if self.steps == self.after else np.zeros(3)


WRONG = [
    (np.zeros(2, np.float32), r"an array of shape \(2,\) and dtype float32"),
    (np.zeros(3, complex), r"an array of shape \(3,\) and dtype complex128"),
    (np.array([1, 2, None]), r"an array of shape \(3,\) and dtype object"),
    (None, "None"),
    ("text", "'text'"),
    ({"x": np.zeros(3)}, r"\{'x': an array of shape \(3,\) and dtype float64\}"),
]


@pytest.mark.parametrize(("after", "length"), [(0, 7), (2, 7), (2, 2)])
def test_an_environment_with_a_wrong_observation_is_named(client, after, length):
    for observation, words in WRONG:
        makers = [Numbering, Numbering, functools.partial(Wrong, observation, after, length)]
        with Collector(makers, drawing, 0.0, num_steps=4, groups=2, client=client) as collector:
            words = (
                f"environment 2 .* its observation is {words}, which does not fit .*Box.* group 1"
            )
            with pytest.raises(EnvFailedError, match=words) as failure:
                next(collector)
        assert failure.value.indices == (2,)


class Untold(Numbering):
    """Returns four values, or text as a reward."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def step(self, action):
        observation, _, *others = super().step(action)
        return (observation, "high", *others) if self.form == "reward" else (observation, *others)


@pytest.mark.parametrize(("form", "words"), [("reward", "numbers are needed"), ("four", "unpack")])
def test_an_environment_with_other_wrong_results_is_named(client, form, words):
    makers = [Numbering, functools.partial(Untold, form)]
    made = Collector(makers, drawing, 0.0, num_steps=4, groups=1, client=client)
    with made as collector, pytest.raises(EnvFailedError, match=f"environment 1 .*{words}"):
        next(collector)


class Reusing(Numbering):
    """Uses one array for all observations."""

    array = None

    def _shown(self):
        self.array = np.zeros(3) if self.array is None else self.array
        self.array[:] = super()._shown()
        return self.array


def test_environments_that_use_an_array_again(client):
    options = {"num_steps": 9, "groups": 1, "client": client}
    with Collector([functools.partial(Reusing, 3)], drawing, **options) as collector:
        part = next(collector)
    assert part.observation[:, 0, 2].tolist() == [0, 1, 2] * 3
    assert part.final_observation[:, 0, 2].tolist() == [1, 2, 3] * 3
    assert all(x.flags.writeable for x in (part.observation, part.reward, part.began))


class Unloaded:
    """A policy that cannot be loaded."""

    def __call__(self, params, observation, key):
        return drawing(params, observation, key)

    def __reduce__(self):
        return divmod, (1, 0)


GROUPS = [
    ([CARTPOLE] * 2, lambda params, observation, key: (1 / params, None), PolicyFailedError, r"ZeroDivisionError.*in step 0 of segment 0 of "),
    ([CARTPOLE] * 2, lambda params, observation, key: (np.full(len(observation), 7), None), PolicyFailedError, "step 0 of segment 0"),
    ([CARTPOLE] * 2, lambda params, observation, key: 1, PolicyFailedError, "the policy returned int, not an action and extras"),
    ([Numbering], Unloaded(), PolicyFailedError, "the policy raised ZeroDivisionError"),
]  # fmt: skip


@pytest.mark.parametrize(("envs", "policy", "error", "words"), GROUPS)
def test_a_failure_of_a_group_is_named(client, envs, policy, error, words):
    options = {"num_steps": 4, "groups": 1, "client": client}
    with Collector(envs, policy, 0.0, **options) as collector:
        with pytest.raises(error, match=words) as failure:
            next(collector)
        assert error is PolicyFailedError or failure.value.indices == (0, 1)


def test_results_of_groups_with_other_structures_are_named(client):
    def policy(params, observation, key):
        count = len(observation)
        return np.zeros(count, int), {"ab"[count - 1]: np.zeros(count)}

    envs = [CARTPOLE] * 3
    with Collector(envs, policy, num_steps=4, groups=2, seed=1, client=client) as collector:
        words = r"cannot be concatenated: their structures are .* and .*pass groups=1"
        with pytest.raises(af.OptionError, match=words):
            next(collector)


def test_a_compiled_segment_that_fails_is_named_and_begins_anew(client):
    def policy(params, observation, key):
        return functional(params["missing"], observation, key)

    options = {"num_steps": 4, "num_envs": 2, "groups": 1, "client": client}
    with Collector(CartPole, policy, {}, **options) as collector:
        for _ in range(2):
            words = r"KeyError: 'missing', in segment 0 of group 0"
            with pytest.raises(EnvFailedError, match=words):
                next(collector)
        collector.update({"missing": WEIGHTS})
        assert next(collector).restarted.all()
        assert not next(collector).restarted.any()


class Unloadable(np.ndarray):
    """Weights that can be sent, and not be loaded."""

    def __reduce__(self):
        return _refused, ()


def _refused():
    raise ModuleNotFoundError("no module named 'theirs'", name="theirs")


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_weights_that_cannot_be_loaded_are_replaced_by_no_others(client, mode):
    options = {"num_steps": 2, "groups": 2, "mode": mode, "client": client}
    with Collector([Numbering] * 2, remote_workers.versions, 0, **options) as collector:
        parts = [next(collector)]
        collector.update([np.zeros(()).view(Unloadable)])
        with pytest.raises(WorkerSetupError, match="cannot import theirs"):
            parts.extend(itertools.islice(collector, 8))
        collector.update(2)
        for _ in range(8):
            try:
                parts.append(next(collector))
            except WorkerSetupError:  # it was under way
                continue
    for part in parts:
        np.testing.assert_array_equal(part.extras, [part.version] * 2)
    assert parts[-1].version.tolist() == [2] * len(parts[-1].version)


def test_what_workers_cannot_import(tmp_path, monkeypatch):
    (tmp_path / "only_here_env.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    with remote_workers.connected(1) as client:
        monkeypatch.syspath_prepend(str(tmp_path))  # not on the worker, which is there already
        module = importlib.import_module("only_here_env")
        with pytest.raises(WorkerSetupError, match="cannot import only_here_env") as info:
            Collector([CARTPOLE] * 3 + [module.make], still, num_steps=2, client=client)
        assert (info.value.module, info.value.indices) == ("only_here_env", (3,))
        assert info.value.worker in client.nthreads()
        eventually(lambda: not remote_workers.held(client) or gc.collect() < 0)


def test_modules_of_two_groups_on_one_worker(client):
    """Groups in one process have different weights at the same time."""

    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(()))

        def forward(self, observation):
            return (self.bias + torch.zeros(len(observation))).long()

    options = {"num_steps": 2, "groups": 3, "mode": "async", "client": client}
    with Collector([Numbering] * 3, Constant(), **options) as collector:
        for number in range(1, 20):
            part = next(collector)
            assert (part.action == part.version % 2).all()
            collector.update({"bias": torch.tensor(float(number % 2))})


class Windy(CartPole):
    default_params = CartPole.default_params._replace(gravity=np.array(9.8, np.float32))

    def sample_params(self, xp, rng, n, params):
        return params._replace(gravity=rng.uniform((n,), 1.0, 2.0))

    def observe(self, xp, state, params):
        return xp.stack([params.gravity] * 4, axis=1)


def test_defaults_that_are_passed_are_drawn_on_workers(client):
    def first(gravity):
        params = Windy.default_params._replace(gravity=np.array(gravity))
        options = {"num_envs": 2, "num_steps": 2, "env_params": params}
        return collected(Windy(), functional, WEIGHTS, client, 1, **options)[0].observation[0]

    assert np.all(first(9.8) <= 2)
    assert np.all(first(9.5) == 9.5)


WRONG_OPTIONS = [
    ({"num_steps": 0}, "num_steps"),
    ({"mode": "fast"}, "mode='fast'"),
    ({"seed": -1}, "seed=-1"),
    ({"num_envs": 3}, "num_envs=3"),
    ({"groups": 0}, "groups=0"),
    ({"policy_state": np.zeros(3), "policy": lambda p, o, k, s: (o, None, s)}, "policy_state"),
    ({"env_params": {}}, "FunctionalEnv"),
    ({"infos": (1,)}, "infos"),
    ({"policy": 3}, "cannot be called"),
    ({"policy": lambda observation: observation}, "does not accept"),
    ({"envs": CartPole, "num_envs": 2, "policy_xp": "torch"}, "must be written in JAX"),
    ({"envs": CartPole}, "num_envs"),
    ({"policy": functools.partial(leaning, lock=threading.Lock())}, "pickled"),
    ({"timeout": 0}, "timeout"),
    ({"envs": [CARTPOLE()]}, "not a list of functions"),
    ({"envs": [lambda: threading.Lock(), 3]}, "not a list of functions"),
    ({"workers": "a"}, "workers='a'"),
    ({"workers": []}, "workers="),
    ({"resources": {"GPU": "1"}}, "resources="),
    ({"client": 3}, "client=3 is not a Dask client"),
]


@pytest.mark.parametrize(("options", "match"), WRONG_OPTIONS)
def test_options_are_checked(client, options, match):
    options = {"num_steps": 4, "client": client, **options}
    envs, policy = options.pop("envs", [CARTPOLE] * 2), options.pop("policy", leaning)
    with pytest.raises(af.OptionError, match=match):
        Collector(envs, policy, **options)


@pytest.mark.long
def test_clients_that_are_refused():
    with pytest.raises(arrayferry_cluster.SchedulerLostError, match="there is no scheduler at"):
        Collector([CARTPOLE], drawing, num_steps=2, client="tcp://127.0.0.1:1")
    with remote_workers.cluster(processes=False) as made:
        client = distributed.Client(made)
        client.close()
        with pytest.raises(arrayferry_cluster.SchedulerLostError, match="cannot be reached"):
            Collector([CARTPOLE], drawing, num_steps=2, client=client)


def test_an_asynchronous_client_is_refused_at_once():
    def collector(client):
        return Collector([CARTPOLE], leaning, WEIGHTS, num_steps=3, client=client)

    async def use():
        options = {"processes": False, "asynchronous": True, "dashboard_address": ":0"}
        async with (
            distributed.LocalCluster(n_workers=1, **options) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            for given in (client, None):
                with pytest.raises(af.OptionError, match=r"client is asynchronous.*to_thread"):
                    collector(given)
            made = await asyncio.to_thread(collector, client)
            with pytest.raises(af.OptionError, match="client is asynchronous"):
                next(made)
            assert (await asyncio.to_thread(next, made)).reward.shape == (3, 1)
            await asyncio.to_thread(made.close)

    asyncio.run(use())


def test_a_client_in_a_notebook(client):
    async def cell():  # has an event loop of its own
        with Collector([CARTPOLE], leaning, WEIGHTS, num_steps=3, seed=1, client=client) as made:
            return next(made)

    assert asyncio.run(cell()).reward.shape == (3, 1)


def test_workers_are_chosen(client):
    address, other = client.nthreads()
    for workers in ([address], [str(client.scheduler_info()["workers"][address]["name"])]):
        options = {"num_steps": 2, "groups": 2, "client": client, "workers": workers}
        with Collector([CARTPOLE] * 4, drawing, **options) as collector:
            next(collector)
            actors = client.run(lambda dask_worker: len(dask_worker.state.actors))
            assert actors == {address: 2, other: 0}
    with Collector([CARTPOLE] * 4, drawing, num_steps=2, client=client) as collector:
        assert collector.groups == 2
        actors = client.run(lambda dask_worker: len(dask_worker.state.actors))
        assert actors == {address: 1, other: 1}


def test_a_cluster_with_tls(tmp_path):
    cert, key = certificate(tmp_path)
    security = distributed.Security(**tls_settings(cert, key))
    options = {"num_steps": 2, "groups": 2}
    with local_cluster(protocol="tls", security=security) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(arrayferry_cluster.SchedulerLostError, match=r"TLS expects.*comm\.tls"):
            Collector([CARTPOLE] * 2, leaning, WEIGHTS, client=address, **options)
        states = {x.status for x in gc.get_objects() if type(x) is distributed.Client}
        assert states <= {"running", "closed"}  # what is closed by the garbage collector may hang
        names = {"ca-file": cert, "client.cert": cert, "client.key": key}
        own = {f"distributed.comm.tls.{name}": file for name, file in names.items()}
        with (
            dask.config.set(own),
            Collector([CARTPOLE] * 2, leaning, WEIGHTS, client=address, **options) as collector,
        ):
            assert next(collector).reward.shape == (2, 2)
        with distributed.Client(cluster, set_as_default=False) as client:
            found = collected([CARTPOLE] * 2, leaning, WEIGHTS, client, 2, **options)
        assert [part.reward.shape for part in found] == [(2, 2)] * 2


def test_a_function_that_makes_a_vector_environment_is_told(client):
    makers = [lambda: gym.make_vec("CartPole-v1", 4)] * 2
    with pytest.raises(
        arrayferry_cluster.EnvFailedError, match=r"a vector environment\. Pass funct"
    ):
        Collector(makers, leaning, WEIGHTS, num_steps=2, client=client)


@pytest.mark.parametrize("groups", [None, 2])
def test_an_adaptive_cluster_starts_workers_when_they_are_needed(groups):
    times = {"interval": "50ms", "wait_count": 1}
    with (
        local_cluster(0) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, **times)
        options = {"num_steps": 2, "groups": groups, "client": client, "timeout": 60}
        with Collector([CARTPOLE] * 4, leaning, WEIGHTS, **options) as collector:
            assert next(collector).reward.shape == (2, 4)
            assert collector.groups == (groups or 1)
            cluster.adapt(minimum=0, maximum=0, **times)
            # Dask starts no worker with the name of one that it is still closing
            eventually(lambda: not client.nthreads() and not cluster.workers)
            cluster.adapt(minimum=0, maximum=2, **times)
            assert next(collector).restarted.all()


def test_a_collector_that_is_closed(client):
    collector = Collector([CARTPOLE] * 2, leaning, WEIGHTS, num_steps=4, client=client)
    assert "2 environments" in repr(collector)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(collector)
    collector.close()
    collector.close()
    for use in (lambda: next(collector), lambda: collector.update(1), collector.state_dict):
        with pytest.raises(arrayferry_cluster.NotReadyError, match="closed"):
            use()


@pytest.mark.parametrize(("kind", "mode"), crossed(["ordinary", "functional"], ["sync", "async"]))
def test_a_collector_that_is_dropped_leaves_nothing(client, kind, mode):
    envs, policy = ([CARTPOLE] * 4, drawing) if kind == "ordinary" else (CartPole, functional)
    options = {} if kind == "ordinary" else {"num_envs": 4}
    collector = Collector(envs, policy, WEIGHTS, num_steps=4, client=client, mode=mode, **options)
    next(collector)
    gc.collect()  # what Dask makes of all stacks, when they are asked for, refers to itself
    gc.disable()
    try:
        collector.update(WEIGHTS)
        next(collector)
        assert remote_workers.held(client)
        del collector
        eventually(lambda: not remote_workers.held(client), 60)
    finally:
        gc.enable()


def test_a_forked_process_leaves_it_alone(client, run_forked):
    with Collector([CARTPOLE] * 2, drawing, num_steps=2, client=client) as collector:
        next(collector)

        def forked():
            with pytest.raises(arrayferry_cluster.NotReadyError, match="forked"):
                next(collector)
            collector.close()

        run_forked(forked)
        next(collector)


SCRIPT = """
import os, sys, time, gymnasium as gym, distributed
from arrayferry_cluster import Collector

class Mine(gym.wrappers.TimeLimit):
    pass

def make():
    return Mine(gym.make("CartPole-v1"), 5)

def policy(params, observation, rng):
    return rng.integers(observation.shape[:1], 0, 2), {"process": rng.integers((2 // GROUPS,), 0, 1) + os.getpid()}

def main():
    collector = Collector([make, lambda: make()], policy, num_steps=20, groups=GROUPS)
    part = next(collector)
    print(*sorted(set(part.extras["process"].ravel().tolist())))
    END
"""


def run_script(tmp_path, end, count, last):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("END", end).replace("GROUPS", str(count)) + last)
    command = [sys.executable, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "count"), [("pass", 1), ("collector.close()", 2), ("sys.exit()", 1)]
)
def test_an_own_cluster_leaves_no_process(tmp_path, end, count):
    done = run_script(tmp_path, end, count, "\nif __name__ == '__main__':\n    main()\n")
    pids = done.stdout.split()
    assert (done.returncode, len(pids)) == (0, count)
    # where the machine is busy, Dask says so before it kills a worker that ends slowly
    assert [x for x in done.stderr.splitlines() if "still alive after" not in x] == []
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


@pytest.mark.long
@pytest.mark.skipif(
    distributed.__version__ < "2025",
    reason="older versions wait for ever for workers that cannot start",
)
def test_a_script_that_is_not_guarded(tmp_path):
    done = run_script(tmp_path, "pass", 1, "\nmain()\n")
    assert done.returncode
    assert "if __name__ == '__main__':" in done.stderr


def test_without_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "arrayferry_cluster")
    with pytest.raises(af.BackendUnavailableError, match=r"run: pip install '\.\[distributed\]'"):
        importlib.import_module("arrayferry_cluster")


@pytest.mark.long
def test_nothing_is_imported_before_it_is_used(run_python):
    assert (
        run_python("import sys, arrayferry_gym; print('distributed' in sys.modules)") == "False\n"
    )


DOCUMENTED = {
    "https://distributed.dask.org/en/stable/api.html": (
        "Client get_client get_worker as_current asynchronous call_stack cancel close processing restart_workers "
        "scheduler_info submit who_has done exception key result status address"
    ),
    "https://docs.dask.org/en/stable/configuration.html": "config",
}
"""All that is used of Dask, and the page that describes it."""


def test_nothing_is_used_of_dask_that_its_documentation_does_not_describe():
    folder = Path(arrayferry_cluster.__file__).parent
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {
        alias.name.rpartition(".")[2]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if re.match("dask|distributed", getattr(node, "module", None) or alias.name)
    } - {"dask", "distributed"}
    classes = (distributed.Client, distributed.Future, distributed.Worker)
    classes += (distributed.actor.Actor, distributed.actor.ActorFuture)
    of_dask = {name for cls in classes for name in dir(cls) if not name.startswith("__")}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    ours = {"_restart", "client", "data", "get", "map", "ready", "release", "restart", "start"}
    documented = {*" ".join(DOCUMENTED.values()).split()}
    assert imported | (attributes & of_dask) - ours <= documented <= imported | attributes


LARGE = np.uint64(2**63 + 1)


class Marked(Numbering):
    """Its info has a number of another dtype in each second step."""

    def __init__(self, odd, even):
        super().__init__()
        self.odd, self.even = odd, even

    def step(self, action):
        return *super().step(action)[:4], {"mark": self.odd if self.steps % 2 else self.even}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("one", "other"), [(LARGE, 0), (2**53 + 1, 0.5), (2**64 - 1, -1)])
def test_integers_of_infos_are_not_rounded(client, groups, one, other):
    makers = [functools.partial(Marked, *([one] * 2)), functools.partial(Marked, *([other] * 2))]
    if groups == 1:
        makers = [functools.partial(Marked, one, other)] * 2
        words = "the dtypes of the info 'mark' change: .* become float64, which rounds an integer"
        error = EnvFailedError
    else:
        error, words = af.OptionError, "cannot be concatenated: .* become float64, which rounds"
    with pytest.raises(error, match=words):
        collected(makers, still, None, client, 1, num_steps=4, groups=groups, infos=("mark",))


def test_infos_of_several_dtypes_have_the_common_dtype():
    infos = Infos(("a",))
    for value in (3, 0.5, True, float("nan"), np.float32(0.1), 2**53):
        infos.write([{"a": value}])
    assert infos.tree()["a"].dtype == np.float64
    np.testing.assert_array_equal(
        infos.tree()["a"][:, 0], [3, 0.5, 1, np.nan, np.float32(0.1), 2**53]
    )


@pytest.mark.parametrize("later", [np.zeros(3), np.array("text")])
def test_infos_that_change_their_form_cannot_be_collected(later):
    infos = Infos(("a",))
    infos.write([{"a": np.zeros(2)}, {}])
    infos.write([{}, {"a": later}])
    with pytest.raises(af.OptionError, match="'a' is not always a number or an array of one shape"):
        infos.tree()


def sampling(params, observation, key):
    action = torch.distributions.Categorical(torch.ones(len(observation), 2)).sample()
    noise = key.uniform((len(observation),))
    torch_noise = torch.rand(len(observation))
    if not isinstance(observation, torch.Tensor):
        action, torch_noise = action.numpy(), torch_noise.numpy()
    return action, {"noise": noise, "torch": torch_noise}


class Sampling(torch.nn.Module):
    def forward(self, observation):
        return torch.distributions.Categorical(torch.ones(len(observation), 2)).sample()


@pytest.mark.parametrize("policy", ["numpy", "torch", "module"])
def test_numbers_that_pytorch_draws_by_itself_follow_from_the_seed(client, policy):
    options = {"num_steps": 20, "groups": 2, "policy_xp": policy}
    if policy == "module":
        del options["policy_xp"]
    state = torch.get_rng_state()
    runs = []
    for _ in range(2):
        given = Sampling() if policy == "module" else sampling
        runs.append(collected([CARTPOLE] * 4, given, None, client, 3, **options))
        assert (torch.get_rng_state() == state).all()
        torch.rand(3)
        state = torch.get_rng_state()
    for x, y in zip(*runs, strict=True):
        same(x, y)
    if policy != "module":
        parts = [part.extras[name] for part in runs[0] for name in ("noise", "torch")]
        assert np.unique(np.concatenate(parts)).size == 3 * 20 * 4 * 2


def test_a_policy_does_not_draw_the_numbers_of_the_first_reset(client):
    def drawn(params, observation, key):
        return np.zeros(len(observation), int), {
            "noise": key.uniform((len(observation), 4), -0.05, 0.05)
        }

    with Collector([CARTPOLE], drawn, num_steps=4, groups=1, seed=5, client=client) as collector:
        part = next(collector)
    assert not np.isclose(part.extras["noise"], part.observation[0], atol=1e-7).any()
