"""Which plugin is used where several claim the same, in which order they come, and which of them are trusted."""

import functools

import boxes
import pytest
from boxes import Box, BoxBackend, BoxSource
from distributions import hooks, write_distribution

import arrayferry as af
from arrayferry._registry.checks import check_part
from arrayferry._registry.discovery import is_built_in


class Cell(Box):
    pass


@pytest.fixture(autouse=True)
def library(boxlib, monkeypatch):
    for name, cls in (("Cell", Cell), ("Alias", Box)):
        monkeypatch.setattr(boxes, name, cls, raising=False)


def made(cls, name="columns", *array_types, **attributes):
    part = cls()
    part.name, part.array_types = name, array_types or ("boxlib.Box",)
    vars(part).update(attributes)
    return part


source, backend = functools.partial(made, BoxSource), functools.partial(made, BoxBackend)


CLASHES = {
    "name of a source": (source("a"), source("a", "boxlib.Cell"), "the name 'a' .* source 'a'"),
    "name of a backend": (backend("a"), source("a", "boxlib.Cell"), "the name 'a' .* backend"),
    "alias of a backend": (backend(aliases=("a",)), source("a", "boxlib.Cell"), "the name 'a'"),
    "namespace of a backend": (backend(namespace="a"), source("a", "boxlib.Cell"), "the name"),
    "name, by a backend": (source("a"), backend("a", "boxlib.Cell"), "the name 'a' .* source"),
    "name, by an alias": (source("a"), backend("b", "boxlib.Cell", aliases=("a",)), "the name"),
    "type of a source": (source("a"), source("b"), r"the array type boxlib\.Box .* source"),
    "type of a backend": (backend("a"), source("b"), r"the array type boxlib\.Box .* back"),
    "one of several types": (source("a"), source("b", "boxlib.Cell", "boxlib.Box"), r"boxlib\.Box is taken"),
}  # fmt: skip


@pytest.mark.parametrize("clash", CLASHES)
def test_a_clash_at_run_time_is_refused(registry, clash):
    first, second, words = CLASHES[clash]
    registry.register(first, "one")
    before = registry.catalog
    for part in (second, hooks(**{f"{type(second).__base__.__name__.lower()}s": [second]})):
        with pytest.raises(af.PluginError, match=rf"{words}.* of one\..*`replaces`"):
            registry.register(part, "two")
    assert registry.catalog is before
    registry.refresh()
    assert second not in [*registry.sources(), *registry.backends().values()]


def test_sources_of_one_plugin_may_have_one_name(registry):
    """That of their library, as those of pyarrow have."""
    parts = [source("a"), source("a", "boxlib.Cell")]
    registry.register(hooks(sources=parts))
    assert [each for each in registry.sources() if each.name == "a"] == parts
    assert len([each for each in registry.sources() if each.name == "pyarrow"]) == 2
    with pytest.raises(af.PluginError, match="the name 'a' is taken"):
        registry.register(source("a", "boxlib.Other"))
    registry.refresh()
    assert [each for each in registry.sources() if each.name == "a"] == parts


def test_a_source_may_be_named_as_the_package_of_a_backend(registry):
    registry.register(backend("arrays", package="boxlib"))
    part = source("boxlib", "boxlib.Cell")
    registry.register(part)
    assert registry.kind(Cell(1)).source is part


def test_a_type_under_two_paths_is_told_once(registry):
    first = source("a")
    registry.register(first)
    registry.register(source("b", "boxlib.Alias"))
    words = r"the source 'b' of .* for boxlib\.Alias: the source 'a' of .* lists that type"
    with pytest.warns(af.PluginWarning, match=words):
        assert registry.kind(Box(1)).source is first
    registry.register(source("c", "boxlib.Cell"))
    assert registry.kind(Box(1)).source is first


def test_a_source_replaces_a_source(registry):
    old = [source("old"), source("old", "boxlib.Cell")]
    registry.register(hooks(sources=old))
    new = source("new", replaces=("old",))
    registry.register(new)
    assert registry.kind(Box(1)).source is registry.kind(Cell(1)).source is new
    assert not set(old) & set(registry.sources())
    own = source("pandas", "pandas.Series", replaces=("pandas",))
    registry.register(own)
    assert [each for each in registry.sources() if each.name == "pandas"] == [own]


def test_a_backend_replaces_a_source(registry):
    old, new = source("a"), backend("a", replaces=("a",))
    registry.register(old)
    registry.register(new)
    assert registry.kind(Box(1)).backend is new
    assert registry.backend("a") is new
    assert old not in registry.sources()


def test_a_part_that_is_replaced_by_an_earlier_one_is_refused(registry):
    registry.register(source("new", replaces=("old",)), "one")
    with pytest.raises(af.PluginError, match=r"source 'old' of two .* the source 'new' of one"):
        registry.register(source("old", "boxlib.Cell"), "two")
    assert registry.kind(Box(1)).source.name == "new"


def test_a_source_replaces_no_backend(registry):
    registry.register(backend("a"))
    with pytest.raises(af.PluginError, match="the name 'a' is taken by the backend 'a'"):
        registry.register(source("a", replaces=("a",)))


