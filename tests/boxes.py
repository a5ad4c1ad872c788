"""A library of arrays and containers that only tests know, and parts that are registered for a while."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import arrayferry as af


class Box:
    dtype = np.dtype("float32")
    shape = (3,)

    def __init__(self, values):
        self.values = values


class BoxBackend(af.Backend):
    name, package, array_types = "boxes", "boxlib", ("boxlib.Box",)

    def to_numpy(self, x):
        return x.values

    def from_numpy(self, x, device=None):
        return Box(x)


def faulty(**methods):
    """Return a backend for boxes with methods and attributes of its own, some of them of its devices."""
    held = {name: methods.pop(name) for name in vars(af.Devices).keys() & methods if name[0] != "_"}
    return type(
        "Faulty", (BoxBackend,), {"devices": type("Places", (af.Devices,), held)(), **methods}
    )()


def raising(*args, **kwargs):
    raise ZeroDivisionError("a fault")


class DirectToTorch(af.Converter):
    source, target, cost = "boxes", "torch", "copy"

    def convert(self, x, device=None, copy=None):
        import torch

        return torch.from_numpy(x.values.copy())


class BoxSource(af.Source):
    name, package, array_types = "boxes", "boxlib", ("boxlib.Box",)

    def to_numpy(self, x):
        return x.values


class Point(NamedTuple):
    x: Any
    y: Any = None


@dataclasses.dataclass
class Plain:
    x: Any
    note: Any = None


class Held:
    """Holds one value."""

    def __init__(self, x):
        self.x = x


class HeldContainer(af.Container):
    types = (Held,)

    def children(self, value):
        return [value.x]

    def rebuild(self, value, children):
        return type(value)(*children)


class Compared:
    """Equal to others with an equal value."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    def __hash__(self):
        return hash(self.x)


class Items(Mapping):
    """A mapping that is no dict."""

    def __init__(self, items):
        self.items_ = dict(items)

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


@contextlib.contextmanager
def registered(*parts, **own):
    """Register parts for the time of a block, the first with what it says to layers, by their hooks."""
    for part in parts:
        af.registry.register(part, parts=own if part is parts[0] else None)
    try:
        yield
    finally:
        for part in reversed(parts):
            af.registry.unregister(part)
