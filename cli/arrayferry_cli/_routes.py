"""`arrayferry routes`: shows by which steps arrays are converted between libraries."""

from __future__ import annotations

import shutil
import sys
from copy import copy
from typing import Any

from arrayferry import Backend, Route
from arrayferry.extending import Origin, Step, device_kind, route_between

from ._ask import Announce, ask
from ._plugins import all_points, find_origin, require, survey, try_libraries
from ._result import Arguments, Facts, Result, table

COSTS = {
    "share": ("shared", "the same memory, nothing is copied"),
    "copy": ("copied", "the values are copied"),
    "transfer": ("transferred", "the values are moved between the host and a device"),
    "compute": ("computed", "a lazy array is computed, or a file is read"),
}
"""The words for each cost of a step, from low to high: a participle for tables, and an explanation."""


def routes(args: Arguments) -> Result:
    """Show how arrays are converted between libraries.

    Without a name, the command shows all routes. With one name, it shows the routes from and to that library. With two
    names, it shows each step from the first library to the second.
    """
    wanted_names = [name for name in (args.source, args.target) if name is not None]
    facts = survey(args.timeout, *wanted_names)
    named, is_two = facts["named"], len(wanted_names) == 2
    names = [library["name"] for library in named]
    backends = [library for library in facts["libraries"] if library["kind"] == "backend"]
    others = [] if is_two else [library for library in backends if library["name"] not in names]
    try_libraries([*named, *others], facts, args.timeout)
    require(named)
    usable_others = [library for library in others if not library["problem"]]
    pairs = [(a, b) for a in named[:1] or usable_others for b in named[1:] or usable_others]
    if len(named) == 1 and named[0]["kind"] == "backend":
        pairs += [(b, a) for a, b in pairs]
    report = {
        "schema": 1,
        "routes": ask(find_routes, args.timeout, facts["chosen"], pairs=pairs, every_device=is_two),
        "unusable": [_unusable(x) for x in (*others, *facts["plugins"]) if x["problem"]],
    }
    return report, _describe(report, names), 0


def _unusable(part: Facts) -> Facts:
    """Return the entry of a library or a plugin that cannot be used."""
    title = part["name"] if "kind" in part else f"the plugin {part['name']}"
    problem = f"{title} cannot be used: {part['problem']}"
    is_installed = part["status"] != "not installed"
    return {"name": part["name"], "installed": is_installed, "problem": problem}


def find_routes(step: Announce, pairs: list[list[Facts]], every_device: bool) -> list[Facts]:
    """Return the routes of pairs of libraries. `ask` calls this function in a child process.

    No library is imported, since `try_libraries` has found the devices of the libraries before.

    Args:
        step: a function that is called before each step, with its description.
        pairs: the source and the target of each route.
        every_device: whether to return routes for each kind of device, and not only for the default devices.
    """
    step("looking for routes")
    reports: dict[Any, Facts] = {}
    for source, target in pairs:
        a, b = _origin(source), _origin(target)
        assert isinstance(b, Backend)
        source_devices, target_devices = source["devices"] or ["cpu"], target["devices"]
        for device_a in _one_of_each_kind(source_devices) if every_device else source_devices[:1]:
            for device_b in (None, *(_one_of_each_kind(target_devices) if every_device else ())):
                route = route_between(a, b, source_device=device_a, device=device_b)
                reports.setdefault((a, b, route.source, route.target), _report(route))
    return list(reports.values())


def _origin(library: Facts) -> Origin:
    """Return a library, with the devices that were found in the child process that imported it."""
    origin, device_names = find_origin(library["name"]), tuple(library["devices"])
    default_device = library.get("default_device")
    origin.devices = copy(origin.devices)
    vars(origin.devices).update(names=lambda: device_names, default=lambda: default_device)
    return origin


def _one_of_each_kind(devices: list[str]) -> list[str]:
    return list({device_kind(device): device for device in reversed(devices)}.values())[::-1]


def _report(route: Route) -> Facts:
    counts = {"copies": route.copies, "transfers": route.transfers, "computes": route.computes}
    steps = [{**_places(x), "cost": x.cost, "via": x.via, "by": _by(x)} for x in route.steps]
    return {**_places(route), **counts, "steps": steps, "text": str(route)}