# Installed plugins.

PART = """
class {cls}(af.{kind}):
    name, package, array_types, replaces = "{name}", "boxlib", {types}, {replaces}
    def to_numpy(self, x):
        return x.values
    def from_numpy(self, x, device=None):
        return x
"""


def installed_part(kind, name, *types, replaces=(), hook=""):
    """Return the code of a plugin with one part."""
    types = tuple(f"boxlib.{each}" for each in types)
    code = PART.format(cls="Part", kind=kind, name=name, types=types, replaces=replaces)
    return f"import arrayferry as af\n{code}\n{hook}\ndef arrayferry_{kind.lower()}s():\n    return [Part()]\n"


@pytest.mark.parametrize(
    ("kinds", "what"),
    [
        ("Source Source", "name"), ("Source Backend", "name"), ("Backend Source", "name"),
        ("Source Source", "type"), ("Backend Source", "type"),
    ],
)  # fmt: skip
def test_of_two_installed_plugins_the_first_by_name_is_used(install, kinds, what):
    first, second = kinds.split()
    types = ("Box", "Cell") if what == "name" else ("Box", "Box")
    names = ("same", "same") if what == "name" else ("one", "two")
    registry, messages = install(
        zebra=installed_part(second, names[1], types[1]),
        apple=installed_part(first, names[0], types[0]),
    )
    (message,) = messages
    assert f"the {second.lower()} {names[1]!r} of the plugin 'zebra'" in message
    assert f"is taken by the {first.lower()} {names[0]!r} of the plugin 'apple'" in message
    kind = registry.kind(Box(1))
    used = kind.source if first == "Source" else kind.backend
    assert type(used).__module__ == "apple_plugin"
    (left_out,) = (part for part in registry.catalog.left_out if part.broken)
    assert left_out.name == names[1]


@pytest.mark.parametrize("names", [("apple", "zebra"), ("zebra", "apple")])
def test_a_backend_takes_types_over_from_sources(install, names):
    parts = installed_part("Backend", "one", "Box"), installed_part("Source", "two", "Box")
    registry, messages = install(**dict(zip(names, parts, strict=True)))
    assert registry.kind(Box(1)).backend.name == "one"
    assert len(messages) == (names[0] == "apple")  # the source came after it


def test_a_built_in_source_stays(install):
    registry, messages = install(
        aaa=installed_part("Source", "pandas", "Box"),
        bbb=installed_part("Source", "other").replace("()", "('pandas.Series',)", 1),
    )
    assert len(messages) == 2
    assert "the source 'pandas' of the plugin 'aaa'" in messages[0]
    assert (
        "is taken by the source 'pandas' of the plugin 'pandas' of the distribution" in messages[0]
    )
    assert "the array type pandas.Series is taken by the source 'pandas'" in messages[1]
    assert all(is_built_in(each) for each in registry.sources() if each.name == "pandas")


@pytest.mark.parametrize("names", [("apple", "zebra"), ("zebra", "apple")])
@pytest.mark.parametrize("kinds", ["Source Source", "Backend Backend", "Source Backend"])
def test_replacing_does_not_depend_on_the_order(install, names, kinds):
    old, new = kinds.split()
    replaced = installed_part(old, "old", "Box", "Cell")
    replacing = installed_part(new, "new", "Box", replaces=("old",))
    registry, messages = install(**dict(zip(names, (replaced, replacing), strict=True)))
    assert messages == []
    for value in (Box(1), Cell(1)):
        kind = registry.kind(value)
        assert type(kind.source or kind.backend).__module__ == f"{names[1]}_plugin"
    held = [*registry.sources(), *registry.backends().values()]
    assert "old" not in [part.name for part in held]
    if new == "Backend":
        assert registry.backend("old").name == "new"


# Order and options are pluggy's.

ORDERED = """
import arrayferry as af

class {name}(af.Converter):
    source, target, cost = "numpy", "torch", "copy"
    def convert(self, x, device=None, copy=None):
        return NotImplemented

@af.hookimpl({options})
def arrayferry_converters():
    return [{name}()]
"""


def made_converter(name):
    methods = {"convert": lambda self, x, device=None, copy=None: NotImplemented}
    return type(name, (af.Converter,), {"source": "numpy", "target": "torch", **methods})()


def ordered(name, options=""):
    return ORDERED.format(name=name, options=options)


def test_the_order_is_that_of_pluggy(install):
    """Built-in plugins come last, so that others come before them, and what is registered later comes first."""
    ranks = {"a": "trylast=True", "b": "", "c": "tryfirst=True", "d": "tryfirst=True", "e": ""}
    registry, messages = install(**{n: ordered(n.upper(), rank) for n, rank in ranks.items()})
    assert messages == []
    for name in ("F", "G", "H"):
        made = hooks(converters=[made_converter(name)])
        af.hookimpl(trylast=name == "H")(made.arrayferry_converters)
        registry.register(made, name)
    for _ in range(2):
        order = [type(each).__name__ for each in registry.catalog.converters]
        assert order[:6] == ["C", "D", "G", "F", "B", "E"]
        assert order[-2:] == ["A", "H"]
        assert all(is_built_in(each) for each in registry.catalog.converters[6:-2])
        assert len(order) > 10
        registry.refresh()


