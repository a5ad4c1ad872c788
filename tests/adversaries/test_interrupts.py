"""An interrupt at each line of arrayferry: what is called again afterwards, or reset, is right."""

from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import jax
import numpy as np
import pytest
import torch
from calls import X, adapter, function, read, tree, vector
from cases import quick_if
from envs import make_vec
from gymnasium.vector import AutoresetMode
from interrupts import interrupted

import arrayferry as af
from arrayferry_gym import vector as adapters
from arrayferry_gym.wrappers import kernels

PACKAGES = ("/arrayferry/", "/arrayferry_plugins/", "/arrayferry_gym/", "<arrayferry")
WITH = "with "
"""No interrupt comes where such a block is left, before its lock is released."""


def adapted_vector():
    envs = adapters.ArrayConversion(make_vec(2, AutoresetMode.SAME_STEP), target_xp="torch")
    return lambda: (envs.reset(seed=1)[0], *envs.step(torch.tensor([0, 1]))[:2])


def stream():
    blocks = af.stream([da.arange(8, chunks=2), np.arange(8)], "torch", block=3)
    return lambda: [*blocks, blocks[1]]


CALLS = {
    "numpy": lambda: tree("numpy", "torch"),
    "torch": lambda: tree("torch", "torch"),
    "jax": lambda: tree("jax", "torch"),
    "strict": lambda: tree("array_api_strict", "torch"),
    "function": lambda: function(jax.jit(lambda a, b: a + b), "jax", "torch"),
    "adapter": lambda: adapter("torch", torch.tensor(1)),
    "adapted vector": adapted_vector,
    "functional": lambda: vector(kernels.FrameStackObservation(2), kernels.ClipReward(0, 1)),
    "stream": stream,
}


@pytest.mark.parametrize("name", quick_if(CALLS, {"torch"}.__contains__))
def test_an_interrupt_at_each_line(name):
    expected = read(CALLS[name]()())

    def tried(line, calls_before):
        call = CALLS[name]()
        for _ in range(calls_before):
            call()
        came = interrupted(call, line, PACKAGES, WITH)
        for _ in range(3):
            assert read(call()) == expected, (line, calls_before)
        return came

    with ThreadPoolExecutor(1) as pool:  # what a trace function raises is left behind in its thread
        for calls_before in range(4):
            line = 1
            while pool.submit(tried, line, calls_before).result():
                line += 1 + line // 8
        assert line > 3


def test_a_trace_that_is_interrupted_as_it_starts_counts_nothing():
    trace, conversion = af.trace(), af.converter("torch")
    with ThreadPoolExecutor(1) as pool:
        for line in range(1, 9):
            assert pool.submit(interrupted, trace.__enter__, line, PACKAGES, WITH).result()
            conversion([X])
            assert trace.calls == 0, line
