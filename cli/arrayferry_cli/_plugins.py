"""Which plugins and libraries there are, and whether they can be used: each is tried in a process of its own."""

from __future__ import annotations

import importlib
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from arrayferry import ArrayFerryError, Backend, Container, Converter, inspection, registry

from ._ask import Announce, ask
from ._errors import CommandError
from ._text import working

Facts = dict[str, Any]
"""What is known of a plugin or a library, as `arrayferry doctor --json` prints it, or of all."""


def survey(timeout: float, source: str | None = None, target: str | None = None) -> Facts:
    """Find out which plugins and libraries there are. No library is imported.

    First, the plugins of each distribution are loaded alone. Then all that did not crash or hang are loaded together.

    Args:
        timeout: seconds that loading plugins may take.
        source: the name of a library to look for, from which arrays are read.
        target: the name of another one.

    Returns:
        What `find_libraries` found, with the `environment` that leaves out plugins that crash or hang.

    Raises:
        CommandError: no library has such a name, or the plugins cannot be loaded together.
    """
    chosen, plugins, failed = _chosen_points(), [], set()
    for home in dict.fromkeys(map(_home, chosen)):
        try:
            plugins += ask(load, {"home": home}, timeout)
        except CommandError as error:
            points = [point for point in chosen if _home(point) == home]
            plugins += [describe_plugin(point, "broken", error.reason) for point in points]
            failed |= {point.name for point in points}
    names = inspection.chosen_plugins() or [point.name for point in chosen]
    environment = {"ARRAYFERRY_PLUGINS": ",".join(name for name in names if name not in failed)}
    loaded = [plugin for plugin in plugins if plugin["status"] == "loaded"]
    given = {"plugins": loaded, "source": source, "target": target}
    found = ask(find_libraries, given, timeout, environment)
    found["plugins"] += [plugin for plugin in plugins if plugin["status"] != "loaded"]
    found["plugins"] += [describe_plugin(point) for point in all_points() if point not in chosen]
    found["plugins"].sort(key=lambda plugin: plugin["name"])
    return {**found, "environment": environment}


def try_libraries(libraries: list[Facts], found: Facts, timeout: float) -> None:
    """Import each installed library, and add to its entry what is then known.

    Args:
        libraries: those to try.
        found: the survey that they are from.
        timeout: seconds that each library may take.
    """
    working("importing the libraries")
    tried: dict[Any, Facts] = {}  # several sources may share one package
    for library in libraries:
        key = library["kind"], library["name" if library["kind"] == "backend" else "package"]
        if library["status"] != "not installed" and key not in tried:
            try:
                given = {"kind": key[0], "name": key[1]}
                tried[key] = ask(try_library, given, timeout, found["environment"])
            except CommandError as error:
                problem = {"problem": error.reason, "remedy": error.remedy or None}
                tried[key] = {"status": "not usable", **problem}
        library.update(tried.get(key, {}))


def is_faulty(plugin: Facts) -> bool:
    """Return whether a plugin cannot be used."""
    return plugin["status"] in ("broken", "left out")


def all_points() -> list[EntryPoint]:
    """Return the entry points of all plugins that are installed."""
    return sorted(set(entry_points(group=inspection.ENTRY_POINT_GROUP)), key=lambda each: each.name)


def _chosen_points() -> list[EntryPoint]:
    """Return the entry points that the environment variable does not leave out."""
    names = inspection.chosen_plugins()
    return [point for point in all_points() if names is None or point.name in names]


def describe_plugin(
    point: EntryPoint, status: str = "not loaded", problem: str | None = None, remedy: str = ""
) -> Facts:
    """Return what is known of a plugin, without its parts."""
    home, version = _home(point), None if point.dist is None else point.dist.version
    fix = f"Fix {point.module}, or update or uninstall {home or 'it'}." if problem else None
    known = {"name": point.name, "module": point.value, "distribution": home, "version": version}
    state = {"origin": "entry point", "status": status, "problem": problem, "remedy": remedy or fix}
    return {**known, **state, "backends": [], "converters": [], "containers": [], "sources": []}


def _home(point: EntryPoint) -> str | None:
    """Return the name of the distribution of a plugin."""
    return None if point.dist is None else point.dist.name


# Functions for `ask`. The first two import no library.