def test_the_first_of_equal_routes_is_that_of_tryfirst(install):
    from arrayferry._route.route import describe_route

    registry, _ = install(
        late=ordered("Late", "tryfirst=True").replace('"copy"', '"share"'),
        soon=ordered("Soon").replace('"copy"', '"share"'),
    )
    route = describe_route(
        registry.catalog, registry.backend("numpy"), registry.backend("torch"), None, "cpu"
    )
    assert type(route.steps[0].converter).__name__ == "Late"


@pytest.mark.parametrize("marks", [("", "tryfirst"), ("trylast", "")])
@pytest.mark.parametrize("kind", ["Source", "Backend"])
def test_a_name_belongs_to_the_plugin_that_is_tried_first(install, kind, marks):
    hooks = [f"@af.hookimpl({mark}=True)" if mark else "" for mark in marks]
    codes = [
        installed_part(kind, "same", cls, hook=hook)
        for cls, hook in zip(("One", "Two"), hooks, strict=True)
    ]
    registry, messages = install(a=codes[0], b=codes[1])
    parts = (*registry.sources(), *registry.backends().values())
    (part,) = (each for each in parts if each.name == "same")
    assert type(part).__module__ == "b_plugin"
    assert "of the plugin 'a'" in messages[-1]


# Trust.


def test_what_is_built_in(registry):
    arrays = *registry.backends().values(), *registry.sources()
    for part in (*arrays, *registry.catalog.converters, *registry.catalog.containers):
        outside = type(part).__module__.partition(".")[0] != "arrayferry_plugins"
        assert is_built_in(part) is not outside, part
        check_part(part)  # which only parts of other plugins are when they are loaded


def test_names_earn_no_trust(registry):
    from arrayferry_plugins.torch_ import TorchBackend

    names = {"name": "derived", "aliases": (), "namespace": "", "replaces": ()}
    derived = type("Derived", (TorchBackend,), {**names, "array_types": ("boxlib.Box",)})
    renamed = type(made_converter("Renamed"))
    renamed.__module__ = "arrayferry_plugins.renamed"
    trusted = next(iter(registry.catalog.converters))
    same = {"__eq__": lambda self, other: True, "__hash__": lambda self: hash(trusted)}
    for part in (derived(), renamed(), TorchBackend(), type("Equal", (renamed,), same)()):
        assert not is_built_in(part)
    registry.register(derived())
    assert not is_built_in(registry.backends()["derived"])


WRONG = """
import arrayferry as af
from arrayferry_plugins.torch_ import TorchBackend

class Wrong(af.Converter):
    source, target, cost = "numpy", "jax", "share"
    def convert(self, x, device=None, copy=None):
        return [1]

@af.hookimpl(tryfirst=True)
def arrayferry_converters():
    return [Wrong()]

Wrong.__module__ = "arrayferry_plugins.wrong"
"""


def test_a_stranger_under_our_name_is_checked(tmp_path, run_python):
    """A module of another distribution within our package, whose converter returns nonsense."""
    points = "[arrayferry]\nwrong = arrayferry_plugins.wrong\n"
    write_distribution(tmp_path, "wrong", WRONG, points=points)
    (tmp_path / "wrong_plugin.py").rename(tmp_path / "wrong.py")
    script = f"""
import sys, warnings
sys.path.insert(0, {str(tmp_path)!r})
import arrayferry_plugins
arrayferry_plugins.__path__.append({str(tmp_path)!r})
import numpy as np, arrayferry as af
from arrayferry._registry.discovery import is_built_in
part = af.registry.catalog.converters[0]
print(type(part).__name__, is_built_in(part))
with warnings.catch_warnings(record=True, action="always") as caught:
    print(af.convert([np.ones(2, np.float32)], "jax"))
print(caught[0].message)
"""
    lines = run_python(script).splitlines()
    assert lines[:2] == ["Wrong False", "[Array([1., 1.], dtype=float32)]"]
    assert "which is not an array of the target, so it is not used" in lines[2]


def test_trust_lasts_as_long_as_the_part(registry):
    """What was trusted before a refresh is trusted after it, and nothing is kept alive for that."""
    import gc
    import weakref

    old = weakref.ref(registry.backends()["numpy"])
    registry.refresh()
    gc.collect()
    assert old() is None
    assert is_built_in(registry.backends()["numpy"])


def test_finding_plugins_reads_few_metadata(monkeypatch):
    """Only a plugin that says that it is built in has its distribution read, and that once."""
    from importlib.metadata import Distribution

    read = []
    known = Distribution.metadata.fget
    monkeypatch.setattr(
        Distribution, "metadata", property(lambda self: read.append(self) or known(self))
    )
    assert af.Registry().backends()
    assert len(read) <= 1
