import copy
import pickle
import re
import sys
import types
from pathlib import Path

import array_api_compat.torch
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from boxes import Box, BoxBackend, Held, HeldContainer
from refusals import refused

import arrayferry as af
from arrayferry._registry.generic import LIBRARIES


def test_all_ways_to_name_a_target(registry):
    torch_backend = registry.backends()["torch"]
    for to in ("torch", "pytorch", "Torch", torch, array_api_compat.torch, torch_backend):
        assert registry.backend(to) is torch_backend
    for to in ("jax", "jax.numpy", jnp, "jnp"):
        assert registry.backend(to).name == "jax"
    for to in ("dask", "dask.array", "array_api_compat.dask.array"):
        assert registry.backend(to).name == "dask"


@pytest.mark.parametrize(
    ("name", "meant"), [("toch", "torch"), ("numpi", "numpy"), ("JAXX", "jax"), ("daks", "dask")]
)
def test_an_unknown_name_suggests_the_nearest(name, meant):
    caught = refused(af.UnknownBackendError, f"Did you mean '{meant}'", np.ones(2), name)
    assert caught.name == name
    assert caught.nearest[0] == meant


@pytest.mark.parametrize("nonsense", [3, None, ["torch"], types.ModuleType("nothing"), "json", ""])
def test_a_target_that_names_no_library(nonsense):
    with pytest.raises((af.UnknownBackendError, af.OptionError)):
        af.converter(nonsense)


NAMESPACE = """
import numpy
from numpy import *
__array_api_version__ = "2024.12"
"""


def test_a_namespace_that_was_imported_is_known_by_name(folder, run_python):
    (folder / "train_side.py").write_text(NAMESPACE)
    conversions = [af.converter(__import__("train_side")), af.converter("train_side")]
    assert [each([True])[0] for each in conversions] == [True, True]
    conversions.append(pickle.loads(pickle.dumps(conversions[0])))
    assert len({*map(repr, conversions)}) == 1
    (folder / "pickled").write_bytes(pickle.dumps(conversions))
    script = (
        f"import pickle, sys; sys.path.insert(0, {str(folder)!r})\n"
        f"for each in pickle.load(open({str(folder / 'pickled')!r}, 'rb')): print(each.target)\n"
    )
    assert run_python(script).split("\n")[:2] == ["<Backend train_side>"] * 2
    sys.modules["train_side"].asarray = None
    af.registry.refresh()
    with pytest.raises(af.UnknownBackendError):
        conversions[0](1)


def test_namespaces_that_packages_declare_are_imported_by_name(folder):
    """As the Array API standard says, in the entry-point group `array_api`."""
    info = folder / "declared-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[array_api]\ndeclared = declared.xp\nfailing = failing_xp\ngone = gone_xp\nodd = odd_xp\n"
    )
    (folder / "declared").mkdir()
    (folder / "declared" / "__init__.py").write_text("")
    (folder / "declared" / "xp.py").write_text(NAMESPACE)
    (folder / "failing_xp.py").write_text("import sys; sys.exit('no licence')")
    (folder / "odd_xp.py").write_text("asarray = 1")
    for name in ("declared", "declared.xp"):
        assert af.converter(name).target.package == "declared.xp"
    for name in ("failing", "failing_xp"):
        words = f"{name} is installed, but .* SystemExit: no licence"
        caught = refused(af.BackendUnavailableError, words, np.ones(2), name)
        assert isinstance(caught.__cause__, SystemExit)
    for name in ("gone", "odd", "declared.yp"):
        refused(af.UnknownBackendError, f"known as '{name}'", np.ones(2), name)


def test_a_known_library_that_fails_to_import_is_named_with_the_cause(folder, monkeypatch):
    (folder / "ragged").mkdir()
    (folder / "ragged" / "__init__.py").write_text("import a_module_that_is_not_there")
    for name in ("ragged", "ragged.inner"):
        refused(af.BackendUnavailableError, r"No module .*a_module_that_is_not", np.ones(2), name)
    refused(af.UnknownBackendError, "strict.inner'", np.ones(2), "array_api_strict.inner")


def test_the_libraries_that_are_imported_by_name_are_those_in_the_docs():
    page = Path(__file__).parents[3] / "docs" / "reference" / "values.md"
    listed = re.search(
        r"Array API libraries without a plugin\*\* \((.*?)\)", page.read_text(), re.DOTALL
    )
    names = {name.strip().replace("-", "_") for name in listed[1].split(",")}
    assert set(LIBRARIES) == names | {"array_api_compat", "sparse"}


