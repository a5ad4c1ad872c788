"""Each error names the problem, the place, both libraries and a remedy, and can be pickled."""

from importlib.metadata import EntryPoint
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import faulty, raising
from refusals import refused

import arrayferry as af
from arrayferry import extending

ROOT = Path(__file__).parents[3]
CYCLE: list = []
CYCLE.append(CYCLE)


FUNCTIONS = [
    pytest.param(lambda: af.fit_dtype(np.array([2**40]), af.registry.backend("jax"), "checked"), af.NarrowingError, "1099511627776 does not fit",
                 marks=pytest.mark.assumes_other("x64")),
    (lambda: af.fit_dtype(np.array(["a"]), af.registry.backend("jax"), "allow"), af.UnsupportedDtypeError, "text"),
    (lambda: extending.map_arrays(extending.refuse_more_than_values, {"a": np.ma.array([1], mask=[True])}), af.ConversionError, r"mask would be lost.*\['a'\]"),
    (lambda: extending.call_backend(faulty(to_numpy=raising), "to_numpy", 3), af.ContractError, r"to_numpy\(\) of the backend 'boxes' raised"),
    (lambda: extending.call_backend(faulty(to_numpy=raising, is_out_of_memory=lambda *_: True), "to_numpy", 3), Exception, "^a fault"),
    (lambda: extending.cast_checked(np.array([300]), np.dtype("int8"), "x"), af.NarrowingError, "x contains 300"),
    (lambda: extending.flatten_by(CYCLE, af.registry.kind), af.StructureError, "contains itself"),
    (lambda: extending.target_dtype(np.dtype("complex64"), faulty(dtypes=lambda self: {"float32"}), "allow"), af.UnsupportedDtypeError, "complex64"),
    (lambda: extending.target_dtype(np.dtype("int64"), faulty(dtypes=lambda self: {"int32"}), "forbid"), af.NarrowingError, "forbidden"),
    (lambda: extending.map_arrays(np.shape, CYCLE), af.StructureError, "contains itself"),
    (lambda: extending.load_parts(EntryPoint("a", "no_such_module", "arrayferry")), af.PluginError, "no_such_module"),
    (lambda: extending.route_between(af.registry.backend("torch"), af.registry.backend("numpy"), source_device="cpu", device="cuda"), af.DeviceError, "cuda"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), FUNCTIONS)
def test_errors_of_functions_for_plugins(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_every_hook_is_documented_and_tested():
    from arrayferry._plugin.hookspecs import HOOKS

    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    docs = (ROOT / "docs/how-to/plugin.md").read_text()
    for hook, part in HOOKS.items():
        assert hook in docs
        assert part.__name__ in docs
        assert hook in tests or f"af.{part.__name__}" in tests


def test_a_device_is_called_as_the_user_called_it():
    words = r"no device 'GPU:7' \('cuda:7'\) here"
    caught = refused(af.DeviceError, words, np.ones(2), "torch", device="GPU:7")
    assert caught.device == "cuda:7"
    refused(af.DeviceError, "no device 'cuda' here", np.ones(2), "numpy", device="cuda")


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "dask", "warp", "array_api_strict"])
def test_device_objects_of_other_libraries_count_by_their_names(target):
    pytest.importorskip(target)
    devices = [torch.device("cpu"), jax.devices("cpu")[0]]
    if str(devices[1]) == "TFRT_CPU_0":  # older versions of JAX do not say what it is
        del devices[1]
    for device in devices:
        for x in (np.ones(3, np.float32), torch.ones(3), jnp.ones(3)):
            y = af.convert(x, target, device=device)
            assert af.backend_of(y).device_of(y) == "cpu"
    for wrong in (torch.device("meta"), torch.device("cuda:7"), object(), 0, np.zeros(2)):
        words = r"no device .* here\. Pass one of its devices: 'cpu'"
        refused(af.DeviceError, words, np.ones(3, np.float32), target, device=wrong)
