"""`arrayferry check-env`: tries an environment in several libraries, or audits vector environments."""

from __future__ import annotations

import importlib.util
import operator
import os
import re
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from arrayferry.extending import describe_error

from ._ask import Announce, ask
from ._result import Arguments, Facts, Result, UsageError, working


def check_env(args: Arguments) -> Result:
    """Try an environment of your own in several libraries, or audit vector environments.

    The exit status is 1 if a problem was found.
    """
    if not args.vector and not args.env.partition(":")[2]:
        remedy = "Write module:Class or file.py:Class. With --vector, an id of Gymnasium is possible too."
        raise UsageError(f"{args.env!r:.80} does not name a class", remedy=remedy)
    working(f"trying {args.env}")
    num_steps = args.steps if args.vector else None
    findings = ask(try_env, args.timeout, None, name=args.env, folder=os.getcwd(), steps=num_steps)
    report = {"schema": 1, "ok": not findings["problems"], **findings}
    return report, _describe(report), 0 if report["ok"] else 1


def _describe(report: Facts) -> list[str]:
    count = len(report["problems"])
    summary = "no problem was found" if report["ok"] else f"{count} problem{'s' * (count > 1)}"
    details = f" ({report['made']})" if report["made"] else ""
    lines = [f"{report['env']}{details}: {summary}", *(f"Warning: {x}" for x in report["warnings"])]
    for problem in report["problems"]:
        place, _, problem_text = problem["text"].partition(": ")
        lines += ["", f"  {place}", f"    {problem_text.removesuffix(problem['remedy']).rstrip()}"]
        lines += [f"    {problem['remedy']}"] if problem["remedy"] else []
    return lines


def try_env(step: Announce, name: str, folder: str, steps: int | None) -> Facts:
    """Try an environment in several libraries, or audit vector environments.

    `ask` calls this function in a child process, since it runs the author's code.

    Args:
        step: a function that is called before each step, with its description.
        name: "module:Class" or "file.py:Class". For vector environments, an id of Gymnasium, or "module:function" with
            a function that makes vector environments.
        folder: the current folder of the command.
        steps: the number of steps of an audit of vector environments, or None to try an environment.

    Raises:
        UsageError: there is no such environment, or its module cannot be imported.
    """
    import gymnasium as gym

    step(f"trying {name}")
    os.chdir(folder)
    module_name, _, attribute_name = name.partition(":")
    maker: Any = partial(gym.make_vec, name, num_envs=3)
    if steps is None or attribute_name.replace(".", "").isidentifier():
        maker = _named(module_name, attribute_name)
    descriptions: list[str] = []

    def make_envs() -> Any:
        envs = maker()
        autoreset_mode = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
        class_name = type(getattr(envs, "unwrapped", envs)).__name__
        descriptions.append(
            f"{getattr(envs, 'num_envs', 1)} in {class_name}, {getattr(autoreset_mode, 'name', autoreset_mode)}"
        )
        return envs

    try:
        with warnings.catch_warnings(record=True, action="always") as caught:
            if steps is None:
                from arrayferry_envs import check_functional_env

                problems: list[Any] = check_functional_env(maker)
            else:
                from arrayferry_audit import check_vector_env

                problems = check_vector_env(make_envs if callable(maker) else maker, steps=steps)
    except (TypeError, gym.error.Error) as error:
        raise UsageError(
            f"the environment {name!r:.80} cannot be made: {describe_error(error)}"
        ) from error
    entries = [each._asdict() | {"place": each.place, "text": str(each)} for each in problems]
    messages = dict.fromkeys(re.sub(r"\x1b\[[0-9;]*m", "", str(each.message)) for each in caught)
    description = "".join(descriptions[:1])
    return {"env": name, "made": description, "problems": entries, "warnings": list(messages)}


def _named(module: str, attribute: str) -> Any:
    """Return an attribute of a module or of a file.

    Raises:
        UsageError: there is no such object, or its module cannot be imported.
    """
    try:
        namespace = _imported(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module} cannot be imported: {describe_error(error)}") from error
    try:
        return operator.attrgetter(attribute)(namespace)
    except AttributeError:
        raise UsageError(f"{module} has no {attribute}") from None


def _imported(name: str) -> Any:
    path = Path(name).resolve()
    # if `name` is the name of a module, `path.parent` is the current folder
    sys.path.insert(0, str(path.parent))
    if not name.endswith(".py"):
        return importlib.import_module(name)
    # without this prefix, the file could replace a module of the same name in `sys.modules`
    own_name = f"checked_env_{path.stem}"
    # the spec would be None only for a name that does not end with .py
    spec: Any = importlib.util.spec_from_file_location(own_name, path)
    module = sys.modules[own_name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