def test_a_hook_may_return_nothing(registry):
    """As for pluggy, None is no result. But a plugin that brings nothing at all has a mistake."""
    plugin = types.SimpleNamespace(
        arrayferry_backends=lambda: [BoxBackend()], arrayferry_sources=lambda: None
    )
    registry.register(plugin)
    assert registry.backend(BoxBackend.name).name == BoxBackend.name
    silent = types.SimpleNamespace(arrayferry_sources=lambda: None)
    with pytest.raises(af.PluginError, match=r"arrayferry_sources returned None.*Write return"):
        registry.register(silent)


def test_a_container_says_how_its_children_are_reached(register):
    register(type("Steps", (HeldContainer,), {"steps": lambda self, value: [".held"]})())
    assert isinstance(af.convert({"p": Held(np.ones(2))}, "torch")["p"].x, torch.Tensor)
    refused(af.UnsupportedDtypeError, r"at \['p'\]\.held", {"p": Held(np.array(["x"]))}, "torch")


def test_namespace_of():
    assert af.namespace_of(torch.ones(1)) is array_api_compat.torch
    assert af.namespace_of(jnp.ones(1)) is jnp
    with pytest.raises(af.NotAnArrayError):
        af.namespace_of("text")


def test_backend_of_scalars_and_others():
    assert af.backend_of(np.float32(3)).name == "numpy"
    for other in (3, None, "x", [np.ones(1)], np.str_("x"), np.datetime64("2020")):
        with pytest.raises(af.NotAnArrayError, match="is not an array"):
            af.backend_of(other)


class TestOfOnesOwn:
    """The functions that take a registry of one's own see what is registered there, and the default one does not."""

    @pytest.fixture
    def own(self, registry, boxlib):
        registry.register(BoxBackend())
        return registry

    def test_every_function_that_takes_one_uses_it(self, own):
        box = af.converter("boxes", registry=own)(np.ones(2))
        assert type(box) is Box
        assert af.backend_of(box, registry=own).name == "boxes"
        assert af.first_array([1, box], registry=own)[1].name == "boxes"
        assert af.flatten([box], registry=own)[0] == [box]
        assert "boxes" in af.backends(registry=own)
        assert "boxes" in str(af.route("numpy", "boxes", registry=own))
        assert af.converter(like=box, registry=own)(np.ones(2)).values.tolist() == [1, 1]
        assert "boxes" not in af.backends()
        for function in (af.backend_of, af.namespace_of):
            with pytest.raises(af.NotAnArrayError):
                function(box)
        for function in (af.converter, lambda to: af.route("numpy", to)):
            with pytest.raises(af.UnknownBackendError):
                function("boxes")
        assert af.first_array([box]) == (None, None)
        assert af.flatten([box])[0] == []

    def test_a_conversion_is_not_pickled_into_the_default_one(self, own):
        conversion = af.converter("torch", registry=own)
        words = r"registry of its own cannot be pickled.*in that process"
        with pytest.raises(TypeError, match=words):
            pickle.dumps(conversion)
        for again in (copy.copy(conversion), copy.deepcopy(conversion)):
            assert again.registry is own
            assert repr(again) == repr(conversion)


def test_types_of_one_name_belong_to_their_own_backends(registry, monkeypatch):
    def made(name):
        module = types.ModuleType(name)
        module.Array = type("Array", (Box,), {})
        monkeypatch.setitem(sys.modules, name, module)
        members = {
            "name": name, "package": name, "array_types": (f"{name}.Array",),
            "from_numpy": lambda self, x, device=None: module.Array(x),
        }  # fmt: skip
        registry.register(type("Made", (BoxBackend,), members)())
        return module.Array

    first, second = made("one_name"), made("same_name")
    assert first.__qualname__ == second.__qualname__ == "Array"
    x = first(np.ones(2))
    assert registry.kind(x).backend.name == "one_name"
    assert type(af.converter("same_name", registry=registry)(x)) is second
    assert registry.kind(second(np.ones(2))).backend.name == "same_name"


@pytest.mark.parametrize("name", ["train_side", "package", "package.train_side", "train_side.x"])
def test_a_mistyped_target_is_not_imported(folder, name):
    (folder / "package").mkdir()
    for path in ("train_side.py", "package/__init__.py", "package/train_side.py"):
        (folder / path).write_text(NAMESPACE)
    for call in (
        lambda: af.convert(np.ones(2), name),
        lambda: af.converter(name, device="cpu"),
        lambda: af.Conversion(name, af.Options(), af.registry)(1),
        lambda: af.route(name, "torch"),
    ):
        with pytest.raises(af.UnknownBackendError, match=r"import its namespace .* first"):
            call()
    assert not {"train_side", "package"} & set(sys.modules)
