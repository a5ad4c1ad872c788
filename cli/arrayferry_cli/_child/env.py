"""Tasks: try an environment in several libraries, and audit vector environments. Their author's code runs for this."""

from __future__ import annotations

import importlib
import importlib.util
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
from arrayferry_cli._errors import UsageError


def check(step: Callable[[str], None], name: str, folder: str) -> dict[str, Any]:
    """Return what `arrayferry check-env --json` prints.

    Args:
        step: called with what is done next.
        name: "module:Class" or "file.py:Class".
        folder: the current folder.

    Raises:
        UsageError: there is no such environment.
    """
    step(f"trying {name}")
    os.chdir(folder)
    env = _named(*name.split(":", 1))
    import arrayferry_envs

    return _report(name, lambda: arrayferry_envs.check(env))


def check_vector(step: Callable[[str], None], name: str, folder: str, steps: int) -> dict[str, Any]:
    """Return what `arrayferry check-env --vector --json` prints.

    Args:
        step: called with what is done next.
        name: "module:function", "file.py:function", or an id of Gymnasium.
        folder: the current folder.
        steps: the steps of each run.

    Raises:
        UsageError: there are no such environments.
    """
    step(f"trying {name}")
    os.chdir(folder)
    import gymnasium as gym

    from arrayferry_audit import check_vector_env

    module, _, attribute = name.partition(":")
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
    return report | {"made": next(iter(made), "")}


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _report(name: str, check: Callable[[], list[Any]]) -> dict[str, Any]:
    """Make a check, and return its report."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            problems = check()
    except (TypeError, BackendUnavailableError) as error:
        raise UsageError(str(error)) from error
    return {
        "schema": 1,
        "ok": not problems,
        "env": name,
        "problems": [each._asdict() | {"place": each.place} for each in problems],
        "warnings": list(dict.fromkeys(_COLOURS.sub("", str(each.message)) for each in caught)),
    }


def _named(module_name: str, attribute: str) -> Any:
    """Return the object of a name.

    Raises:
        UsageError: there is no such object, or its module cannot be imported.
    """
    try:
        env = _imported(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module_name} cannot be imported: {describe_error(error)}") from error
    for part in attribute.split("."):
        try:
            env = getattr(env, part)
        except AttributeError:
            raise UsageError(f"{module_name} has no {attribute}") from None
    return env


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
