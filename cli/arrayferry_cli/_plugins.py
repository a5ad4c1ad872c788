"""Finds out in child processes which plugins and libraries are installed, and which of them work."""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from typing import Any

from arrayferry import ArrayFerryError, Backend, Container, Converter, convert, extending, registry

from ._ask import Announce, ask
from ._result import CommandError, Facts, working

LOADING = "loading the plugin "
"""The start of the description of a step that loads a plugin. The name of the plugin follows."""
_homes = functools.cache(packages_distributions)


def survey(timeout: float, *names: str) -> Facts:
    """Find out which plugins and libraries are installed. Plugins are loaded, but no library is imported.

    If a plugin crashes or hangs, the other plugins are loaded again without it.

    Args:
        timeout: the maximum number of seconds to load plugins.
        names: the names of up to two libraries to look for: a source, and then a target.

    Returns:
        The result of `look`, with one more key, `chosen`: the names of the chosen plugins that neither crash nor hang.

    Raises:
        CommandError: no library has one of the names, or the plugins cannot be loaded together.
    """
    chosen, crashed = extending.chosen_plugins(), dict[str, Facts]()
    while True:
        all_names = [point.name for point in all_points()] if chosen is None else chosen
        usable = [name for name in all_names if name not in crashed]
        try:
            return {**ask(look, timeout, usable, crashed=crashed, names=names), "chosen": usable}
        except CommandError as error:
            culprit = next((x for x in usable if error.reason.startswith(f"{LOADING}{x} ")), None)
            if culprit is None:
                raise
            crashed[culprit] = {"status": "broken", "problem": error.reason, "remedy": error.remedy}


def try_libraries(libraries: list[Facts], facts: Facts, timeout: float) -> None:
    """Import each installed library in a child process, and update its entry with what was found.

    Args:
        libraries: the entries of the libraries to import.
        facts: the result of `survey` that contains these entries.
        timeout: the maximum number of seconds for each library.
    """
    working("importing the libraries")
    for library in (library for library in libraries if library["status"] != "not installed"):
        try:
            library.update(ask(try_library, timeout, facts["chosen"], name=library["name"]))
        except CommandError as error:
            library.update(status="not usable", problem=error.reason, remedy=error.remedy or None)


def require(parts: list[Facts]) -> None:
    """Check that the plugins or libraries with these entries can be used.

    Raises:
        CommandError: a plugin or library cannot be used.
    """
    for part in parts:
        if part["problem"]:
            raise CommandError(part["problem"], remedy=part["remedy"])


def all_points() -> list[EntryPoint]:
    """Return the entry points of all plugins that are installed."""
    points = set(entry_points(group=extending.ENTRY_POINT_GROUP))
    return sorted(points, key=lambda point: (point.name, point.value))


def distribution_of(package: str) -> str | None:
    """Return the name of a distribution that contains a package, or None if there is no such distribution.

    If several contain it, prefer a distribution with the name of the package.
    """
    top_package = package.partition(".")[0]
    dists = _homes().get(top_package, [])
    return top_package if top_package in dists else next(iter(dists), None)


def find_origin(name: str) -> extending.Origin:
    """Return the source or backend with this name or package. A name has priority over a package.

    Raises:
        UnknownBackendError: there is no library of that name.
    """
    sources, backends = registry.sources(), registry.backends()
    matches = [source for source in sources if source.name == name]
    matches += [source for source in sources if source.package == name and name not in backends]
    return matches[0] if matches else registry.backend(name)


# The functions below run in child processes. Of these, `look` imports no library.


def look(step: Announce, crashed: dict[str, Facts], names: list[str]) -> Facts:
    """Return entries for all plugins, all libraries and the libraries in `names`, and a list of other problems.

    Args:
        step: a function that is called before each step, with its description.
        crashed: for the name of each plugin that crashes or hangs, the values to add to its entry. Such plugins are not
            loaded.
        names: the names of up to two libraries to look for: a source, and then a target.

    Raises:
        UnknownBackendError: there is no library of that name.
    """
    plugins = [_load(step, point) | crashed.get(point.name, {}) for point in all_points()]
    step("loading all plugins together")
    with warnings.catch_warnings(record=True, action="always") as caught:
        origins: list[extending.Origin] = [*registry.backends().values(), *registry.sources()]
    messages = [*(str(warning.message) for warning in caught), *registry.catalog.unknown_ends]
    faults = [part.why for part in registry.catalog.left_out if part.broken]
    for plugin in (plugin for plugin in plugins if plugin["status"] == "loaded"):
        dist = plugin["distribution"]
        ending = f"the plugin {plugin['name']!r} of the distribution {dist}"
        for fault in faults:
            if re.split(r": | \(", fault)[0].endswith(ending):
                remedy = f"Rename its parts, or list the other plugin in its `replaces`, or uninstall {dist}."
                plugin.update(status="left out", problem=fault, remedy=remedy)
    for origin in origins:
        key = f"{_kind_of(origin)}s"
        if all(origin.name not in plugin[key] for plugin in plugins):
            state = {"module": None, "origin": "registered", "status": "loaded"}
            plugins.append(_row(EntryPoint(origin.name, "", "")) | state | {key: [origin.name]})
    step("looking for libraries")
    named = [find(name) for name, find in zip(names, (find_origin, registry.backend), strict=False)]
    return {
        "plugins": plugins,
        "libraries": [_describe(origin, plugins) for origin in origins],
        "named": [_describe(origin, plugins) for origin in named],
        "problems": [text for text in dict.fromkeys(messages) if text not in faults],
    }


