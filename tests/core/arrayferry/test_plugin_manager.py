"""`registry.manager`: what users of pluggy know, on installed plugins and on those that are registered at run time."""

import dataclasses
import functools
import importlib
import itertools
import re
import sys
import types

import numpy as np
import pluggy
import pytest
from boxes import Box, BoxBackend, BoxSource, DirectToTorch, Held, HeldContainer
from distributions import hooks, write_distribution
from distributions import plugin as library
from interrupts import interrupted

import arrayferry as af
from arrayferry._plugin import hookspecs
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._registry.checks import _MOVED, _known, check_part

pytestmark = pytest.mark.usefixtures("boxlib")
X = np.arange(3, dtype=np.float32)


@pytest.fixture
def small():
    """A registry with NumPy alone."""
    registry = af.Registry(autoload=False)
    registry.register(importlib.import_module("arrayferry_plugins.numpy_"), "numpy")
    return registry


def test_the_hooks_are_specified_and_documented():
    manager = af.registry.manager
    assert isinstance(manager, pluggy.PluginManager)
    for hook in HOOKS:
        assert getattr(manager.hook, hook).has_spec()
        assert getattr(hookspecs, hook).__doc__.startswith("Return ")
        assert not list(getattr(hookspecs, hook)())


def test_plugins_are_found_by_name(registry):
    manager = registry.manager
    module = sys.modules["arrayferry_plugins.torch_"]
    assert manager.get_plugin("torch") is dict(manager.list_name_plugin())["torch"] is module
    assert manager.get_name(module) == "torch"
    part, made = HeldContainer(), hooks(containers=[HeldContainer()])
    assert manager.register(part) == "HeldContainer"
    assert manager.register(HeldContainer()) == "HeldContainer-2"
    assert manager.register(made, "made") == "made"
    assert manager.get_name(part) == "HeldContainer"
    assert manager.unregister(part) is part
    assert manager.unregister(name="made") is made
    assert manager.unregister(name="made") is None
    assert registry.catalog.containers[0] is not part
    assert {"HeldContainer-2", "torch"} <= {name for name, _ in manager.list_name_plugin()}


def test_a_blocked_plugin_is_not_used_until_it_is_unblocked(install):
    registry, _ = install(lib=library("lib"))
    conversion = af.converter("lib", registry=registry)
    assert conversion(X).values.tolist() == [0, 1, 2]
    registry.manager.set_blocked("lib")
    for _ in range(2):
        words = r"'lib': the plugin of that name .*is blocked"
        with pytest.raises(af.UnknownBackendError, match=words):
            conversion(X)
        registry.refresh()
        assert registry.manager.is_blocked("lib")
    assert registry.manager.unblock("lib")
    assert not registry.manager.unblock("lib")
    assert conversion(X).values.tolist() == [0, 1, 2]


def test_what_the_variable_does_not_name_is_blocked_and_never_imported(install, monkeypatch):
    monkeypatch.setenv("ARRAYFERRY_PLUGINS", "numpy, other")
    registry, _ = install(lib=library("lib"), other=library("other"))
    manager = registry.manager
    assert [*registry.backends()] == ["numpy", "other"]
    assert manager.unblock("lib")
    manager.set_blocked("other")
    assert manager.is_blocked("lib")
    assert [*registry.backends()] == ["numpy"]
    assert "lib_plugin" not in sys.modules
    monkeypatch.setenv("ARRAYFERRY_PLUGINS", "numpy, lib, other")
    registry.refresh()
    assert [*registry.backends()] == ["numpy", "lib"]


def test_a_blocked_name_cannot_be_registered(registry):
    registry.manager.set_blocked("mine")
    assert registry.manager.register(HeldContainer(), "mine") is None
    with pytest.raises(af.PluginError, match=r"the name 'mine' is blocked.*unblock"):
        registry.register(HeldContainer(), "mine")
    registry.manager.unblock("mine")
    registry.register(HeldContainer(), "mine")
    registry.manager.set_blocked("mine")
    registry.manager.unblock("mine")
    assert not registry.manager.has_plugin("mine")


