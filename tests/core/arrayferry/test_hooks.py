"""The hooks of layers: a package that builds on arrayferry announces them, and asks each plugin for its parts."""

import builtins
import importlib
import itertools
import re
import sys
import tomllib
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from boxes import BoxBackend, HeldContainer
from distributions import load, write_distribution
from distributions import plugin as library
from interrupts import interrupted, quick_turns

import arrayferry as af

LAYER = """
import arrayferry as af
from arrayferry.extending import Part

class Units(Part):
    def unit(self, x):
        return "of " + self.name

class NoUnits(Units):
    name = "nothing"

def unit_of(x, registry=af.registry):
    kind = registry.kind(x)
    return registry.parts("units").of(kind.origin or kind.container, NoUnits()).unit(x)
"""


def part(name="lib", **attributes):
    """Return the code of a hook that returns a part of this name."""
    rows = "".join(f"\n        {key} = {value!r}" for key, value in attributes.items())
    return f"""
import arrayferry as af

@af.hookimpl(MARK)
def units():
    from units_plugin import Units
    class Own(Units):
        name = {name!r}{rows}
    return [Own()]
"""


def marked(code, mark=""):
    return code.replace("MARK", mark)


def write_layer(folder, name, hook="units"):
    """Write a distribution with a layer that announces a hook."""
    points = f"[arrayferry.hooks]\n{hook} = {name}_plugin:Units\n"
    write_distribution(folder, name, LAYER, name, points)


@pytest.fixture
def install(folder):
    """Write a layer, and distributions with plugins for it. Return a registry with them, and the messages."""

    def install(**codes):
        write_layer(folder, "units")
        return load(folder, {name: marked(code) for name, code in codes.items()})

    return install