def _load(step: Announce, point: EntryPoint) -> Facts:
    """Load a plugin if it is among the plugins that the user has chosen. Return its entry."""
    row = _row(point)
    if point.name in (extending.chosen_plugins() or ()):
        fix_remedy = f"Fix {point.module}, or update or uninstall {row['distribution'] or 'it'}."
        step(f"{LOADING}{point.name}", fix_remedy)
        try:
            parts = extending.load_parts(point)
            row.update({kind: [*map(_name, each)] for kind, each in parts.items()}, status="loaded")
        except ArrayFerryError as error:
            row.update(status="broken", problem=error.reason, remedy=error.remedy or fix_remedy)
    return row


def _row(point: EntryPoint) -> Facts:
    """Return the entry of a plugin before it is loaded."""
    dist, release = (point.dist.name, point.dist.version) if point.dist else (None, None)
    identity = {"name": point.name, "module": point.value, "distribution": dist, "version": release}
    state = {"origin": "entry point", "status": "not loaded", "problem": None, "remedy": None}
    return {**identity, **state, "backends": [], "converters": [], "containers": [], "sources": []}


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def _kind_of(origin: extending.Origin) -> str:
    return "backend" if isinstance(origin, Backend) else "source"


def _describe(origin: extending.Origin, plugins: list[Facts]) -> Facts:
    """Return the entry of a library before it is imported."""
    kind = _kind_of(origin)
    loaded_plugins = (plugin for plugin in plugins if plugin["status"] == "loaded")
    owner_names = (plugin["name"] for plugin in loaded_plugins if origin.name in plugin[f"{kind}s"])
    try:
        problem = None if origin.installed else origin.problem()
    except Exception:  # `try_library` reports this problem
        problem = None
    names = [origin.name, origin.package, *getattr(origin, "aliases", ())]
    distribution = distribution_of(origin.package)
    return {
        "name": origin.name,
        "names": [*names, getattr(origin, "namespace", "")],
        "kind": kind,
        "package": origin.package,
        "plugin": next(owner_names, None),
        "status": "not installed" if problem else "usable",
        "distribution": distribution,
        "version": distribution and version(distribution),
        "devices": [],
        "float64": None,
        "problem": problem and problem.reason,
        "remedy": problem and problem.remedy,
    }


def try_library(step: Announce, name: str) -> Facts:
    """Import a library, and return its version. For a backend, convert a few numbers, and return its devices too.

    `ask` calls this function in a child process.

    Args:
        step: a function that is called before each step, with its description and what to do if it fails.
        name: the name of the library.

    Raises:
        ArrayFerryError: the library cannot be used here, or the conversion changed the numbers.
    """
    origin = find_origin(name)
    top_package = origin.package.partition(".")[0]
    step(f"importing {origin.package}", f"Update or reinstall {top_package}.")
    problem = origin.problem()
    if problem is not None:
        raise problem
    version_text = getattr(importlib.import_module(top_package), "__version__", None)
    facts = {"version": " ".join(str(version_text).split())} if version_text else {}
    return facts | _try_backend(step, origin) if isinstance(origin, Backend) else facts


def _try_backend(step: Announce, backend: Backend) -> Facts:
    import numpy as np

    backend_class = type(backend)
    remedy = f"Change {backend_class.__qualname__} in {backend_class.__module__}, or report it to its authors."
    if extending.is_built_in(backend):
        remedy = "Check that the versions of the library and of NumPy are compatible."
    step("devices.names(), devices.default() or dtypes() of its plugin", remedy)
    devices = [str(device) for device in backend.devices.names()]
    default, dtypes = str(backend.devices.default()), backend.dtypes()
    tried_dtypes = ("float32", "int32", "bool", "float64")
    supported_dtypes = [name for name in tried_dtypes if dtypes is None or name in dtypes]
    if supported_dtypes and "numpy" in registry.backends():
        step("converting a few numbers", remedy)
        values = np.array([[1, 0, 1], [0, 1, 0]], supported_dtypes[0])
        try:
            returned = convert(convert(values, backend, copy=True), "numpy", sparse="dense")
        except ArrayFerryError as error:
            raise ArrayFerryError(error.reason, remedy=remedy) from error
        if returned.dtype != values.dtype or not np.array_equal(returned, values):
            sent, received = (f"{x.tolist()} and dtype {x.dtype}" for x in (values, returned))
            remedy = f"to_numpy(), from_numpy() or a converter is wrong. {remedy}"
            raise ArrayFerryError(
                f"an array of {sent} was converted and came back as {received}", remedy=remedy
            )
    return {"devices": devices, "default_device": default, "float64": "float64" in supported_dtypes}
