"""`arrayferry check-env`: an environment is tried in several libraries, or vector environments are audited."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from arrayferry import BackendUnavailableError
from arrayferry.adapting import describe_error

from ._ask import Announce, ask
from ._errors import UsageError
from ._text import working


def check(name: str, timeout: float, steps: int | None = None) -> Any:
    """Try an environment in several libraries, or audit vector environments.

    Args:
        name: "module:Class" or "file.py:Class". For vector environments, an id of Gymnasium, or a function that makes them.
        timeout: seconds that it may take.
        steps: the steps of an audit of vector environments, None to try an environment.

    Returns:
        What `--json` prints.

    Raises:
        CommandError: there is no such environment, its module cannot be imported, or its code crashes, hangs or ends
            the process.
    """
    if steps is None and not name.partition(":")[2]:
        raise UsageError(
            f"{name!r:.80} does not name a class. Write module:Class, or file.py:Class; an id of Gymnasium with --vector"
        )
    try:
        folder = os.getcwd()
    except OSError as error:  # it was removed
        raise UsageError(f"there is no current folder ({error.strerror})") from error
    working(f"trying {name}")
    return ask(try_env, {"name": name, "folder": folder, "steps": steps}, timeout)


def describe(report: dict[str, Any]) -> list[str]:
    """Return a report as lines of text."""
    count = len(report["problems"])
    found = "no problem was found" if report["ok"] else f"{count} problem{'s' * (count > 1)}"
    made = f" ({report['made']})" if report.get("made") else ""
    lines = [f"{report['env']}{made}: {found}"]
    lines += [f"Warning: {text}" for text in report["warnings"]]
    for each in report["problems"]:
        method = f"{each['method']}(), " if "method" in each else ""
        seen = f" (in {', '.join(each['libraries'])})" if each.get("libraries") else ""
        seen += f" ({each['times']} times)" if each.get("times", 1) > 1 else ""
        lines += ["", f"  {method}{each['place']}", f"    {each['what']}{seen}."]
        lines += [f"    {each['remedy']}"] if each["remedy"] else []
    return lines


def try_env(step: Announce, name: str, folder: str, steps: int | None) -> dict[str, Any]:
    """Do what `check` does. Its author's code runs for this, so `ask` calls it.

    Args:
        step: called with what is done next.
        name: as for `check`.
        folder: the current folder.
        steps: as for `check`.

    Raises:
        UsageError: there is no such environment.
    """
    step(f"trying {name}")
    os.chdir(folder)
    module, _, attribute = name.partition(":")
    if steps is not None:
        return _audit(name, module, attribute, steps)
    env = _named(module, attribute)
    import arrayferry_envs

    return _report(name, lambda: arrayferry_envs.check(env))


def _audit(name: str, module: str, attribute: str, steps: int) -> dict[str, Any]:
    import gymnasium as gym

    from arrayferry_audit import check_vector_env

    make: Any = partial(gym.make_vec, name, num_envs=3)
    if attribute.replace(".", "").isidentifier():
        make = _named(module, attribute)
    made: list[str] = []

    def kept() -> Any:
        envs = make()
        mode = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
        of = type(getattr(envs, "unwrapped", envs)).__name__
        made.append(f"{getattr(envs, 'num_envs', 1)} in {of}, {getattr(mode, 'name', mode)}")
        return envs

    try:
        given = kept if callable(make) else make
        report = _report(name, lambda: check_vector_env(given, steps=steps))
    except gym.error.Error as error:
        raise UsageError(f"{name!r:.80} cannot be made: {describe_error(error)}") from error
    return {**report, "made": "".join(made[:1])}


def _report(name: str, check: Callable[[], list[Any]]) -> dict[str, Any]:
    """Make a check, and return its report."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            problems = check()
    except (TypeError, BackendUnavailableError) as error:
        raise UsageError(str(error)) from error
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", str(each.message)) for each in caught]
    return {
        "schema": 1,
        "ok": not problems,
        "env": name,
        "problems": [each._asdict() | {"place": each.place} for each in problems],
        "warnings": list(dict.fromkeys(texts)),
    }


def _named(module_name: str, attribute: str) -> Any:
    """Return the object of a name.

    Raises:
        UsageError: there is no such object, or its module cannot be imported.
    """
    try:
        found = _imported(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module_name} cannot be imported: {describe_error(error)}") from error
    try:
        return operator.attrgetter(attribute)(found)
    except AttributeError:
        raise UsageError(f"{module_name} has no {attribute}") from None


def _imported(name: str) -> Any:
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name).resolve()
    own_name = f"checked_env_{path.stem}"  # so that it does not replace another module
    spec = importlib.util.spec_from_file_location(own_name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
