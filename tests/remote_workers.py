"""Workers that may be killed, and environments for them."""

import contextlib
import functools
import logging
import os
import signal
import sys
import time

import cloudpickle
import dask
import distributed
import gymnasium as gym
import jax
import numpy as np
import pytest
from clusters import local_cluster
from gymnasium import spaces

import arrayferry as af

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

CARTPOLE = functools.partial(gym.make, "CartPole-v1")


WEIGHTS = np.array([0.1, 0.5, 1.0, 0.7], np.float32)
KINDS = pytest.mark.parametrize("kind", ["ordinary", "functional"])
MODES = pytest.mark.parametrize("mode", ["sync", "async"])


class Numbering(gym.Env):
    """Returns its seed, the steps it has taken since the last reset with a seed, and those of the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length=7):
        self.length = length

    def _shown(self):
        return np.array([self.seed, self.steps, self.t], float)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        if seed is not None:
            self.seed, self.steps = seed, 0
        return self._shown(), {}

    def step(self, action):
        self.t, self.steps = self.t + 1, self.steps + 1
        info = {"t": self.t, "deep": np.ones((2, 3)) * self.t} if self.t % 2 else {}
        return self._shown(), 1.0, self.t == self.length, False, info


class Failing(gym.Env):
    """Does at an action of 1 what it is made for."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, failure=""):
        self.failure = failure

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if action == 1 and self.failure == "raise":
            raise KeyError("broken part")
        if action == 1 and self.failure == "exit":
            sys.exit(3)
        if action == 1 and self.failure == "hang":
            time.sleep(1000)
        if action == 1 and self.failure == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return np.ones(1, np.float32), 1.0, False, False, {}


def acting(params, observation, key):
    """A policy whose weights are the action."""
    return np.full(len(observation), params), None


def versions(params, observation, key):
    """A policy whose extras say with which weights it acted."""
    return np.zeros(len(observation), int), np.full(len(observation), params)


def functional(params, observation, key):
    """A policy in JAX, which draws, and whose extras are of the observations."""
    action = jax.random.bernoulli(key, jax.nn.sigmoid(observation @ params)).astype(int)
    return action, {"x": observation[:, 0]}


def eventually(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def same(x, y):
    """Compare two values completely: structure, types, dtypes and values."""
    (ours, layout), (theirs, other) = (af.flatten(each, everything=True) for each in (x, y))
    assert layout == other
    for one, another in zip(ours, theirs, strict=True):
        assert type(one) is type(another), (one, another)
        np.testing.assert_array_equal(one, another, strict=True)


@contextlib.contextmanager
def cluster(n_workers=2, **options):
    options = {"processes": True, "silence_logs": logging.CRITICAL, **options}
    # after this time a cluster gives up a nanny whose worker is just being started again
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        local_cluster(n_workers, **options) as made,
    ):
        yield made


@contextlib.contextmanager
def connected(n_workers=2, **options):
    """A client of a cluster of its own."""
    started = cluster(n_workers, **options)
    with started as made, distributed.Client(made, set_as_default=False) as client:
        yield client


def held(client):
    """Return what the cluster holds: keys of tasks, and actors."""
    keys = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
    actors = client.run(lambda dask_worker: list(dask_worker.state.actors))
    return keys + [key for each in actors.values() for key in each]


def running(client):
    """Return the nannies whose worker runs. One that is killed before is not started again."""
    nannies = client.cluster.workers.values()
    return [each for each in nannies if each.process and each.process.status.name == "running"]


def restored(client):
    """Tell whether both workers are there."""
    return len(client.nthreads()) == len(running(client)) == 2


def kill(client, which):
    """Kill one of the workers, as the system does when memory runs out. Return whether there was one."""
    # one that has just ended has no pid
    pids = [pid for each in running(client) if (pid := each.pid)]
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[which % len(pids)], signal.SIGKILL)
    return True
