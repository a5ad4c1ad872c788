"""Simulated libraries that are registered for the time of a test."""

import gc
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import arrayferry as af
from arrayferry._route import queued
from arrayferry_plugins import cupy_

sys.path.insert(0, str(Path(__file__).parent))

import simulated


class Machine:
    """Two GPUs with CuPy's real plugin, "writing" with arrays like PyTorch's, and "constant" with arrays like JAX's."""

    def __init__(self, register, monkeypatch, kind=simulated.Telling, version="14.1.0"):
        self.gpus, self.questions, self.counts, self.streams = 2, 0, Counter(), []
        self.cupy = simulated.cupy_module(self, version)
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)
        self.backends = {"cupy": af.backends()["cupy"]}
        for name, memory, refuses in (
            ("writing", "writable", simulated.like_torch),
            ("constant", "immutable", simulated.like_jax),
        ):
            backend = kind(self, name, memory, refuses=refuses)
            monkeypatch.setitem(sys.modules, name, backend.module)
            self.backends[name] = register(backend)
        self.libraries = {"cupy": self.cupy.library}
        for name in ("writing", "constant"):
            self.libraries[name] = self.backends[name].library

    def settle(self):
        """Let all streams do their work."""
        for stream in self.streams:
            stream.synchronize()

    def array(self, library, values, gpu=0):
        """Make an array, and forget what that took."""
        x = self.libraries[library].array(values, gpu)
        self.settle()
        self.counts.clear()
        return x

    def reuse(self, library, gpu=0):
        """Write -1 to the memory of an array of four numbers that was dropped, if it is free."""
        gc.collect()
        self.libraries[library].array(np.full(4, -1.0), gpu).stream.synchronize()

    def values(self, y):
        """Return the values once all work is done."""
        self.settle()
        return y.values.tolist()

    def stays_on_device(self):
        """Tell whether nothing went to the host or came from there."""
        return not self.counts.keys() & {"to host", "to device"}


@pytest.fixture
def make_machine(register, monkeypatch):
    """Return a function that makes the machine, by the kind of the backends and CuPy's version."""
    cached = cupy_._gpus, cupy_._dtypes

    def forget():
        for function in cached:
            function.cache_clear()
        queued._kept.clear()
        af.registry.refresh()

    def make(**options):
        forget()
        return Machine(register, monkeypatch, **options)

    yield make
    monkeypatch.undo()
    forget()


@pytest.fixture
def machine(make_machine):
    return make_machine()
