"""One converter meets values that change subtly from call to call; an independent oracle checks each result.

    python tests/adversaries/stateful.py --conversions 200000 --seed 1

The values are trees of arrays of several libraries. From call to call a leaf changes its dtype, memory
layout, library, gradient or writability, a container changes its type, length or keys, or two places come to
hold one object. The oracle does not use arrayferry: it reads values by each library's own calls, and checks
types, dtypes, values, identity of containers, that the input is unchanged, and that memory is not shared
where it must not be. With `--surroundings`, traces, meshes, default devices, 64-bit numbers and the checks of JAX
are switched on and off in between, and devices are checked too.
"""

import argparse
import collections
import contextlib
import copy
import dataclasses
import os
import random
import sys
import time
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

if "jax" not in sys.modules:
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import array_api_strict as strict
import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import torch

import arrayferry as af

TARGETS = {
    "numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array, "dask": da.Array,
    "array_api_strict": type(strict.zeros(1)),
}  # fmt: skip
OPTIONS = ({}, {"copy": True}, {"scalars": "convert"}, {"narrowing": "allow"}, {"device": "cpu"},
           {"unsupported": "keep"})  # fmt: skip
DTYPES = ("bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64")
NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


class Point(NamedTuple):
    x: Any
    y: Any = None


@dataclasses.dataclass
class Step:
    x: Any
    log: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    log: Any = None


class Custom(dict):
    pass


def numbers(rng: random.Random) -> np.ndarray:
    """Make an ordinary array of small numbers."""
    shape = rng.choice(((), (1,), (3,), (2, 3), (0,), (4, 1, 2)))
    size = int(np.prod(shape))
    values = np.array([rng.randrange(0, 5) for _ in range(size)]).reshape(shape)
    return np.asarray(values.astype(rng.choice(DTYPES)))


def vary(rng: random.Random, x: np.ndarray) -> np.ndarray:
    """Give an array another memory layout."""
    how = rng.randrange(9)
    if how == 0:
        x = x.copy()
        x.flags.writeable = False
    elif how == 1:
        x = np.asfortranarray(x)
    elif how == 2 and x.ndim:
        x = np.repeat(x, 2, axis=0)[::2]
    elif how == 3 and x.ndim:
        x = x[::-1].copy()[::-1]
    elif how == 4:
        x = x.astype(x.dtype.newbyteorder(">"))
    elif how == 5:
        raw = np.zeros(x.nbytes + 1, np.uint8)
        y = raw[1 : 1 + x.nbytes].view(x.dtype).reshape(x.shape)
        y[...] = x
        x = y
    elif how == 6 and x.ndim:
        x = np.broadcast_to(x, (2, *x.shape))
    return x


def leaf(rng: random.Random) -> Any:
    """Make an array of some library, or something that is no array."""
    x = numbers(rng)
    what = rng.randrange(22)
    if what < 9:
        return vary(rng, x)
    if what < 14:
        t = torch.from_numpy(x.copy())
        how = rng.randrange(6)
        if how == 0 and t.is_floating_point():
            return t.requires_grad_()
        if how == 1 and t.is_complex():
            return t.conj()
        if how == 2 and t.ndim:
            return t.repeat_interleave(2, 0)[::2]
        if how == 3:
            return t.bfloat16()
        return t
    if what < 16:
        return jnp.asarray(x)
    if what == 16:
        return np.array([None, x, "text"][: rng.randrange(4)], object) if x.ndim else x
    if what == 17:
        return x.dtype.type(1)
    if what > 19:
        standard = x.astype("f4") if x.dtype == np.float16 else x
        return da.from_array(x, name=False) if what == 20 else strict.asarray(standard)
    return rng.choice(
        (None, "text", object(), 3, 1.5, True, b"raw", Ellipsis, float, 2 + 1j, (), frozenset())
    )


