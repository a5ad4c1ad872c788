"""`arrayferry routes`: how arrays travel between libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._ask import ask
from ._recovery import Question, attempt, crashing_libraries, survey
from ._reports import RouteReport, RoutesReport, RouteStep, Unanswerable, Unusable
from ._screen import Screen

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


def find(source: str | None, target: str | None, timeout: float) -> RoutesReport | Unanswerable:
    """Find routes. Libraries and plugins that crash or hang are left out.

    Raises:
        NoAnswerError: a library crashes or hangs in an unknown way.
    """
    named = {"source": source, "target": target}
    whole = attempt(Question("routes", {**named, "failures": {}}), timeout)
    if whole.failure is None:
        return _report(whole.messages)
    surveyed = survey(timeout)
    failures = {
        name: f"{name} cannot be used: {why}"
        for name, why in crashing_libraries(surveyed, timeout).items()
    }
    messages = ask(
        "routes", timeout=timeout, environment=surveyed.environment, failures=failures, **named
    )
    report = _report(messages)
    if isinstance(report, RoutesReport) and surveyed.environment:
        loaded = surveyed.environment["ARRAYFERRY_PLUGINS"].split(",")
        report.unusable += [
            Unusable(plugin.name, True, f"the plugin {plugin.name} is left out: {plugin.problem}")
            for plugin in surveyed.survey.plugins
            if plugin.status == "broken" and plugin.name not in loaded
        ]
    return report


def _report(messages: Iterable[Any]) -> RoutesReport | Unanswerable:
    report = RoutesReport(SCHEMA, [], [])
    for message in messages:
        if isinstance(message, Unanswerable):
            return message
        if isinstance(message, RouteReport):
            report.routes.append(message)
        else:
            report.unusable.append(message)
    return report


def show(report: RoutesReport, one: str | None, pair: bool, screen: Screen) -> None:
    """Print a report for people.

    Args:
        report: what `find` returned.
        one: the only library that was asked for, None if it was a pair or all.
        pair: whether it was a pair.
        screen: where to print it.
    """
    if pair:
        for number, route in enumerate(report.routes):
            if number:
                screen.say()
            _explain(route, screen)
        return
    words = {(route.source, route.target): _in_words(route) for route in report.routes}
    if not words:
        screen.say("There is no other library that can be used here: see arrayferry doctor.")
    elif one is None:
        _show_all(words, list(dict.fromkeys(a for a, _ in words)), screen)
    else:
        _show_one(words, report.routes[0].source, screen)
    absent = [each.name for each in report.unusable if not each.installed]
    others = [each.problem for each in report.unusable if each.installed]
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


def _in_words(route: RouteReport) -> str:
    if not route.steps:
        return "itself"
    dearest = max((step.cost for step in route.steps), key=list(WORDS).index)
    where = route.target_device.partition(":")[0]
    if dearest == "transfer" and route.transfers == 1:
        return f"to {where}" if where != "cpu" else "to host"
    return WORDS[dearest]


def _explain(route: RouteReport, screen: Screen) -> None:
    screen.say(_ends(route), style="bold")
    if not route.steps:
        screen.say("The array itself is returned: there is nothing to do.", indent=2)
        return
    for number, step in enumerate(route.steps, 1):
        screen.say(
            f"{number}. {_ends(step)} {WORDS[step.cost]}: {MEANINGS[step.cost]}", indent=2, hang=3
        )
        screen.say(_how(step), indent=5)
    own = "has memory of its own" if route.copies else "shares its memory with the source"
    screen.say(f"Without copy=, the result {own}.", indent=2)


def _ends(way: RouteReport | RouteStep) -> str:
    return f"{way.source} ({way.source_device}) -> {way.target} ({way.target_device})"


def _how(step: RouteStep) -> str:
    if step.plugin is not None:
        home = " ".join(filter(None, (step.plugin.distribution, step.plugin.version)))
        by = f"by the converter {step.converter} of {step.plugin.module}"
        return f"{by} ({home})" if home else by
    words = {"dlpack": "by DLPack, with", "device": "within the library, by", "host": "by"}
    return f"{words[step.via]} {' and '.join(f'{m}()' for m in step.methods)}"
