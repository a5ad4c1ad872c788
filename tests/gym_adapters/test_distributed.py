"""Environments on a cluster, as `SyncVectorEnv` has them."""

from __future__ import annotations

import ast
import asyncio
import functools
import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import cloudpickle
import dask.array as da
import distributed
import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from remote_workers import (
    CARTPOLE,
    Counting,
    Failing,
    Odd,
    PipeEngine,
    ThreadEngine,
    actors,
    cluster,
    compare,
    eventually,
    same,
)

import arrayferry as af
import arrayferry_gym.distributed
from arrayferry_gym.distributed import (
    DaskEngine,
    DistributedVectorEnv,
    EnvFailedError,
    NotReadyError,
    SpaceMismatchError,
    WorkerSetupError,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

MODES = list(AutoresetMode)


@pytest.fixture(scope="module")
def client():
    with cluster() as made, distributed.Client(made) as client:
        yield client


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "make",
    [pytest.param(CARTPOLE, marks=pytest.mark.long, id="cartpole"), pytest.param(Odd, id="odd")],
)
def test_steps_are_those_of_sync_vector_env(mode, make):
    steps = 1000 if make is CARTPOLE else 400
    sync = SyncVectorEnv([make] * 5, autoreset_mode=mode)
    engine = PipeEngine(2)
    envs = DistributedVectorEnv([make] * 5, engine=engine, autoreset_mode=mode)
    compare(envs, sync, steps)
    envs.close()
    assert engine.hosts == []


class Reusing(gym.Env):
    """Returns the same objects at each step, whose content changes."""

    observation_space = spaces.Dict(
        {"x": spaces.Box(0, 99, (1,)), "y": spaces.Tuple([spaces.Text(3), spaces.Box(0, 99, (2,))])}
    )
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.observation = {"x": np.zeros(1, np.float32), "y": ("a", np.zeros(2, np.float32))}
        array = np.zeros(2)
        self.info = {"list": [0], "deep": {"list": [array]}, "subclass": array.view(np.recarray)}

    def _shown(self, t):
        self.t = t
        self.observation["x"][:] = self.observation["y"][1][:] = t
        self.info["list"][0] = t
        self.info["deep"]["list"][0][:] = t
        return self.observation, self.info

    def reset(self, *, seed=None, options=None):
        return self._shown(0)

    def step(self, action):
        observation, info = self._shown(self.t + 1)
        return observation, 1.0, self.t == 3, False, info


def test_objects_that_are_used_again():
    envs = DistributedVectorEnv([Reusing] * 2, engine=ThreadEngine(1), autoreset_mode="SameStep")
    envs.reset()
    for _ in range(3):
        observations, _, _, _, infos = envs.step([0, 0])
    assert observations["x"].ravel().tolist() == [0.0, 0.0]
    final, info = infos["final_obs"][1], infos["final_info"]
    assert final["x"].tolist() == [3.0]
    assert final["y"][1].tolist() == [3.0, 3.0]
    assert info["list"][1] == [3]
    assert info["deep"]["list"][1][0].tolist() == [3.0, 3.0]
    assert np.asarray(info["subclass"][1]).tolist() == [3.0, 3.0]
    assert infos["list"][1] == [0]
    envs.close()


@pytest.mark.parametrize(
    ("make", "mode", "steps"),
    [
        pytest.param(CARTPOLE, "NextStep", 150, marks=pytest.mark.long),
        (Odd, "SameStep", 100),
        pytest.param(Odd, "Disabled", 150, marks=pytest.mark.long),
    ],
)
def test_steps_on_a_cluster_are_those_of_sync_vector_env(client, make, mode, steps):
    sync = SyncVectorEnv([make] * 5, autoreset_mode=mode)
    envs = DistributedVectorEnv([make] * 5, client=client, autoreset_mode=mode)
    compare(envs, sync, steps)
    envs.close()


@pytest.mark.long
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