def asked(registry, hook="units"):
    """Return the parts of a hook, and the messages."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        parts = registry.parts(hook)
    assert {each.category for each in caught} <= {af.PluginWarning}
    return parts, [str(each.message) for each in caught]


def test_a_layer_of_a_stranger(install):
    registry, messages = install(lib=library("lib") + part(), only=part("torch"))
    assert messages == []
    assert "units_plugin" not in sys.modules  # only the names of hooks are read
    parts, messages = asked(registry)
    units = sys.modules["units_plugin"]
    assert messages == []
    assert list(parts) == ["lib", "torch"]
    array = registry.backend("lib").from_numpy(af.convert(1.0, "numpy", scalars="convert"))
    assert units.unit_of(array, registry) == "of lib"
    assert units.unit_of(3, registry) == "of nothing"
    assert registry.parts("units") is parts
    assert repr(parts["lib"]) == "<Units lib>"
    assert "lib" in repr(parts)
    calls = registry.manager.hook.units.get_hookimpls()
    assert [each.plugin_name for each in calls[::-1]] == ["lib", "only"]


def test_the_layer_of_the_page(folder):
    page = (Path(__file__).parents[3] / "docs/how-to/parts.md").read_text()
    section = page.partition("\n## Write a layer\n")[2]
    found = re.findall(r'```\w+ title="(.*?)"\n(.*?)```', section, re.DOTALL)
    project, layer, plugin = (text for _, text in found)
    assert [name for name, _ in found] == ["pyproject.toml", "units.py", "mylib_plugin.py"]
    points = tomllib.loads(project)["project"]["entry-points"]["arrayferry.hooks"]
    rows = [f"{name} = {value}" for name, value in points.items()]
    write_distribution(folder, "units", "", "units", "\n".join(["[arrayferry.hooks]", *rows]))
    (folder / "units.py").write_text(layer)
    registry, messages = load(folder, {"mylib": library("mylib") + plugin})
    assert messages == []
    units = importlib.import_module("units")
    units.af = types.SimpleNamespace(backend_of=registry.backend, registry=registry)
    assert units.unit_of("numpy") == ""
    part = registry.parts("units").of(registry.backend("mylib"))
    assert part.unit(types.SimpleNamespace(unit="m")) == "m"


def test_parts_are_found_by_name_then_by_class_then_by_default(install):
    registry, _ = install(lib=library("lib") + part(), held=part("boxes.HeldContainer"))
    parts, own = registry.parts("units"), registry.backend("lib")

    class Derived(type(own)):
        name = "derived"

    class DerivedContainer(HeldContainer):
        pass

    assert parts.of(own).name == parts.of(Derived()).name == "lib"
    assert parts.of(DerivedContainer()).name == "boxes.HeldContainer"
    assert parts.of(BoxBackend()) is None
    assert parts.of(BoxBackend(), 3) == 3
    assert parts.of(None, 4) == 4


WRONG = {
    "an error": ("@af.hookimpl\ndef units(): return 1 / 0", "ZeroDivisionError.*at bad_plugin.py:"),
    "an exit": ("@af.hookimpl\ndef units(): raise SystemExit(3)", "SystemExit"),
    "an argument": ("@af.hookimpl\ndef units(registry): return []", "must provide argument 'registry'"),
    "nothing": ("@af.hookimpl\ndef units(): pass", "units returned None, where a list of Units is expected"),
    "no list": ("@af.hookimpl\ndef units(): return 3", "units returned 3, where a list of Units"),
    "a part of another type": ("@af.hookimpl\ndef units(): return [3]", "returned 3, where a Units is .*units_plugin"),
    "a wrapper": ("@af.hookimpl(wrapper=True)\ndef units(): return (yield)", "wrapper=True"),
    "no name": (part(""), "Own has no name. Set name to a string"),
    "a name that is no text": (part(3), "Own has 3 for its name"),
    "wrong replacements": (part(replaces="lib"), "Own has 'lib' for its replaces"),
    "its own layer": ("@af.hookimpl\ndef units(): return registry.parts('units').values()", "requests the parts of units while"),
    "a missing module": ("@af.hookimpl\ndef units(): import no_such_module", "ModuleNotFoundError"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_plugin_that_fails_is_left_out_with_one_warning(install, what):
    """Its other parts stay, and so do those of all other plugins."""
    code, words = WRONG[what]
    registry, messages = install(
        bad=library("bad") + "\nimport arrayferry as af\n" + code, lib=part()
    )
    assert messages == []
    sys.modules["bad_plugin"].registry = registry
    parts, messages = asked(registry)
    assert list(parts) == ["lib"]
    assert "bad" in registry.backends()
    (message,) = messages
    assert "the plugin 'bad' of the distribution arrayferry-bad" in message
    assert re.search(words, message), message
    assert asked(registry) == (parts, [])


@pytest.mark.parametrize("error", ["MemoryError", "KeyboardInterrupt", "GeneratorExit"])
def test_what_is_no_fault_of_a_plugin_is_raised(install, error):
    registry, _ = install(bad=f"import arrayferry as af\n@af.hookimpl\ndef units(): raise {error}")
    with pytest.raises(getattr(builtins, error)):
        registry.parts("units")


def test_of_two_parts_of_a_name_the_first_plugin_has_it(install):
    registry, _ = install(one=part("x"), two=part("x"))
    parts, (message,) = asked(registry)
    assert list(parts) == ["x"]
    assert "left out the part of units for 'x' of the plugin 'two'" in message
    assert "the name 'x' is taken by the part of units for 'x' of the plugin 'one'" in message
    assert "two" in {each.plugin for each in parts.left_out}


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_part_replaces_another(install, name):
    registry, _ = install(one=part("x"), two=part(name, replaces=("x",)))
    parts, messages = asked(registry)
    assert messages == []
    assert {type(each).__module__ for each in parts.values()} == {"two_plugin"}
    assert set(parts) == {"x", name}


@pytest.mark.parametrize(
    ("mark", "order"), [("tryfirst=True", "ba"), ("", "ab"), ("trylast=True", "ab")]
)
def test_the_order_is_that_of_pluggy(install, mark, order):
    registry, _ = install(a=part("a"), b=marked(part("b"), mark))
    assert "".join(registry.parts("units")) == order


def test_hooks_that_nobody_announces(install):
    """A marked one refuses the plugin, an unmarked one is told, and one that may be missing is neither."""
    typo = "import arrayferry as af\n@af.hookimpl\ndef unitz(): return []"
    helper = library("helper") + "def arrayferry_helper(): return 3"
    missing = library("missing") + "@af.hookimpl(optionalhook=True)\ndef unitz(): return []"
    unmarked = library("unmarked") + "def units(): return [3]"
    registry, messages = install(typo=typo, helper=helper, missing=missing, unmarked=unmarked)
    assert len(messages) == 2
    refused = next(each for each in messages if "typo" in each)
    assert "unknown hook 'unitz'" in refused
    assert "Did you mean units?" in refused
    assert "units. They take no arguments" in refused
    told = next(each for each in messages if "helper" in each)
    assert "arrayferry does not use arrayferry_helper()" in told
    assert {"helper", "missing", "unmarked"} <= set(registry.backends())
    assert "typo" not in registry.catalog.backends
    assert list(registry.parts("units")) == []
    with pytest.raises(af.PluginError, match=r"announces a hook 'unitz'\. Did you mean units\?"):
        registry.parts("unitz")


def test_a_plugin_may_have_only_a_hook_of_a_missing_layer(install):
    code = "import arrayferry as af\n@af.hookimpl(optionalhook=True)\ndef missing(): return 1 / 0"
    registry, messages = install(only=code, lib=part())
    assert (messages, registry.manager.has_plugin("only")) == ([], True)
    assert list(registry.parts("units")) == ["lib"]


def test_metadata_that_cannot_be_read_breaks_nothing(install, folder):
    install()
    (folder / "units-1.0.dist-info/METADATA").write_bytes(b"Name: \xff")
    write_distribution(folder, "odd", "")
    (folder / "arrayferry_odd-1.0.dist-info/entry_points.txt").write_text(
        "[arrayferry]\nodd = a-b:c\n"
    )
    registry, (message,) = load(folder, {"lib": marked(part())})
    assert "left out the plugin 'odd' of" in message
    assert list(registry.parts("units")) == ["lib"]


def test_a_layer_that_cannot_be_imported(install, folder):
    registry, _ = install(lib=part())
    failed = "the parts that units returns, units_plugin:Units, cannot be imported: "
    for code, words in {
        "1 / 0": f"{failed}Zero", "raise SystemExit(3)": f"{failed}SystemExit: 3", "Units = 3": "is not a class: 3",
    }.items():  # fmt: skip
        (folder / "units_plugin.py").write_text(code)
        with pytest.raises(af.PluginError, match=words):
            registry.parts("units")


def test_two_layers_announce_one_hook(install, folder):
    install()
    write_layer(folder, "other")
    write_layer(folder, "third", "arrayferry_backends")
    registry, messages = load(folder, {"lib": marked(part())})
    assert len(messages) == 2
    assert (
        "does not use the hook units of units_plugin:Units of the distribution units, "
        "since a hook of this name is announced by other_plugin:Units of the distribution other"
        in messages[1]
    )
    assert (
        "third_plugin:Units of the distribution third, since a hook of this name is part of arrayferry"
        in messages[0]
    )
    assert asked(registry)[0] == {}  # the part is one of the other layer


# At run time.


def test_a_part_for_one_backend_at_run_time(install):
    registry, _ = install(lib=library("lib") + part())
    first = registry.parts("units")
    units = sys.modules["units_plugin"]

    class Own(units.Units):
        name = "boxes"

    backend, own = BoxBackend(), Own()
    registry.register(backend, parts={"units": own})
    assert registry.parts("units") is not first
    assert registry.parts("units").of(backend) is own
    registry.refresh()
    assert registry.parts("units").of(backend) is own
    assert list(registry.parts("units")) == ["boxes", "lib"]  # pluggy asks the last one first
    registry.unregister(backend)
    assert list(registry.parts("units")) == ["lib"]
    registry.register(type("Hooks", (), {"units": af.hookimpl(staticmethod(lambda: [own]))}))
    assert registry.parts("units")["boxes"] is own
    registry.register(HeldContainer(), parts={"units": type("Of", (Own,), {"name": "held"})()})
    assert set(registry.parts("units")) == {"lib", "boxes", "held"}
    registry.manager.set_blocked("lib")
    catalog = registry.catalog
    registry.manager.unblock("lib")
    assert set(catalog.parts("units")) == {"boxes", "held"}  # of the plugins that it was made of
    assert set(registry.parts("units")) == {"lib", "boxes", "held"}


@pytest.mark.parametrize("fault", ["another type", "a taken name", "no such hook", "no name"])
def test_a_wrong_part_at_run_time_leaves_nothing(install, fault):
    registry, _ = install(lib=library("lib") + part())
    units = (registry.parts("units"), sys.modules["units_plugin"].Units)[1]
    hook, wrong, words = {
        "another type": ("units", 3, "returned 3, where a Units is expected"),
        "a taken name": ("units", type("A", (units,), {"name": "lib"})(), "'lib' is taken by .*replaces"),
        "no such hook": ("unitz", 3, "unknown hook 'unitz'.*Did you mean units"),
        "no name": ("units", units(), "Units Units has no name"),
    }[fault]  # fmt: skip
    before = registry.parts("units")
    with pytest.raises(af.PluginError, match=words):
        registry.register(BoxBackend(), parts={hook: wrong})
    assert "boxes" not in registry.backends()
    assert list(registry.parts("units")) == list(before)
    registry.register(BoxBackend())


def test_registries_have_parts_of_their_own(install, folder):
    registry, _ = install(lib=part())
    other = af.Registry(autoload=False)
    assert list(other.parts("units")) == []
    own = registry.parts("units")["lib"]
    other.register(BoxBackend(), parts={"units": own})
    assert other.parts("units")["lib"] is own
    assert list(registry.parts("units")) == ["lib"]
    with pytest.raises(af.PluginError, match="no installed package"):
        other.parts("unit")
    write_layer(folder, "one", "unit")
    assert (other.refresh(), other.parts("unit")) == (None, {})


def test_threads_ask_together_and_get_the_same(install):
    registry, _ = install(**{f"lib{n}": part(f"lib{n}") for n in range(8)})
    with quick_turns(), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: registry.parts("units"), range(8)))
    assert all(each is found[0] for each in found)
    assert len(found[0]) == 8


def test_an_interrupt_at_any_line_is_an_interrupt(install):
    registry, _ = install(lib=part())
    places = ("_registry/plugins.py", "_registry/parts.py", "lib_plugin.py")
    for number in itertools.count(1):
        registry.refresh()
        if not interrupted(lambda: registry.parts("units"), number, places):
            break
        assert asked(registry) == ({"lib": registry.parts("units")["lib"]}, [])
    assert number > 20