def tree(rng: random.Random, depth: int = 0) -> Any:
    """Make a tree."""
    if depth >= 3 or rng.random() < 0.35:
        return leaf(rng)
    count = rng.choice((0, 1, 2, 3, 3, 20))
    if count == 20:  # a long container of one kind of leaf, or of one kind of part
        x = numbers(rng)
        if rng.random() < 0.5:
            parts: list[Any] = [
                x + x.dtype.type(i % 2) if x.dtype != bool else x for i in range(count)
            ]
        else:
            parts = [{"a": x, "b": (x, i)} for i in range(count)]
    else:
        parts = [tree(rng, depth + 1) for _ in range(count)]
    return wrap(rng, parts)


def wrap(rng: random.Random, parts: list[Any]) -> Any:
    """Put parts into some container."""
    items = {f"k{i}": part for i, part in enumerate(parts)}
    mapping = rng.choice((collections.OrderedDict, MappingProxyType, collections.UserDict))(items)
    others = [Custom(items), collections.defaultdict(list, items), mapping]
    others += [collections.deque(parts, maxlen=30)]
    if parts:
        others += [Point(*parts[:2]), rng.choice((Step, Frozen))(*parts[:2])]
    return rng.choice([items, items, items, parts, parts, tuple(parts), tuple(parts), *others])


def mutate(rng: random.Random, value: Any) -> Any:
    """Return a value that differs a little from another one."""
    parts = inside(value)
    if parts is None or (rng.random() < 0.2):
        if isinstance(value, np.ndarray) and value.dtype != object and rng.random() < 0.7:
            other = value.astype(rng.choice(DTYPES))
            return rng.choice((vary(rng, np.array(value)), other))
        return leaf(rng) if parts is None else tree(rng, 1)
    parts = list(parts)
    if not parts or rng.random() < 0.1:
        parts.append(leaf(rng))
    elif rng.random() < 0.1:
        parts[rng.randrange(len(parts))] = parts[rng.randrange(len(parts))]
    elif rng.random() < 0.1:
        parts.pop()
    else:
        place = rng.randrange(len(parts))
        parts[place] = mutate(rng, parts[place])
    if rng.random() < 0.1:
        return wrap(rng, parts)
    return like(value, parts)


def inside(value: Any) -> Any:
    """Return the parts of a container, None for anything else."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, collections.deque)):
        return list(value)
    if type(value) in (Step, Frozen):
        return [value.x, value.log]
    return None


def like(value: Any, parts: list[Any]) -> Any:
    """Make a container of the same type."""
    cls = type(value)
    if cls in (Point, Step, Frozen):
        return cls(*parts[:2]) if parts else cls(None)
    filled = (
        dict(zip([*value, "new"], parts, strict=False)) if isinstance(value, Mapping) else parts
    )
    if cls in (collections.defaultdict, collections.deque):  # which have more than their parts
        made = copy.copy(value)
        made.clear()
        (made.extend if cls is collections.deque else made.update)(filled)
        return made
    return cls(filled)


def values_of(x: Any) -> np.ndarray:
    """Read the values of an array by its library's own calls."""
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy().copy()
    x = np.from_dlpack(x) if isinstance(x, TARGETS["array_api_strict"]) else np.asarray(x)
    return np.array(x.astype(np.float32) if x.dtype.name == "bfloat16" else x)


def dtype_of(x: Any) -> str:
    """Return the name of a dtype, whatever the library."""
    return x.dtype.name if hasattr(x.dtype, "name") else str(x.dtype).rpartition(".")[2]


ARRAYS = (np.generic, *TARGETS.values())


