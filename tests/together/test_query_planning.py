"""Arrays of Dask's query planning, which a process chooses before it imports `dask.array`."""

import dask.array as da
import pytest

EVERY_USE = """
import pickle

import dask.array as da
import distributed
import gymnasium as gym
import numpy as np
import torch

import arrayferry as af
from arrayferry_gym import ArrayConversion, vector
from arrayferry_plugins.dask_ import to_dask

X = np.arange(12.0).reshape(6, 2)
calls = []


def counted(block):
    calls.append(len(block))
    return block


def same(found):
    np.testing.assert_array_equal(af.convert(found, "numpy"), X)


def whole(blocks):
    same(np.concatenate([af.convert(block, "numpy") for block in blocks]))


def every_use(*every):
    for chunks in every:
        x = da.from_array(X, chunks=chunks)
        for value in (x, x.persist(), x.rechunk((3, 1)), x.map_blocks(counted, dtype=float)):
            for target in ("numpy", "torch", "jax"):
                first, second = af.convert([value, {"k": value}], target)
                same(first)
                same(second["k"])
            whole(af.stream(value, "torch"))
            whole(af.stream(value, "numpy", block=4))
            own = af.convert([value, value], "numpy")
            own[0][:] = own[1][:] = -1
            for block in af.stream(value, "numpy"):
                block[:] = -1
            same(value.compute())
            same(X)
        for library in ("numpy", "torch", "jax"):
            lazy = to_dask({"x": X}, 2, blocks=library)["x"]
            assert lazy.chunks == ((2, 2, 2), (2,))
            same(lazy)
            whole(af.stream(lazy, "torch"))
            same(to_dask(x, blocks=library, chunks=(2, -1)))
            same(x.map_blocks(af.converter(library)))
            whole(af.stream(x.map_blocks(af.converter(library)), "numpy"))
        whole(pickle.loads(pickle.dumps(af.stream(x, "torch"))))
        same(af.convert(X, like=x))
        assert af.convert(x, "dask") is x
        same(af.convert(x, "dask", copy=True))
        same(af.convert(x, "dask", device="cpu"))
        assert af.backend_of(x).name == "dask"
        assert af.convert(x.sum(), "numpy") == X.sum()
        same(af.agnostic("numpy")(np.positive)(x))
        same(af.agnostic("dask")(lambda y: y + 0)(X))
    assert af.convert(da.zeros((0, 3)), "torch").shape == (0, 3)
    assert af.convert(da.ones(()), "torch").shape == ()


def shared_parts():
    calls.clear()
    x = da.from_array(X, chunks=2).map_blocks(counted, dtype=float, meta=X[:0])
    af.convert([x + 1, x.sum(), x], "torch")
    assert calls == [2, 2, 2]
    calls.clear()
    list(af.stream({"x": x - x.mean(axis=0), "y": x + 1}, "torch"))
    assert calls == [2, 2, 2]


def adapters():
    env = ArrayConversion(gym.make("CartPole-v1"), target_xp="dask")
    observation, _ = env.reset(seed=1)
    expected, _ = gym.make("CartPole-v1").reset(seed=1)
    assert isinstance(observation, da.Array)
    np.testing.assert_array_equal(observation.compute(), expected)
    assert isinstance(env.step(env.action_space.sample())[0], da.Array)
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    envs = vector.ArrayConversion(envs, target_xp="dask")
    assert envs.reset(seed=1)[0].shape == (2, 4)
    assert envs.step(da.zeros(2, dtype=int, chunks=1))[1].compute().tolist() == [1, 1]


def refusals():
    x = da.ones(3, chunks=2)
    for call, words in (
        (lambda: af.convert(x, "torch", copy=False), "copy"),
        (lambda: af.convert(x.astype("U1"), "torch"), "<U1"),
        (lambda: to_dask(x, {3: 1}), "chunks="),
        (lambda: af.convert({"k": x.map_blocks(lambda b: 1 / 0, dtype=float)}, "torch"), "ZeroDivisionError"),
    ):
        try:
            call()
        except af.ConversionError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


assert da.array_expr_enabled() is PLANNING
every_use((2, 1))
shared_parts()
adapters()
refusals()
with distributed.Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"):
    every_use((6, 2))
"""


@pytest.mark.skipif(
    not hasattr(da, "array_expr_enabled"), reason="Dask has no query planning of arrays"
)
@pytest.mark.parametrize("planning", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_use_of_arrays(run_python, planning):
    script = f"PLANNING = {planning}\n{EVERY_USE}"
    run_python(script, env={"DASK_ARRAY__QUERY_PLANNING": str(planning)})