def test_internals_of_dask_are_used_in_one_module():
    internals = {
        "abort", "actor_execute", "actors", "connection_args", "handle_stimulus", "identity", "proxy", "rpc",
        "send_recv", "update_data",
    }  # fmt: skip
    found = {}
    for path in Path(arrayferry_gym.distributed.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("distributed."):
                if any(not hasattr(distributed, name.name) for name in node.names):
                    found.setdefault(path.name, set()).add(node.module)
            elif isinstance(node, ast.Attribute) and node.attr in internals:
                found.setdefault(path.name, set()).add(node.attr)
    assert found.keys() == {"internals.py"}
    assert found["internals.py"] >= internals - {"send_recv"}  # which is imported


@pytest.mark.long
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
        with pytest.raises(af.ConversionError, match="one action for each of the 3 environments"):
            envs.step(actions)
    for mask in (np.ones(3), np.zeros(2, bool), np.ones(2, bool), "all"):
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


def test_numbers_of_groups_and_workers_may_be_of_any_library():
    engine = ThreadEngine(2)
    envs = DistributedVectorEnv(
        [CARTPOLE] * 3, engine=engine, groups=np.int64(1), min_workers=torch.tensor(2)
    )
    assert [host.indices for host in envs._placement.hosts] == [(0, 1, 2)]
    envs.close()


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


@pytest.mark.parametrize("to", ["torch", "jax", "dask"])
def test_results_and_actions_of_other_libraries(client, to):
    sync = SyncVectorEnv([CARTPOLE] * 4)
    envs = DistributedVectorEnv([CARTPOLE] * 4, client=client, to=to)
    array = {"torch": torch.Tensor, "jax": jax.Array, "dask": da.Array}[to]
    observations, _ = envs.reset(seed=2)
    assert isinstance(observations, array)
    np.testing.assert_array_equal(np.asarray(observations), sync.reset(seed=2)[0])
    make = {"torch": torch.tensor, "jax": jax.numpy.asarray, "dask": da.asarray}[to]
    for _ in range(30):
        results = envs.step(make([1, 0, 1, 1]))
        for x, y in zip(results[:4], sync.step(np.array([1, 0, 1, 1])), strict=False):
            assert isinstance(x, array)
            np.testing.assert_allclose(np.asarray(x), y)
    envs.close()


@pytest.mark.needs("torch")
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


@pytest.mark.needs("torch")
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
    name = "arrayferry_gym.distributed._dask.actor"

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


SCRIPT = """
import os, sys, time, gymnasium as gym, distributed
from arrayferry_gym.distributed import DistributedVectorEnv

class Mine(gym.wrappers.TimeLimit):
    pass

def make():
    return Mine(gym.make("CartPole-v1"), 5)

def main():
    envs = DistributedVectorEnv([make, lambda: make()], groups=GROUPS)
    envs.reset(seed=1)
    for _ in range(20):
        envs.step([0, 1])
    print(*envs._engine.client.run(os.getpid).values())
    END
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "count"),
    [
        ("pass", 1),
        pytest.param("envs.close()", 2, marks=pytest.mark.long),
        pytest.param("sys.exit()", 1, marks=pytest.mark.long),
    ],
)
def test_an_own_cluster_leaves_no_process(tmp_path, end, count):
    path = tmp_path / "script.py"
    script = SCRIPT.replace("END", end).replace("GROUPS", str(count))
    path.write_text(script + "\nif __name__ == '__main__':\n    main()\n")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=True
    )
    pids = done.stdout.split()
    assert len(pids) == count
    # where the machine is busy, Dask says so before it kills a worker that ends slowly
    assert [x for x in done.stderr.splitlines() if "still alive after" not in x] == []
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


@pytest.mark.long
@pytest.mark.skipif(
    distributed.__version__ < "2025",
    reason="older versions wait for ever for workers that cannot start",
)
def test_a_script_that_is_not_guarded(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("END", "pass").replace("GROUPS", "1") + "\nmain()\n")
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


@pytest.mark.parametrize("method", ["_convert", "_joined"])
def test_a_step_or_reset_whose_results_are_lost_here_was_not_finished(method, monkeypatch):
    envs = DistributedVectorEnv([CARTPOLE] * 2, engine=ThreadEngine(1), to="torch")
    for call in (envs.reset, lambda: envs.step(envs.action_space.sample())):
        with monkeypatch.context() as patch:
            patch.setattr(envs, method, lambda value: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                call()
        with pytest.raises(NotReadyError, match="was not finished"):
            envs.step(envs.action_space.sample())
        envs.reset()
    envs.close()


def test_calls_through_the_scheduler(client, monkeypatch):
    async def refuse(*args, **kwargs):
        raise OSError("no way")

    monkeypatch.setattr("arrayferry_gym.distributed._dask.engine.connect", refuse)
    envs = DistributedVectorEnv([CARTPOLE] * 3, client=client)
    compare(envs, SyncVectorEnv([CARTPOLE] * 3), 150)
    envs.close()


@pytest.mark.long
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