class Oracle:
    """Checks one result.

    Args:
        target: the name of the target.
        options: the options of the conversion.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        self.target = target
        self.options = options
        self.containers: dict[int, Any] = {}
        self.results: dict[int, int] = {}
        self.pairs: list[tuple[Any, Any, np.ndarray]] = []
        self.kept: list[Any] = []

    def check(self, value: Any, found: Any, path: str = "") -> bool:
        """Compare; return whether anything in the value is converted."""
        if isinstance(value, np.ndarray) and value.dtype == object:
            assert isinstance(found, np.ndarray), path
            assert found.dtype == object, path
            assert found.shape == value.shape, path
            pairs = enumerate(zip(value.flat, found.flat, strict=True))
            changed = [self.check(a, b, f"{path}.flat[{index}]") for index, (a, b) in pairs]
            return any(changed)
        if isinstance(value, ARRAYS):
            return self.check_array(value, found, path)
        if type(value) in (bool, int, float, complex) and self.options.get("scalars") == "convert":
            assert isinstance(found, TARGETS[self.target]), f"{path}: {type(found)}"
            assert values_of(found).astype(complex) == complex(value), path
            return True
        parts = inside(value)
        if parts is None:
            assert found is value, f"{path}: {found!r} is not {value!r}"
            return False
        known = self.containers.get(id(value))
        if known is not None:
            # what holds no array stays the same within an object that is kept as it is
            kept = found is value or known[0] is value
            assert found is known[0] or (kept and not known[1]), f"{path}: one container became two"
            if known[0] is value:
                self.containers[id(value)] = (found, known[1])
            return bool(known[1])
        assert type(found) is type(value), f"{path}: {type(found)}"
        for name in ("default_factory", "maxlen"):
            assert getattr(value, name, None) is getattr(found, name, None), path
        if isinstance(value, Mapping):
            assert list(value) == list(found), path
        results = inside(found)
        assert len(results) == len(parts), path
        changed = [self.check(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(parts, results, strict=True))]  # fmt: skip
        self.containers[id(value)] = (found, any(changed))
        self.kept.append(value)
        if any(changed):
            assert found is not value, f"{path}: the input was returned"
            assert self.results.setdefault(id(found), id(value)) == id(value), (
                f"{path}: two became one"
            )
        elif type(value) in (Point, Step, Frozen):
            assert found is value, f"{path}: it holds no array, and was rebuilt"
        return any(changed)

    def check_array(self, x: Any, y: Any, path: str) -> bool:
        expected = values_of(x)
        assert isinstance(y, (TARGETS[self.target], np.generic)), f"{path}: {type(y)}"
        dtype = dtype_of(x)
        if self.target == "jax" and not (jax.config.jax_enable_x64 or isinstance(x, jax.Array)):
            dtype = NARROWED.get(dtype, dtype)
        if self.target == "array_api_strict" and dtype in ("float16", "bfloat16"):
            dtype = "float32"
        self.check_device(x, y, path)
        assert dtype_of(y) == dtype, f"{path}: {dtype_of(y)}, not {dtype}"
        result = values_of(y)
        assert result.shape == expected.shape, f"{path}: {result.shape}"
        assert np.array_equal(result.astype(complex), expected.astype(complex)), path
        self.pairs.append((x, y, expected))
        return True

    def check_device(self, x: Any, y: Any, path: str) -> None:
        device = self.options.get("device")
        if self.target != "jax" or (device is None and isinstance(x, jax.Array)):
            return
        expected = {"cpu:1": 1, "cpu": 0}.get(device)
        if expected is None:
            expected = (jax.config.jax_default_device or jax.devices()[0]).id
        assert [d.id for d in y.devices()] == [expected], f"{path}: on {y.devices()}"
        if y is not x and not isinstance(x, jax.Array):
            named = device in ("cpu", "cpu:1")
            assert y.committed is named, f"{path}: committed is {y.committed}"

    def check_layout(self, value: Any) -> None:
        """Take a value apart, and put it together around the same leaves."""
        leaves, layout = af.flatten(value)
        again = layout.unflatten(leaves)
        others, same = af.flatten(again)
        assert len(others) == len(leaves), "flatten: the number of leaves changed"
        assert all(a is b for a, b in zip(leaves, others, strict=True)), "flatten: other leaves"
        assert layout == same, f"flatten: {layout} became {same}"
        assert layout.paths == same.paths, "flatten: other paths"

    def check_memory(self) -> None:
        """Write to the results, and check that no input changes that must not."""
        for x, y, expected in self.pairs:
            if y is x or expected.size == 0:
                continue
            try:
                if isinstance(y, torch.Tensor):
                    y.detach().view(torch.uint8 if y.element_size() == 1 else y.dtype).zero_()
                elif isinstance(y, np.ndarray) and y.flags.writeable:
                    y[...] = 0
                else:
                    continue
            except (RuntimeError, ValueError):
                continue
        for x, y, expected in self.pairs:
            fixed = isinstance(x, (jax.Array, np.generic)) or (
                isinstance(x, np.ndarray) and not x.flags.writeable
            )
            if (self.options.get("copy") or fixed) and y is not x:
                assert np.array_equal(values_of(x), expected, equal_nan=True), (
                    "an input was written to"
                )


def snapshot(value: Any) -> Any:
    """Copy the values of a tree, to see whether a conversion changes it."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [snapshot(x) for x in value.flat]
    if isinstance(value, ARRAYS):
        return values_of(value).tobytes(), getattr(value, "strides", None)
    parts = inside(value)
    return value if parts is None else [type(value), *map(snapshot, parts)]