def load(step: Announce, home: str | None) -> list[Facts]:
    """Load the plugins of one distribution, and return what they bring or what is wrong with them."""
    plugins = []
    for point in _chosen_points():
        if _home(point) == home:
            step(f"loading the plugin {point.name}")
            try:
                parts = inspection.load_parts(point)
            except ArrayFerryError as error:
                plugins.append(describe_plugin(point, "broken", error.reason, error.remedy))
            else:
                names = {kind: [*map(_name, found)] for kind, found in parts.items()}
                plugins.append({**describe_plugin(point, "loaded"), **names})
    return plugins


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def find_libraries(
    step: Announce, plugins: list[Facts], source: str | None, target: str | None
) -> Facts:
    """Return all plugins, all libraries, the `named` ones, and the warnings that belong to no plugin.

    Args:
        step: called with what is done next.
        plugins: those that can be loaded.
        source: the name of a library to look for, from which arrays are read.
        target: the name of another one.

    Raises:
        UnknownBackendError: there is no library of that name.
    """
    step("loading all plugins together")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        origins: list[inspection.Origin] = [*registry.backends().values(), *registry.sources()]
        for text in registry.catalog.unknown_ends:
            registry.warn(text)
    faults = {part.why: part.plugin for part in registry.catalog.left_out if part.broken}
    for plugin in plugins:
        home = plugin["distribution"]
        for why, name in faults.items():
            own = any(f"distribution {home}{end}" in why for end in (":", " ("))
            if name == plugin["name"] and own:
                remedy = f"Give it other names, or list the other one in its `replaces`, or uninstall {home}."
                plugin.update(status="left out", problem=why, remedy=remedy)
    for origin in origins:
        kinds = f"{origin.role.lower()}s"
        if all(origin.name not in plugin[kinds] for plugin in plugins):
            known = describe_plugin(EntryPoint(origin.name, "", ""), "loaded")
            known |= {"module": None, "origin": "registered", kinds: [origin.name]}
            plugins.append(known)
    named = []
    for wanted, find in ((source, _find_source), (target, registry.backend)):
        if wanted is not None:
            step(f"looking for {wanted}")
            named.append(find(wanted))
    texts = dict.fromkeys(str(each.message) for each in caught)
    return {
        "plugins": plugins,
        "libraries": [_describe_library(origin, plugins) for origin in origins],
        "named": [_describe_library(origin, plugins) for origin in named],
        "problems": [text for text in texts if text not in faults],
    }


def _find_source(name: str) -> inspection.Origin:
    """Return the library that arrays are read from, by its name or its package."""
    sources, backends = registry.sources(), registry.backends()
    found = [each for each in sources if each.name == name]
    found += [each for each in sources if each.package == name and name not in backends]
    return found[0] if found else registry.backend(name)


def _describe_library(origin: inspection.Origin, plugins: list[Facts]) -> Facts:
    """Return what is known of a library before it is imported."""
    kind = origin.role.lower()
    loaded = [plugin for plugin in plugins if plugin["status"] == "loaded"]
    owners = [plugin["name"] for plugin in loaded if origin.name in plugin[f"{kind}s"]]
    try:
        problem = None if origin.installed else origin.problem()
    except Exception:  # it is reported when the library is tried
        problem = None
    names = [origin.name, origin.package, *getattr(origin, "aliases", ())]
    return {
        "name": origin.name,
        "names": [*names, getattr(origin, "namespace", "")],
        "kind": kind,
        "package": origin.package,
        "plugin": next(iter(owners), None),
        "status": "not installed" if problem else "usable",
        "distribution": None,
        "version": None,
        "devices": [],
        "float64": None,
        "problem": problem and problem.reason,
        "remedy": problem and problem.remedy,
    }


def try_library(step: Announce, kind: str, name: str) -> Facts:
    """Import a library, and return its version and its devices.

    Args:
        step: called with what is done next, and what to do if that fails.
        kind: "backend" or "source".
        name: the name of the backend, or the package of the sources.

    Raises:
        ArrayFerryError: the library cannot be used here, or a few numbers came back as something else.
    """
    facts: Facts = {}
    sources = [source for source in registry.sources() if source.package == name]
    for origin in sources if kind == "source" else [registry.backend(name)]:
        top = origin.package.partition(".")[0]
        step(f"importing {origin.package}", f"Update or reinstall {top}.")
        problem = origin.problem()
        if problem is not None:
            raise problem
        version = getattr(importlib.import_module(top), "__version__", None)
        facts["version"] = " ".join(str(version).split()) if version else None
        if isinstance(origin, Backend):
            facts |= _try_backend(step, origin)
    return facts


def _try_backend(step: Announce, backend: Backend) -> Facts:
    """Ask the plugin of a library, and convert a few numbers in both directions.

    Raises:
        ArrayFerryError: the numbers came back as something else.
    """
    import numpy as np

    kind = type(backend)
    change = f"Change {kind.__qualname__} in {kind.__module__}, or report it to its authors."

    def call(method: str, *arguments: Any) -> Any:
        step(f"{method}() of its plugin", change)
        return getattr(backend, method)(*arguments)

    devices = [str(device) for device in call("devices")]
    default, dtypes = str(call("default_device")), call("dtypes")
    names = ("float32", "int32", "bool", "float64")
    known = [name for name in names if dtypes is None or name in dtypes]
    facts = {"devices": devices, "default_device": default, "float64": "float64" in known}
    if known in ([], ["float64"]):
        return facts
    if inspection.is_built_in(backend):
        change = "Are the versions of the library and of NumPy made for each other?"
    values = np.array([[1, 0, 1], [0, 1, 0]], known[0])
    array = call("from_numpy", values.copy())
    if not registry.kind(array).is_array_of(backend):
        text = f"returned {inspection.describe_value(array)}, which is none of its array_types"
        text += f", {backend.array_types}, so its arrays are not recognised"
        raise ArrayFerryError(f"from_numpy() of its plugin {text}", remedy=change)
    returned = call("to_numpy", array)
    if not isinstance(returned, np.ndarray):
        text = f"returned {inspection.describe_value(returned)}, not a numpy.ndarray"
        raise ArrayFerryError(f"to_numpy() of its plugin {text}", remedy=change)
    if returned.dtype != values.dtype or not np.array_equal(returned, values):
        sent, came = (f"{x.tolist()} and dtype {x.dtype}" for x in (values, returned))
        change = f"to_numpy() or from_numpy() is wrong. {change}"
        raise ArrayFerryError(f"an array of {sent} came back as {came}", remedy=change)
    return facts