def test_each_plugin_is_called_alone_and_monitored(install):
    (registry, _), calls = install(lib=library("lib")), []
    manager = registry.manager
    undo = manager.add_hookcall_monitoring(
        lambda hook, calls_of, kwargs: calls.append(
            (hook, *(each.plugin_name for each in calls_of))
        ),
        lambda outcome, hook, calls_of, kwargs: calls.append(outcome.get_result()),
    )
    registry.refresh()
    part = BoxBackend()
    registry.register(part)
    undo()
    registry.refresh()
    made = [call for call in calls if isinstance(call, tuple)]
    assert {len(call) for call in made} == {2}
    assert made.count(("arrayferry_backends", "lib")) == 1
    assert calls[-2:] == [("arrayferry_backends", "BoxBackend"), [[part]]]


def raising():
    raise ZeroDivisionError("a fault")


FAULTY = {
    "a hook that raises": (hooks(containers=[HeldContainer()]), "sources", raising),
    "an unknown hook": (hooks(containers=[HeldContainer()]), "others", af.hookimpl(lambda: [3])),
    "arguments": (hooks(containers=[HeldContainer()]), "sources", lambda registry: []),
    "a wrong part": (hooks(containers=[HeldContainer()]), "backends", lambda: [HeldContainer()]),
    "no list": (hooks(containers=[HeldContainer()]), "sources", lambda: 3),
    "a taken name": (hooks(), "backends", lambda: [type("B", (BoxBackend,), {"name": "torch"})()]),
    "an exit": (hooks(), "backends", sys.exit),
    "nothing": (hooks(), "helpers", 3),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_plugin_that_cannot_be_registered_leaves_nothing(registry, fault):
    made, hook, function = FAULTY[fault]
    faulty = types.SimpleNamespace(**vars(made), **{f"arrayferry_{hook}": function})
    manager = registry.manager

    def state():
        names = manager.list_name_plugin()
        calls = {name: caller.get_hookimpls() for name, caller in vars(manager.hook).items()}
        return names, calls, registry.catalog

    before = state()
    for register in (registry.register, manager.register):
        with pytest.raises((af.PluginError, ZeroDivisionError, SystemExit)):
            register(faulty, "faulty")
        assert state() == before
        assert state()[2] is before[2]
    registry.register(HeldContainer(), "faulty")


def part(cls, **attributes):
    return type("Faulty", (cls,), attributes)()


REFUSED = {
    **{
        f"{cls.__name__}, {attribute}={value!r}": (part(cls, **{attribute: value}), words)
        for cls, attribute, values, words in (
            (BoxBackend, "name", [""], r"has no name\. Set name to "),
            (BoxBackend, "package", [None], "has no package"),
            (BoxBackend, "array_types", [(), "boxlib.Box"], r"has .*array_types\. Set array_types to "),
            (BoxBackend, "dtypes", [{"float64"}], "has {'float64'} for its dtypes. Set dtypes to a method: def"),
            *(
                (BoxBackend, name, [value], rf"Backend Faulty has .*{name}\. Set {name} to ")
                for name, value in {
                    "memory": "writeable", "aliases": np.array(["a", "b"]), "devices": None, "dlpack": "cuda", "replaces": ["torch"],
                    "to_numpy_shares": 0, "from_numpy_shares": "yes", "install": None, "item_types": ("Box",),
                }.items()
            ),
            (BoxSource, "name", ["", 3, ["boxes"]], "Source Faulty has .* name"),
            (BoxSource, "replaces", ["pandas", ["pandas"], ("",), (3,)], r"Source Faulty has .*replaces\. Set replaces"),
            (
                HeldContainer, "types", [Held, "builtins.list", (), (3,), ("nodots",), ["a.B"], None],
                r"types\. Set types to a tuple",
            ),
        )
        for value in values
    },
    "the kinds of a DLPack": (
        part(BoxBackend, dlpack=part(af.DLPack, kinds="cuda")), "DLPack Faulty has 'cuda' for its kinds",
    ),
    **{
        f"{cls.__name__} without a hash": (dataclasses.dataclass(type("Equal", (cls,), {}))(), "defines __eq__ without __hash__, so it cannot be a key of a dict.*eq=False")
        for cls in (BoxBackend, BoxSource, DirectToTorch)
    },
    "a class": (BoxBackend, r"BoxBackend'> is not a Backend, .*Register an instance"),
    "the class of a source": (BoxSource, r"BoxSource'> is not a Backend"),
    "a hook that returns a class": (hooks(backends=[BoxBackend]), r"BoxBackend'>, where a Backend is expected.*instances"),
    "a hook that is no function": (types.SimpleNamespace(arrayferry_backends=[]), "implements no hook"),
    **{
        f"the hook {name}": (
            types.SimpleNamespace(**{name: af.hookimpl(made(list)), **vars(hooks(containers=[HeldContainer()]))}),
            f"the hook {name} of .* is a functools.* only calls functions. Write a function",
        )
        for name, made in {"units": functools.cache, "arrayferry_backends": functools.partial}.items()
    },
    "a name of a built-in source": (part(BoxSource, name="h5py"), "the name 'h5py' is taken by the .* 'h5py' of"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_registered_is_checked(registry, what):
    faulty, words = REFUSED[what]
    before = registry.catalog
    with pytest.raises(af.PluginError, match=words):
        registry.register(faulty)
    assert registry.catalog is before


MOVED = {cls: _MOVED[cls.__base__] for cls in (BoxBackend, BoxSource, HeldContainer)}


@pytest.mark.parametrize(("cls", "old"), [(cls, old) for cls in MOVED for old in MOVED[cls]])
def test_a_member_that_has_moved_is_refused(cls, old):
    words = rf"Faulty has {old}, which is {re.escape(MOVED[cls][old])} now\. Rename it"
    with pytest.raises(af.PluginError, match=words):
        check_part(part(cls, **{old: lambda self: None}))


MEMBERS = """
name package install installed namespace aliases replaces array_types item_types memory to_numpy_shares
from_numpy_shares to_numpy to_numpy_many from_numpy copy compute dtypes dtype_hint number_dtype is_traced is_sparse
to_dense address device_of devices dlpack check problem
"""


def test_the_members_of_a_backend():
    assert sorted(n for n in _known(af.Backend) if n[0] != "_") == sorted(MEMBERS.split())


def test_names_of_hooks_are_enough_and_only_functions_count(registry):
    class Plugin:
        arrayferry_version = 3
        arrayferry_sources = HeldContainer  # a class is no hook
        part = HeldContainer()

        def arrayferry_containers(self):
            return [self.part]

        def __dir__(self):
            return [*super().__dir__(), "gone"]

        @property
        def broken(self):
            raise AttributeError

    registry.register(Plugin())
    assert registry.catalog.containers[0] is Plugin.part


@dataclasses.dataclass
class Equal(HeldContainer):
    """A part that cannot be hashed."""


@dataclasses.dataclass
class EqualPlugin:
    part: object

    @af.hookimpl(tryfirst=True)
    def arrayferry_containers(self):
        return [self.part]


def test_plugins_and_parts_are_told_apart_by_identity(registry):
    count, part = len(registry.catalog.containers), HeldContainer()
    made = [Equal(), Equal(), EqualPlugin(part), EqualPlugin(part), HeldContainer()]
    for each in made:
        registry.register(each)
    assert [*registry.catalog.containers[:2]] == [part] * 2
    for each in made[1:]:
        registry.unregister(each)
    assert registry.catalog.containers[0] is made[0]
    assert len(registry.catalog.containers) == count + 1
    for unknown in (Equal(), made[1], sys.modules["arrayferry_plugins.torch_"], None):
        with pytest.raises(af.PluginError, match="not registered at run time"):
            registry.unregister(unknown)


def test_a_name_is_given_once(registry, install):
    part = DirectToTorch()
    registry.register(part, "mine")
    for name, words in {
        "mine": "is taken by <Converter", "torch": "is taken by <module 'arrayferry_plugins.torch_'",
        ("mine",): "must be a string",
    }.items():  # fmt: skip
        with pytest.raises(af.PluginError, match=words):
            registry.register(HeldContainer(), name)
    with pytest.raises(af.PluginError, match="is already registered, as 'mine'"):
        registry.register(part)
    install(mine=library("mine"), lib=library("lib"), two=library("two"))
    words = (
        "the plugin 'mine' of the distribution arrayferry-mine.*"
        "the name 'mine' is taken by <Converter boxes -> torch>"
    )
    with pytest.warns(af.PluginWarning, match=words) as caught:
        registry.refresh()
    assert len(caught) == 1
    assert {"lib", "two"} <= {*registry.backends()}


def test_of_two_installed_plugins_of_one_name_one_is_used(folder):
    for name in ("first", "second"):
        points = f"[arrayferry]\nsame = {name}_plugin\n"
        write_distribution(folder, name, library(name), points=points)
    with pytest.warns(af.PluginWarning) as caught:
        backends = af.Registry().backends()
    (message,) = (str(each.message) for each in caught)
    assert "left out the plugin 'same' of the distribution arrayferry-second" in message
    assert "the name 'same' is taken by <module 'first_plugin'" in message
    assert "first" in backends
    assert "second" not in backends


STRUCTURE = """
import boxes

class Own(boxes.HeldContainer):
    types = ("lib_plugin.Array",)

def arrayferry_containers():
    return [Own()]
"""


def test_a_type_is_not_an_array_and_a_container(install):
    registry, (message,) = install(lib=library("lib"), structure=STRUCTURE)
    backend = registry.backend("lib")
    assert "left out the container 'Own' of the plugin 'structure' of the distribution" in message
    assert "lib_plugin.Array is a type of the backend 'lib' of the plugin 'lib'" in message
    assert registry.kind(backend.from_numpy(X)).backend is backend


@pytest.mark.parametrize("types_", [("boxlib.Box",), (Box,)])
def test_a_type_is_refused_that_would_be_an_array_and_a_container(registry, types_):
    parts = BoxBackend(), type("Boxes", (HeldContainer,), {"types": (Held, *types_)})()
    for first, second in (parts, parts[::-1]):
        registry.register(first)
        with pytest.raises(af.PluginError, match=r"Box'?>? is a type of .* cannot be both"):
            registry.register(second)
        registry.unregister(first)
    with pytest.raises(af.PluginError, match="cannot be both"):
        registry.register(hooks(backends=parts[:1], containers=parts[1:]))


NEAR = {
    "memroy": ("writable", "memory"),
    "alises": ((), "aliases"),
    "instal": ("boxlib", "install"),
    "is_sprase": (lambda self, x: False, "is_sparse"),
    "device": (af.Devices(), "devices"),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_miss_of_an_attribute_is_told(registry, name):
    value, meant = NEAR[name]
    part = type("Boxes", (BoxBackend,), {name: value})()
    words = f"Backend Boxes has an attribute '{name}'.*'{meant}'"
    with pytest.warns(af.PluginWarning, match=words):
        registry.register(part)
    assert registry.backend("boxes") is part


def test_a_near_miss_in_a_part_of_a_backend_is_told(registry):
    places = part(af.Devices, nmaes=lambda self: ("cpu",))
    with pytest.warns(af.PluginWarning, match="Devices Faulty has an attribute 'nmaes'.*'names'"):
        registry.register(part(BoxBackend, devices=places))


def test_attributes_of_ones_own_are_no_near_misses(registry):
    own = {"_memroy": 1, "device": "cpu", "dtype": "float32", "scale": 2, "libs": ()}
    registry.register(part(BoxBackend, **own, memory="lazy", memorys=1))
    registry.register(part(HeldContainer, type=Held, child=lambda self: 3))
    equal = "".join(["immu", "table"])  # which is another object
    registry.register(part(BoxBackend, name="equal", array_types=("boxlib.Equal",), memory=equal))


@pytest.mark.parametrize("change", ["register", "unregister", "set_blocked", "unblock", "refresh"])
def test_an_interrupt_at_any_line_leaves_all_or_nothing(small, change):
    part, manager = HeldContainer(), small.manager
    conversion = af.converter("numpy", registry=small)
    calls = {
        "register": lambda: small.register(part, "mine"),
        "unregister": lambda: small.unregister(part),
        "set_blocked": lambda: manager.set_blocked("mine"),
        "unblock": lambda: manager.unblock("mine"),
        "refresh": small.refresh,
    }

    def prepare():
        manager.unblock("mine")
        if change == "unblock":
            manager.set_blocked("mine")
        if change == "register" and manager.has_plugin("mine"):
            small.unregister(part)
        if change not in ("register", "unblock") and not manager.has_plugin("mine"):
            small.register(part, "mine")
        conversion([Held(X)]), conversion([Held(X)]), conversion([Held(X)])

    places = ("_registry/plugins.py", "_registry/registry.py")
    prepare()
    for number in itertools.count(1):
        if not interrupted(calls[change], number, places):
            break
        catalog, has = small.catalog, manager.has_plugin("mine")
        assert catalog.containers == ((part,) if has else ())
        if change == "refresh":
            assert has
        held = Held([X])
        assert (conversion([held])[0] is held) is not has
        assert "numpy" in small.backends()
        prepare()
    assert manager.has_plugin("mine") is (change in ("register", "refresh"))


def test_a_refresh_that_fails_is_told_to_conversions(small, monkeypatch):
    conversion = af.converter("numpy", registry=small)
    monkeypatch.setattr(small, "update", raising)
    with pytest.raises(ZeroDivisionError):
        small.refresh()
    assert conversion._plans is None


ASKS = """
import arrayferry as af
from boxes import BoxSource
names = [*af.backends()]
{code}
class Own(BoxSource):
    name = package = "own"
af.registry.register(Own())
def arrayferry_sources():
    names.append(len(af.backends()))
    af.registry.manager.list_name_plugin()
    return []
"""


CONVERTS = """
import sys, threading
catalogs = []
(thread := threading.Thread(target=lambda: catalogs.append(af.registry.catalog))).start()
while "arrayferry_plugins.numpy_" not in sys.modules: pass  # the thread is loading the plugins
print(af.convert(np.ones(2), "numpy"))
"""


@pytest.mark.parametrize("start", ["af.backends()", "import asks_plugin"])
def test_a_plugin_may_convert_while_it_is_imported(tmp_path, run_python, start):
    """Also while another thread makes the first call of the process, and then waits for that import."""
    write_distribution(tmp_path, "asks", library("asks") + CONVERTS)
    script = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r}); import arrayferry as af
{start}; import asks_plugin; asks_plugin.thread.join()
print(asks_plugin.catalogs == [af.registry.catalog], "asks" in af.backends())
"""
    assert run_python(script, timeout=60).split() == ["[1.", "1.]", "True", "True"]


WAITS = """
import threading, arrayferry as af
started, waiting = threading.Event(), threading.Event()
def arrayferry_sources():
    started.wait(), af.backends(), waiting.set()
    import converts_at_import
    return []
"""


def test_a_hook_may_wait_for_an_import_that_converts(tmp_path, run_python):
    """In the first load of a process; that module gets all plugins, and the same catalog as others afterwards."""
    write_distribution(tmp_path, "waits", WAITS)
    (tmp_path / "converts_at_import.py").write_text("""
import arrayferry as af, numpy as np, waits_plugin
waits_plugin.started.set(), waits_plugin.waiting.wait()
catalog, again, conversion = af.registry.catalog, af.registry.catalog, af.converter("torch")
print(conversion([np.ones(1)])[0].tolist(), catalog is again)
""")
    script = f"""
import sys, threading; sys.path.insert(0, {str(tmp_path)!r}); import waits_plugin
(thread := threading.Thread(target=__import__, args=["converts_at_import"])).start()
import arrayferry as af; names = [*af.backends()]; thread.join()
from converts_at_import import catalog, conversion
print(catalog is not af.registry.catalog, names == [*catalog.backends])
print(conversion.target is af.backends()["torch"], af.registry.manager.has_plugin("waits"))
"""
    assert run_python(script, timeout=60).split() == ["[1.0]", *["True"] * 5]


def test_a_plugin_may_use_the_registry_while_it_is_loaded(tmp_path, run_python):
    write_distribution(tmp_path, "asks", ASKS.replace("{code}", library("asks")))
    script = f"""
import sys, threading; sys.path.insert(0, {str(tmp_path)!r})
import arrayferry as af
found = []
threads = [threading.Thread(target=lambda: found.append(len(af.backends()))) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(set(found)), found[0] == len(af.backends()), "asks" in af.backends())
for _ in range(2):
    print([each.name for each in af.registry.sources()].count("own"))
    af.registry.refresh()
"""
    assert run_python(script).split() == ["1", "True", "True", "1", "1"]
