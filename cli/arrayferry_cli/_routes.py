"""`arrayferry routes`: how arrays travel between libraries."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from arrayferry import Backend, Route, registry
from arrayferry.inspection import Origin, Step, device_kind, route_between

from ._ask import Announce, ask
from ._errors import CommandError
from ._plugins import Facts, all_points, describe_plugin, is_faulty, survey, try_libraries
from ._text import table

Words = dict[tuple[str, str], str]

WORDS = {"share": "shared", "copy": "copied", "transfer": "transferred", "compute": "computed"}
MEANINGS = {
    "share": "the same memory, nothing is copied",
    "copy": "the values are copied",
    "transfer": "the values are moved between the host and a device",
    "compute": "a lazy array is computed, or a file is read",
}


def find(source: str | None, target: str | None, timeout: float) -> Facts:
    """Find routes: between all libraries, from and to one, or from one to another.

    Args:
        source: the name of a library, or None.
        target: the name of a library, or None.
        timeout: seconds that each library may take.

    Returns:
        What `--json` prints.

    Raises:
        CommandError: a library of that name is not known, or cannot be used here.
    """
    found = survey(timeout, source, target)
    named, names = found["named"], [library["name"] for library in found["named"]]
    backends = [each for each in found["libraries"] if each["kind"] == "backend"]
    others = [each for each in backends if target is None and each["name"] not in names]
    try_libraries([*named, *others], found, timeout)
    for library in named:
        if library["status"] != "usable":
            raise CommandError(library["problem"], library["remedy"] or "")
    usable = [each for each in others if each["status"] == "usable"]
    if source is None:
        pairs = [(a, b) for a in usable for b in usable]
    elif target is None:
        pairs = [(named[0], each) for each in usable]
        pairs += [(each, named[0]) for each in usable if named[0]["kind"] == "backend"]
    else:
        pairs = [tuple(named)]
    left_out = [(each["name"], each) for each in others if each["status"] != "usable"]
    left_out += [(f"the plugin {e['name']}", e) for e in found["plugins"] if is_faulty(e)]
    unusable = []
    for name, each in left_out:
        problem = f"{name} cannot be used: {each['problem']}"
        installed = each["status"] != "not installed"
        unusable.append({"name": each["name"], "installed": installed, "problem": problem})
    arguments = {"pairs": pairs, "every_device": target is not None}
    routes = ask(find_routes, arguments, timeout, found["environment"])
    return {"schema": 1, "routes": routes, "unusable": unusable}


def find_routes(
    step: Announce, pairs: list[tuple[Facts, Facts]], every_device: bool
) -> list[Facts]:
    """Return the routes from a library to another. No library is imported: `ask` calls this when all have been tried.

    Args:
        step: called with what is done next.
        pairs: two libraries each.
        every_device: whether there is a route for each kind of device, and not only for the default ones.
    """
    step("looking for routes")
    routes: dict[Any, Facts] = {}
    for source, target in pairs:
        a, b = _origin(source), _origin(target)
        assert isinstance(b, Backend)
        heres, theres = source["devices"] or ["cpu"], target["devices"]
        for here in _one_of_each_kind(heres) if every_device else heres[:1]:
            for there in (None, *(_one_of_each_kind(theres) if every_device else ())):
                route = route_between(a, b, source_device=here, device=there)
                routes.setdefault((a, b, route.source, route.target), _describe_route(route, a))
    return list(routes.values())


def _origin(library: Facts) -> Origin:
    """Return a library, with the devices that it had in the process that imported it."""
    if library["kind"] == "source":
        return next(each for each in registry.sources() if each.name == library["name"])
    backend, devices = registry.backend(library["name"]), tuple(library["devices"])
    default = library["default_device"]
    vars(backend).update(devices=lambda: devices, default_device=lambda: default)
    return backend


def _one_of_each_kind(devices: list[str]) -> list[str]:
    return list({device_kind(name): name for name in reversed(devices)}.values())[::-1]


def _describe_route(route: Route, source: Origin) -> Facts:
    steps = []
    for step in route.steps:
        way = {"cost": step.cost, "via": step.via, "by": _by(step, source)}
        steps.append({**_places(step), **way})
    counts = {"copies": route.copies, "transfers": route.transfers, "computes": route.computes}
    return {**_places(route), **counts, "steps": steps, "text": str(route)}


def _places(way: Route | Step) -> dict[str, str]:
    source = {"source": way.source.backend, "source_device": device_kind(way.source.device)}
    target = {"target": way.target.backend, "target_device": device_kind(way.target.device)}
    return source | target


def _by(step: Step, origin: Origin) -> str:
    """Say what does a step: a converter, or methods of plugins."""
    if step.converter is not None:
        kind = type(step.converter)
        return f"by the converter {kind.__qualname__} of {_module(kind.__module__)}"
    ends = [step.source.backend, step.target.backend]
    origins = [origin if name == origin.name else registry.backend(name) for name in ends]
    a, b = (type(each).__qualname__ for each in origins)
    if step.via == "dlpack":
        return f"by DLPack, with {a}.to_dlpack() and {b}.from_dlpack()"
    if step.via == "device":
        return f"within the library, by {a}.to_device()"
    return f"by {b}.from_numpy()" if ends[0] == "numpy" else f"by {a}.to_numpy()"


def _module(name: str) -> str:
    """Return the module of the plugin that a converter is from, and its distribution."""
    for plugin in map(describe_plugin, all_points()):
        if f"{name}.".startswith(f"{plugin['module']}."):  # it may be a package
            return f"{plugin['module']} ({plugin['distribution']} {plugin['version']})"
    return name


def describe(report: Facts, source: str | None, target: str | None) -> list[str]:
    """Return a report as lines of text.

    Args:
        report: what `find` returned for these arguments.
        source: the name of a library, or None.
        target: the name of a library, or None.
    """
    routes = report["routes"]
    if target is not None:
        return [line for route in routes for line in ("", *_in_steps(route))][1:]
    words = {(route["source"], route["target"]): _in_a_word(route) for route in routes}
    if all(a == b for a, b in words):
        lines = ["There is no other library that can be used here: see arrayferry doctor."]
    elif source is None:
        lines = _all(words)
    else:
        lines = _one(words, routes[0]["source"])
    absent = [each["name"] for each in report["unusable"] if not each["installed"]]
    lines += ["", f"not installed: {', '.join(absent)}"] if absent else []
    for each in report["unusable"]:
        lines += ["", each["problem"]] if each["installed"] else []
    return lines


def _one(words: Words, me: str) -> list[str]:
    """Return the ways from one library, and those to it if there are any."""
    others = [target for _, target in words if target != me]
    columns = [["", *others], [f"from {me}", *(words[me, each] for each in others)]]
    if (others[0], me) in words:
        columns.append([f"to {me}", *(words[each, me] for each in others)])
    return table(list(zip(*columns, strict=True)))


def _all(words: Words) -> list[str]:
    """Return a table, or a list if the terminal is too narrow for that."""
    names = list(dict.fromkeys(source for source, _ in words))
    rows = [[a, *(words[a, b] for b in names)] for a in names]
    lines = table([["from \\ to", *names], *rows])
    if not sys.stdout.isatty() or max(map(len, lines)) <= shutil.get_terminal_size().columns:
        return lines
    lines = []
    for a in names:
        lines.append(f"from {a}")
        for word in dict.fromkeys(words[a, b] for b in names if b != a):
            lines.append(f"  {word}: {', '.join(b for b in names if words[a, b] == word)}")
    return lines


def _in_a_word(route: Facts) -> str:
    if not route["steps"]:
        return "itself"
    dearest = max((step["cost"] for step in route["steps"]), key=list(WORDS).index)
    if dearest == "transfer" and route["transfers"] == 1:
        return f"to {route['target_device'].replace('cpu', 'host')}"
    return WORDS[dearest]


def _in_steps(route: Facts) -> list[str]:
    steps = route["steps"]
    lines = [_ends(route)]
    for number, step in enumerate(steps, 1):
        cost = step["cost"]
        lines.append(f"  {number}. {_ends(step)} {WORDS[cost]}: {MEANINGS[cost]}")
        lines.append(f"     {step['by']}")
    own = "has memory of its own" if route["copies"] else "shares its memory with the source"
    same = "The array itself is returned: there is nothing to do."
    return [*lines, f"  Without copy=, the result {own}." if steps else f"  {same}"]


def _ends(way: Facts) -> str:
    return f"{way['source']} ({way['source_device']}) -> {way['target']} ({way['target_device']})"
