"""Each error: its text, its builtin and its attributes."""

import copy
import pickle
import re
import time
import types
from pathlib import Path

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boxes import BoxBackend, registered

import arrayferry as af

ROOT = Path(__file__).parents[2]


CYCLE: list = []
CYCLE.append(CYCLE)


SPEC = jax.sharding.PartitionSpec("X")


def traced():
    jax.jit(lambda x: af.convert({"x": x}, "numpy"))(jnp.ones(1))


def streamed(block, **options):
    x = da.arange(4, chunks=2).map_blocks(block, dtype=int, meta=np.empty(0, int))
    list(af.stream({"x": x}, "torch", **options))


CAUSES = {
    af.BackendUnavailableError: (lambda: af.convert(1, "absent"), "ImportError", "absent is not installed: there is no module 'a_missing_library'. Run: pip install absent-lib"),
    af.BlockError: (
        lambda: streamed(lambda b: b[3]),
        "RuntimeError",
        "block 0 (0:2 along the axis of the stream) could not be computed or read (IndexError: index 3 is out of bounds",
    ),
    af.BlockTimeoutError: (
        lambda: streamed(lambda b: time.sleep(0.3), timeout=0.1),
        "TimeoutError",
        "block 0 (0:2 along the axis of the stream) did not arrive within 0.1 seconds, to torch. Pass a longer timeout",
    ),
    af.ContractError: (
        lambda: af.convert([types.SimpleNamespace()], "torch"),
        "TypeError",
        "to_numpy() of the backend 'failing' returned a list, at [0], from failing to torch. It must return a "
        "numpy.ndarray.",
    ),
    af.ConversionError: (
        lambda: af.convert({"k": [jax.random.key(0)]}, "numpy"),
        "ValueError",
        "a JAX PRNG key array cannot be converted, at ['k'][0], from jax to numpy. First call jax.random.key_data(x).",
    ),
    af.CopyRequiredError: (
        lambda: af.convert({"a": jnp.ones(2)}, "torch", copy=False),
        "BufferError",
        "memory cannot be shared: jax arrays never change, but torch could write to them, "
        "at ['a'], from jax to torch. Pass copy=None to allow a copy.",
    ),
    af.DeviceError: (
        lambda: af.convert(np.ones(2), "jax", device=SPEC),
        "LookupError",
        f"jax has no device {SPEC!r} here. Pass one of its devices: ",
    ),
    af.NarrowingError: (
        lambda: af.convert({"step": [np.array([2**40])]}, "jax"),
        "OverflowError",
        "jax has no int64 here, and 1099511627776 does not fit int32, at ['step'][0], from numpy to jax. "
        'Scale the numbers down, or pass narrowing="allow" to convert them anyway, as jax does. '
        'Or call jax.config.update("jax_enable_x64", True) at the start of the program.',
    ),
    af.NotAnArrayError: (lambda: af.backend_of("x"), "TypeError", "a str is not an array of a known library"),
    af.OptionError: (
        lambda: af.convert(1, "torch", narrowing="no"),
        "ValueError",
        "narrowing='no' is not valid. Pass one of 'checked', 'forbid', 'allow'.",
    ),
    af.PluginError: (lambda: af.registry.register(object()), "TypeError", "<object object at 0x"),
    af.StructureError: (lambda: af.convert(CYCLE, "torch"), "ValueError", "the list contains itself, at [0]. Remove the cycle"),
    af.TracedValueError: (
        traced,
        "TypeError",
        "a traced JAX array has no values yet, at ['x'], from jax to numpy. Convert outside the traced function (jit, grad, vmap), "
        "or let a function convert its arguments and results: arrayferry.agnostic(..., result_like=...).",
    ),
    af.UnknownBackendError: (lambda: af.converter("toch"), "LookupError", "no array library is known as 'toch'. Did you mean 'torch'?"),
    af.UnsupportedDtypeError: (
        lambda: af.convert({"obs": (np.array(["a"]),)}, "torch"),
        "TypeError",
        "torch has no dtype for text (an array of dtype <U1), at ['obs'][0], from numpy to torch. "
        'Pass unsupported="keep" to leave such arrays unchanged.',
    ),
}  # fmt: skip


class Absent(BoxBackend):
    name, package, install = "absent", "a_missing_library", "absent-lib"
    array_types = ("a_missing_library.Array",)


class Failing(Absent):
    name, package, array_types = "failing", "types", ("types.SimpleNamespace",)

    def to_numpy(self, x):
        return []


@pytest.fixture(autouse=True)
def plugins():
    with registered(Absent(), Failing()):
        yield


@pytest.mark.parametrize("error", CAUSES, ids=lambda error: error.__name__)
def test_each_error(error):
    cause, builtin, text = CAUSES[error]
    with pytest.raises(error) as caught:
        cause()
    found = caught.value
    assert type(found) is error
    assert isinstance(found, af.ArrayFerryError)
    assert isinstance(found, getattr(__import__("builtins"), builtin))
    assert str(found).startswith(text)
    assert str(found).count("\n") == 0
    for again in (pickle.loads(pickle.dumps(found)), copy.copy(found)):
        assert type(again) is error
        assert str(again) == str(found)
        assert vars(again) == vars(found)


def test_every_error_is_raised_by_a_test_and_documented():
    errors = {
        thing
        for name in af.__all__
        if isinstance(thing := getattr(af, name), type) and issubclass(thing, af.ArrayFerryError)
    }
    tree = (ROOT / "core/arrayferry/_errors.py").read_text().split('"""')[1]
    tree += (ROOT / "core/arrayferry_streams/_errors.py").read_text().split('"""')[1]
    table = (ROOT / "docs/reference/errors.md").read_text()
    lists = {
        "CAUSES in tests/together/test_errors.py": {each.__name__ for each in CAUSES},
        "the docstring of core/arrayferry/_errors.py": tree,
        "the table of docs/reference/errors.md": re.findall(r"(?m)^\| `(\w+)`", table),
    }
    missing = [
        f"{error.__name__}: add it to {name}"
        for error in errors - {af.ArrayFerryError}
        for name, known in lists.items()
        if error.__name__ not in known
    ]
    missing += [f"{error.__name__}: write a docstring" for error in errors if not error.__doc__]
    assert not missing, "\n".join(missing)
