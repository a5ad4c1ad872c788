"""`arrayferry check-env`: an environment is tried in several libraries."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from arrayferry import BackendUnavailableError

from ._errors import WrongNameError
from ._reports import EnvProblem, EnvReport
from ._screen import Screen

__all__ = ["check", "show"]

SCHEMA = 1


def check(name: str) -> EnvReport:
    """Try an environment in several libraries.

    Args:
        name: "module:Class" or "file.py:Class".

    Raises:
        WrongNameError: there is no such environment, or its module cannot be imported.
    """
    try:
        from arrayferry_gym import functional
    except BackendUnavailableError as error:
        raise WrongNameError(str(error)) from None
    env = _named(name)
    try:
        problems = functional.check(env)
    except TypeError as error:
        raise WrongNameError(str(error)) from None
    told = [
        EnvProblem(each.method, each.place, each.what, each.remedy, list(each.libraries))
        for each in problems
    ]
    return EnvReport(SCHEMA, not told, name, told)


def _named(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise WrongNameError(
            f"{name!r:.80} does not name a class. Write module:Class, or file.py:Class"
        )
    try:
        module = _imported(module_name)
    except Exception as error:
        raise WrongNameError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    env = module
    for part in attribute.split("."):
        try:
            env = getattr(env, part)
        except AttributeError:
            raise WrongNameError(f"{module_name} has no {attribute}") from None
    return env


def _imported(name: str) -> Any:
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name).resolve()
    own_name = f"checked_env_{path.stem}"  # so that it takes no other module's place
    spec = importlib.util.spec_from_file_location(own_name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def show(report: EnvReport, screen: Screen) -> None:
    """Print a report for people."""
    count = len(report.problems)
    if report.ok:
        screen.say(f"{report.env}: nothing is wrong", style="green")
        return
    screen.say(f"{report.env}: {count} problem{'s' * (count > 1)}", style="bold red")
    for each in report.problems:
        screen.say()
        screen.say(f"{each.method}(), {each.place}", style="bold", indent=2)
        seen = f" (in {', '.join(each.libraries)})" if each.libraries else ""
        screen.say(f"{each.what}{seen}.", indent=4)
        if each.remedy:
            screen.say(each.remedy, indent=4)
