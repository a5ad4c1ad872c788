"""Many threads convert while plugins are added and removed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import torch
from boxes import BoxBackend, Held, HeldContainer, registered

import arrayferry as af


@pytest.mark.long
def test_sixteen_threads_while_plugins_are_registered_and_refreshed():
    rounds, stop = 150, threading.Event()
    shared = {target: af.converter(target) for target in ("numpy", "torch", "jax")}
    types = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}

    def work(number: int) -> None:
        for step in range(rounds):
            n = np.full((number % 4 + 1, 3), step, ("f4", "i4", "u1")[step % 3])
            for target, conversion in shared.items():
                tree = {"a": n, "b": [torch.from_numpy(n), "text"], number: (n,), "held": Held(n)}
                found = conversion(tree)
                assert found["b"][1] == "text"
                # whether a Held is converted depends on the moment, but it is converted right
                np.testing.assert_array_equal(np.asarray(found["held"].x), n)
                for x in (found["a"], found["b"][0], found[number][0]):
                    assert isinstance(x, types[target]), type(x)
                    np.testing.assert_array_equal(np.asarray(x), n)
            assert af.convert(n, "torch").shape == n.shape

    def disturb() -> None:
        while not stop.is_set():
            with registered(BoxBackend(), HeldContainer()):
                af.registry.refresh()

    with ThreadPoolExecutor(17) as pool:
        disturbing = pool.submit(disturb)
        try:
            list(pool.map(work, range(16)))
        finally:
            stop.set()
        disturbing.result()