def _places(way: Route | Step) -> Facts:
    source = {"source": way.source.backend, "source_device": device_kind(way.source.device)}
    target = {"target": way.target.backend, "target_device": device_kind(way.target.device)}
    return source | target


def _by(step: Step) -> str:
    """Return words for the converter, or the methods of plugins, that perform a step."""
    if step.converter is not None:
        cls = type(step.converter)
        return f"by the converter {cls.__qualname__} of {_module(cls.__module__)}"
    a, b = (type(find_origin(place.backend)).__qualname__ for place in (step.source, step.target))
    if step.via == "dlpack":
        return f"by DLPack, with {a}.dlpack.export() and {b}.dlpack.load()"
    if step.via == "device":
        return f"within the library, by {a}.devices.move()"
    return f"by {b}.from_numpy()" if step.source.backend == "numpy" else f"by {a}.to_numpy()"


def _module(name: str) -> str:
    """Return a text with the module and the distribution of the plugin that has the module `name`, or else `name`."""
    for point in all_points():
        # if the module of an entry point is a package, `name` may be a module in it
        if f"{name}.".startswith(f"{point.module}.") and point.dist:
            return f"{point.module} ({point.dist.name} {point.dist.version})"
    return name


def _describe(report: Facts, names: list[str]) -> list[str]:
    """Return a report as lines of text. `names` are the libraries that the user named."""
    if len(names) == 2:
        return [line for route in report["routes"] for line in ("", *_in_steps(route))][1:]
    words = {(route["source"], route["target"]): _in_a_word(route) for route in report["routes"]}
    if all(a == b for a, b in words):
        lines = ["No other library can be used here. arrayferry doctor shows the reasons."]
    elif names:
        name, other_names = names[0], [target for _, target in words if target != names[0]]
        rows = [["", f"from {name}", f"to {name}"]]
        rows += [[other, words[name, other], words.get((other, name), "")] for other in other_names]
        lines = table(rows if (other_names[0], name) in words else [row[:2] for row in rows])
    else:
        all_names = dict.fromkeys(source for source, _ in words)
        rows = [[a, *(words[a, b] for b in all_names)] for a in all_names]
        lines = table([["from \\ to", *all_names], *rows])
        if sys.stdout.isatty() and len(max(lines, key=len)) > shutil.get_terminal_size().columns:
            lines = [line for name in all_names for line in _in_list(words, name)]
    absent_names = [library["name"] for library in report["unusable"] if not library["installed"]]
    notes = [f"not installed: {', '.join(absent_names)}"] if absent_names else []
    notes += [entry["problem"] for entry in report["unusable"] if entry["installed"]]
    return [*lines, *(f"\n{note}" for note in notes)]


def _in_list(words: dict[tuple[str, str], str], me: str) -> list[str]:
    """Return the routes from one library as lines, for a terminal that is too narrow for the table."""
    by_word: dict[str, list[str]] = {}
    for (source, target), word in words.items():
        if source == me != target:
            by_word.setdefault(word, []).append(target)
    return [f"from {me}", *(f"  {word}: {', '.join(names)}" for word, names in by_word.items())]


def _in_a_word(route: Facts) -> str:
    if not route["steps"]:
        return "itself"
    dearest_cost = max((step["cost"] for step in route["steps"]), key=list(COSTS).index)
    if dearest_cost == "transfer" and route["transfers"] == 1:
        return f"to {route['target_device'].replace('cpu', 'host')}"
    return COSTS[dearest_cost][0]


def _in_steps(route: Facts) -> list[str]:
    lines = [_ends(route)]
    for number, step in enumerate(route["steps"], 1):
        lines.append(f"  {number}. {_ends(step)} {': '.join(COSTS[step['cost']])}")
        lines.append(f"     {step['by']}")
    memory = "has memory of its own" if route["copies"] else "shares its memory with the source"
    note = "The array itself is returned: there is nothing to do."
    return [*lines, f"  Without copy=, the result {memory}." if route["steps"] else f"  {note}"]


def _ends(way: Facts) -> str:
    return f"{way['source']} ({way['source_device']}) -> {way['target']} ({way['target_device']})"
