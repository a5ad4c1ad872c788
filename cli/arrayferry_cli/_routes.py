"""`arrayferry routes`: how arrays travel between libraries."""

from __future__ import annotations

from typing import Any

from ._ask import NoAnswerError, ask, in_parallel
from ._doctor import survey
from ._screen import Screen

__all__ = ["find", "show"]

SCHEMA = 1
WORDS = {"share": "shared", "copy": "copied", "transfer": "transferred", "compute": "computed"}
LETTERS = {
    "itself": "-",
    "shared": "S",
    "copied": "C",
    "to host": "H",
    "to cuda": "G",
    "transferred": "T",
    "computed": "X",
}
MEANINGS = {
    "share": "the same memory, nothing is copied",
    "copy": "the values are copied",
    "transfer": "the values are moved between the host and a device",
    "compute": "a lazy array is computed, or a file is read",
}


def find(source: str | None, target: str | None, timeout: float) -> dict[str, Any]:
    """Find routes.

    Returns:
        The report, as `--json` prints it. If there is an "error", "usage" tells whether a name is wrong.

    Raises:
        NoAnswerError: a library crashes or hangs in an unknown way.
    """
    try:
        return _find(source, target, timeout, {}, {})
    except NoAnswerError:  # one of them crashes or hangs
        found, environment = survey(timeout)
    names = [library["name"] for library in found["backends"] if library["installed"]]

    def attempt(name: str) -> str:
        try:
            list(ask("backend", timeout=timeout, environment=environment, name=name))
        except NoAnswerError as error:
            return f"{name} cannot be used: {error}"
        return ""

    failures = dict(zip(names, in_parallel(attempt, names), strict=True))
    loaded = environment["ARRAYFERRY_PLUGINS"].split(",") if environment else []
    failing = {name: why for name, why in failures.items() if why}
    report = _find(source, target, timeout, environment, failing)
    for plugin in found["plugins"]:
        if environment and plugin["status"] == "broken" and plugin["name"] not in loaded:
            why = f"the plugin {plugin['name']} is left out: {plugin['problem']}"
            known = {"name": plugin["name"], "installed": True, "problem": why}
            report.setdefault("unusable", []).append(known)
    return report


def _find(
    source: str | None,
    target: str | None,
    timeout: float,
    environment: dict[str, str],
    failures: dict[str, str],
) -> dict[str, Any]:
    routes, unusable = [], []
    asked = {"source": source, "target": target, "failures": failures}
    for answer in ask("routes", timeout=timeout, environment=environment, **asked):
        if "error" in answer:
            return answer
        if "route" in answer:
            routes.append(answer["route"])
        else:
            keys = {"name": "unusable", "installed": "installed", "problem": "problem"}
            unusable.append({key: answer[name] for key, name in keys.items()})
    return {"schema": SCHEMA, "routes": routes, "unusable": unusable}


def show(report: dict[str, Any], one: str | None, pair: bool, screen: Screen) -> None:
    """Print a report for people.

    Args:
        report: what `find` returned.
        one: the only library that was asked for, None if it was a pair or all.
        pair: whether it was a pair.
        screen: where to print it.
    """
    if pair:
        for number, route in enumerate(report["routes"]):
            if number:
                screen.say()
            _explain(route, screen)
        return
    words = {(r["source"], r["target"]): _in_words(r) for r in report["routes"]}
    if not words:
        screen.say("There is no other library that can be used here: see arrayferry doctor.")
    elif one is None:
        _show_all(words, list(dict.fromkeys(a for a, _ in words)), screen)
    else:
        _show_one(words, report["routes"][0]["source"], screen)
    absent = [each["name"] for each in report["unusable"] if not each["installed"]]
    others = [each["problem"] for each in report["unusable"] if each["installed"]]
    for text in ([f"not installed: {', '.join(absent)}"] if absent else []) + others:
        screen.say()
        screen.say(text, style="dim")


def _show_one(words: dict[tuple[str, str], str], me: str, screen: Screen) -> None:
    """Print the ways from one library, and those to it if there are any."""
    others = [target for _, target in words if target != me]
    both = any(target == me for _, target in words)
    header = ["", f"from {me}", *([f"to {me}"] if both else [])]
    rows = [[b, words[me, b], *([words[b, me]] if both else [])] for b in others]
    screen.table(header, rows, indent=0)


def _show_all(words: dict[tuple[str, str], str], names: list[str], screen: Screen) -> None:
    """Print a table of words, of letters if that is too wide, or a list if that is too wide too."""
    header = ["from \\ to", *names]
    rows = [[a, *(words[a, b] for b in names)] for a in names]
    if screen.fits(header, rows, 0):
        screen.table(header, rows, indent=0)
        return
    letters = [[row[0], *(LETTERS.get(word, word) for word in row[1:])] for row in rows]
    if screen.fits(header, letters, 0):
        screen.table(header, letters, indent=0)
        screen.say()
        used = {word for row in rows for word in row[1:]}
        screen.say(", ".join(f"{LETTERS[w]} {w}" for w in LETTERS if w in used))
        return
    for a in names:
        screen.say(f"from {a}", style="bold")
        groups: dict[str, list[str]] = {}
        for b in names:
            groups.setdefault(words[a, b], []).append(b)
        groups.pop("itself", None)
        for word, group in groups.items():
            screen.say(f"{word}: {', '.join(group)}", indent=2)


def _in_words(route: dict[str, Any]) -> str:
    if not route["steps"]:
        return "itself"
    costs = dict.fromkeys(step["cost"] for step in route["steps"])
    dearest = max(costs, key=list(WORDS).index)
    where = route["target_device"].partition(":")[0]
    if dearest == "transfer" and route["transfers"] == 1:
        return f"to {where}" if where != "cpu" else "to host"
    return WORDS[dearest]


def _explain(route: dict[str, Any], screen: Screen) -> None:
    source, target = (f"{route[key]} ({route[f'{key}_device']})" for key in ("source", "target"))
    screen.say(f"{source} -> {target}", style="bold")
    if not route["steps"]:
        screen.say("The array itself is returned: there is nothing to do.", indent=2)
        return
    for number, step in enumerate(route["steps"], 1):
        ends = " -> ".join(f"{step[key]} ({step[f'{key}_device']})" for key in ("source", "target"))
        screen.say(
            f"{number}. {ends} {WORDS[step['cost']]}: {MEANINGS[step['cost']]}", indent=2, hang=3
        )
        screen.say(_how(step), indent=5)
    own = "has memory of its own" if route["copies"] else "shares its memory with the source"
    screen.say(f"Without copy=, the result {own}.", indent=2)


def _how(step: dict[str, Any]) -> str:
    if step["via"] == "converter":
        plugin = step["plugin"]
        home = " ".join(filter(None, (plugin["distribution"], plugin["version"])))
        return f"by the converter {step['converter']} of {plugin['module']}" + (
            f" ({home})" if home else ""
        )
    words = {"dlpack": "by DLPack, with", "device": "within the library, by", "host": "by"}
    return f"{words[step['via']]} {' and '.join(f'{m}()' for m in step['methods'])}"