def surroundings(rng: random.Random, stack: contextlib.ExitStack) -> list[str]:
    """Switch on some of what conversions run in. Return what that is."""
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ("i",))
    ways = {
        "trace": af.trace,
        "mesh": lambda: jax.set_mesh(mesh),
        "device": lambda: jax.default_device(rng.choice(devices)),
        "x64": lambda: jax.enable_x64(True),
        "nans": lambda: jax.debug_nans(True),
        "infs": lambda: jax.debug_infs(True),
        "strict": lambda: jax.numpy_dtype_promotion("strict"),
        "no jit": lambda: jax.disable_jit(),
    }
    chosen = [name for name in ways if rng.random() < 0.25]
    rng.shuffle(chosen)
    for name in chosen:
        stack.enter_context(ways[name]())
    return chosen


def one_converter(rng: random.Random, steps: int, *, surrounded: bool = False) -> None:
    """Let one converter meet a series of values."""
    several = ({"device": "cpu:1"}, {"device": "default"}) if len(jax.devices()) > 1 else ()
    target = rng.choice(list(TARGETS))
    options = rng.choice(OPTIONS + (several if surrounded and target == "jax" else ()))
    conversion = af.converter(target, **options)
    value = tree(rng)
    chosen: list[str] = []
    with contextlib.ExitStack() as outer:
        stack = outer.enter_context(contextlib.ExitStack())
        for step in range(steps):
            if surrounded and rng.random() < 0.3:
                stack.close()
                chosen = surroundings(rng, stack)
            before = snapshot(value)
            try:
                found = conversion(value)
                oracle = Oracle(target, options)
                oracle.check(value, found)
                assert snapshot(value) == before, "the input was changed"
                oracle.check_layout(value)
                oracle.check_memory()
            except af.UnsupportedDtypeError:
                assert target == "array_api_strict"  # which has few dtypes
            except Exception as error:
                raise AssertionError(
                    f"step {step}, to {target} with {options} in {chosen}: "
                    f"{type(error).__name__}: {error}\n{value!r}"
                ) from error
            if rng.random() < 0.7:
                value = mutate(rng, value)
            if rng.random() < 0.02:
                value = tree(rng)


def main() -> None:
    """Run until enough conversions were made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--conversions", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--surroundings", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    made, seed, failed = 0, arguments.seed * 1_000_000, 0
    began = time.monotonic()
    while made < arguments.conversions:
        try:
            one_converter(random.Random(seed), arguments.steps, surrounded=arguments.surroundings)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}, {error}", flush=True)
            if failed >= 10:
                break
        made, seed = made + arguments.steps, seed + 1
    print(
        f"{made} conversions by {seed} converters in {time.monotonic() - began:.0f} s, {failed} failed"
    )
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
