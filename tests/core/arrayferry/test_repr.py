"""What objects look like in a shell: short, true, without computing anything, and without raising."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
from boxes import BoxBackend, HeldContainer

import arrayferry as af
from arrayferry import typing as af_typing
from arrayferry._utilities.text import numbered


class Broken(BoxBackend):
    array_types = ()

    @property
    def name(self):
        raise RuntimeError("a plugin that errs")


class Unfinished(af.Converter):
    source = "numpy"

    def convert(self, x, device=None, copy=None):
        return NotImplemented


SAID = [
    (lambda: af.route("numpy", "torch"), "numpy (cpu) -> torch (cpu) shared"),
    (lambda: af.converter("torch"), "arrayferry.converter('torch')"),
    (
        lambda: af.converter("torch", device="cpu", narrowing="allow"),
        "arrayferry.converter('torch', device='cpu', narrowing='allow')",
    ),
    (lambda: af.Options(), "Options()"),
    (lambda: af.Options(copy=True, sparse="dense"), "Options(copy=True, sparse='dense')"),
    (lambda: af.flatten({"x": np.ones(1), "n": 3})[1], "<TreeSpec dict(['x']: array, ['n']: 3)>"),
    (lambda: af.registry.backend("torch"), "<Backend torch>"),
    (lambda: af.Inline("", "f({x})", {"f": abs}), "Inline(test='', result='f({x})')"),
    (lambda: HeldContainer(), "<Container HeldContainer>"),
    (lambda: Broken(), "<Broken, incomplete>"),
    (lambda: Unfinished(), "<Unfinished, incomplete>"),
    (
        lambda: af.Conversion("gone", af.Options(device=object()), af.registry),
        "arrayferry.converter('gone', device=<object>)",
    ),
]


@pytest.mark.parametrize(("make", "text"), SAID)
def test_what_it_says(make, text):
    assert repr(make()) == text


@pytest.mark.parametrize("cls", [af.Conversion, af.TreeSpec, af.Registry, af.Trace])
def test_an_object_whose_constructor_failed(cls):
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"


def test_a_registry_counts_and_loads_nothing():
    registry = af.Registry(autoload=False)
    assert repr(registry) == "<Registry, plugins are looked up at first use>"
    registry.register(HeldContainer())
    assert repr(registry) == "<Registry of 0 backends, 0 sources, 0 converters, 1 containers>"


def test_backends_say_what_is_installed():
    class Erring(BoxBackend):
        name = "erring"
        array_types = ("erring.Array",)

        @property
        def installed(self):
            raise RuntimeError("a plugin that errs")

    registry = af.Registry(autoload=False)
    assert repr(registry.backends()) == "<Backends: none>"
    registry.register(BoxBackend())
    registry.register(Erring())
    assert repr(registry.backends()) == "<Backends: boxes (not installed), erring (not installed)>"


def test_backends_are_a_mapping_that_cannot_be_changed():
    backends = af.backends()
    assert backends == dict(backends) == backends.copy()
    assert [*reversed(backends)] == [*backends][::-1]
    with pytest.raises(TypeError):
        backends["numpy"] = backends["torch"]
    assert repr(pickle.loads(pickle.dumps(backends))) == repr(dict(backends))


def test_huge_values_are_cut_short():
    many = af.flatten({str(number): np.ones(1) for number in range(100_000)})[1]
    long = af.flatten([np.ones(1), "text" * 100_000, 10**1000, {"k" * 10_000: np.ones(1)}])[1]
    deep = [np.ones(1)]
    for _ in range(100):
        deep = [deep]
    for layout in (many, long, af.flatten(deep)[1]):
        assert len(repr(layout)) < 500
    assert repr(many).endswith("...>")
    assert len(repr(af.Inline("a" * 10_000, "b" * 10_000, {}))) < 200


def test_nothing_is_computed(monkeypatch):
    import dask
    import dask.array as da

    def refuse(*args, **kwargs):
        raise AssertionError("it was computed")

    lazy = da.ones(6, chunks=2)
    _, layout = af.flatten([lazy])
    with monkeypatch.context() as patched, dask.config.set(scheduler=refuse):
        patched.setattr(da.Array, "__array__", refuse)
        assert repr(layout) == "<TreeSpec list([0]: array)>"


def test_a_converter_is_written_without_looking_anything_up(run_python):
    out = run_python(
        "import sys, arrayferry as af\n"
        "conversion = af.Conversion('torch', af.Options(copy=True), af.Registry())\n"
        "print(repr(conversion), repr(conversion.registry), 'torch' in sys.modules)"
    )
    assert out.strip() == (
        "arrayferry.converter('torch', copy=True) "
        "<Registry, plugins are looked up at first use> False"
    )


def test_copies_and_pickles_look_the_same():
    layout = af.flatten({"x": np.ones(1)})[1]
    for value in (af.Options(copy=True), af.route("torch", "torch"), layout):
        for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            assert again == value
            assert hash(again) == hash(value)
            assert repr(again) == repr(value)


def test_signatures_are_real():
    parameters = inspect.signature(af.convert).parameters
    assert [*parameters] == ["value", "to", "like", *af.Options._fields]
    assert parameters["narrowing"].default == "checked"
    assert [*inspect.signature(af.converter).parameters] == [*[*parameters][1:], "registry"]


def test_completion_shows_public_names_only():
    assert [name for name in dir(af_typing) if name[0] == "_"] == []
    assert {"register", "refresh", "backends"} <= {*dir(af.registry)}
    assert [name for name in dir(af.registry) if name[0] == "_"] == []


def test_numbered_names_are_unique():
    assert numbered(["a", "a", "b", "a_2", "a"]) == ["a", "a_2", "b", "a_2_2", "a_3"]
