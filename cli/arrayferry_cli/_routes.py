"""`arrayferry routes`: how arrays travel between libraries."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from ._ask import ask
from ._errors import CommandError
from ._plugins import is_faulty, survey, try_libraries
from ._text import table, working

Words = dict[tuple[str, str], str]

WORDS = {"share": "shared", "copy": "copied", "transfer": "transferred", "compute": "computed"}
MEANINGS = {
    "share": "the same memory, nothing is copied",
    "copy": "the values are copied",
    "transfer": "the values are moved between the host and a device",
    "compute": "a lazy array is computed, or a file is read",
}


def find(source: str | None, target: str | None, timeout: float) -> dict[str, Any]:
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
    working("importing the libraries")
    found = survey(timeout, source=source, target=target)
    named, environment = found["named"], found["environment"]
    names = [library["name"] for library in named]
    others = [
        each
        for each in found["libraries"]
        if target is None and each["kind"] == "backend" and each["name"] not in names
    ]
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
    arguments = {"pairs": pairs, "every_device": target is not None}
    left_out = [(each["name"], each) for each in others if each["status"] != "usable"]
    left_out += [(f"the plugin {e['name']}", e) for e in found["plugins"] if is_faulty(e)]
    unusable = []
    for name, each in left_out:
        problem = f"{name} cannot be used: {each['problem']}"
        installed = each["status"] != "not installed"
        unusable.append({"name": each["name"], "installed": installed, "problem": problem})
    routes = ask("routes.routes", arguments, environment, timeout)
    return {"schema": 1, "routes": routes, "unusable": unusable}


def describe(report: dict[str, Any], source: str | None, target: str | None) -> list[str]:
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


def _in_a_word(route: dict[str, Any]) -> str:
    if not route["steps"]:
        return "itself"
    dearest = max((step["cost"] for step in route["steps"]), key=list(WORDS).index)
    if dearest == "transfer" and route["transfers"] == 1:
        return f"to {route['target_device'].replace('cpu', 'host')}"
    return WORDS[dearest]


def _in_steps(route: dict[str, Any]) -> list[str]:
    steps = route["steps"]
    lines = [_ends(route)]
    for number, step in enumerate(steps, 1):
        cost = step["cost"]
        lines.append(f"  {number}. {_ends(step)} {WORDS[cost]}: {MEANINGS[cost]}")
        lines.append(f"     {step['by']}")
    own = "has memory of its own" if route["copies"] else "shares its memory with the source"
    same = "The array itself is returned: there is nothing to do."
    return [*lines, f"  Without copy=, the result {own}." if steps else f"  {same}"]


def _ends(way: dict[str, Any]) -> str:
    return f"{way['source']} ({way['source_device']}) -> {way['target']} ({way['target_device']})"
