"""Questions to libraries and plugins that may crash or hang, and which of them do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from ._ask import ask, in_parallel
from ._child.survey import describe_point, how_to_fix
from ._errors import NoAnswerError
from ._reports import Survey


@dataclass(frozen=True)
class Question:
    """A task of `_child`, its arguments, and the environment variables of its process."""

    task: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answers:
    """The messages of a task.

    Attributes:
        messages: those that came.
        failure: why no more came, None if these are all.
    """

    messages: list[Any]
    failure: str | None


def attempt(
    question: Question, timeout: float, receive: Callable[[Any], None] = lambda message: None
) -> Answers:
    """Ask a question. If the process crashes, hangs or fails, the answers say so.

    Args:
        question: the question.
        timeout: seconds to wait for each message.
        receive: called with each message as it comes.
    """
    messages = []
    try:
        for message in ask(
            question.task,
            timeout=timeout,
            environment=question.environment,
            **question.arguments,
        ):
            messages.append(message)
            receive(message)
    except NoAnswerError as error:
        return Answers(messages, str(error))
    return Answers(messages, None)


def ask_each(questions: Iterable[Question], timeout: float) -> list[Answers]:
    """Ask several questions at the same time."""
    return list(in_parallel(lambda question: attempt(question, timeout), questions))


@dataclass(frozen=True)
class Surveyed:
    """Which plugins there are.

    Attributes:
        survey: the plugins, with those that crash or hang.
        environment: the variables that leave these out, {} if there are none.
    """

    survey: Survey
    environment: dict[str, str] = field(default_factory=dict)


def survey(timeout: float) -> Surveyed:
    """Find out which plugins there are. If one of them crashes or hangs, each is loaded on its own.

    Raises:
        NoAnswerError: the plugins cannot be loaded, even without those that crash or hang.
    """
    whole = attempt(Question("survey"), timeout)
    if whole.failure is None:
        return Surveyed(whole.messages[0])
    points = sorted(set(entry_points(group="arrayferry")), key=lambda point: point.name)
    chosen = os.environ.get("ARRAYFERRY_PLUGINS")
    allowed = None if chosen is None else chosen.replace(" ", "").split(",")
    names = list(dict.fromkeys(p.name for p in points if allowed is None or p.name in allowed))
    each = ask_each([_only([name]) for name in names], timeout)
    failures = {
        name: answers.failure
        for name, answers in zip(names, each, strict=True)
        if answers.failure is not None
    }
    good = _only([name for name in names if name not in failures])
    (overview,) = ask("survey", timeout=timeout, environment=good.environment, **good.arguments)
    plugins = [plugin for plugin in overview.plugins if plugin.name not in failures]
    for point in points:
        if point.name in failures:
            plugin = describe_point(point)
            plugin.status = "broken"
            plugin.problem = f"loading it failed: {failures[point.name]}"
            plugin.remedy = how_to_fix(plugin)
            plugins.append(plugin)
    overview.plugins = sorted(plugins, key=lambda plugin: plugin.name)
    return Surveyed(overview, good.environment)


def _only(names: list[str]) -> Question:
    """Return the question about some plugins, with no others loaded."""
    return Question("survey", {"names": names}, {"ARRAYFERRY_PLUGINS": ",".join(names)})


def crashing_libraries(surveyed: Surveyed, timeout: float) -> dict[str, str]:
    """Import each library on its own, and return the failures of those that crash or hang, by name."""
    names = [backend.name for backend in surveyed.survey.backends if backend.installed]
    questions = [Question("backend", {"name": name}, surveyed.environment) for name in names]
    answers = ask_each(questions, timeout)
    return {
        name: answer.failure
        for name, answer in zip(names, answers, strict=True)
        if answer.failure is not None
    }
