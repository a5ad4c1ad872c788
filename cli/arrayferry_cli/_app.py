"""The commands, their arguments and their exit statuses: 0 for success, 1 for a problem, 2 for wrong usage."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import arrayferry

from . import _check, _check_env, _doctor, _new_plugin, _routes
from ._errors import CommandError

Given = argparse.Namespace
Result = tuple[list[str] | dict[str, Any], int]
"""Lines of text or what is printed as JSON, and the exit status."""


def run(arguments: Sequence[str] | None) -> int:
    """Run a command, and return its exit status."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):  # not one that a test or a notebook put there
            stream.reconfigure(errors="backslashreplace")
    try:
        given = _parser().parse_args(arguments)
        result, status = given.run(given)
        lines = result if isinstance(result, list) else [json.dumps(result, indent=2)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except CommandError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader of the output has ended
        return 1
    except OSError as error:  # no space is left
        print(f"Error: the output or a temporary file cannot be written: {error}", file=sys.stderr)
        return 1
    except SystemExit as end:  # of --help, of --version, and of wrong usage
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return 130
    return int(status)


def doctor(given: Given) -> Result:
    """Show what is installed here, and what is broken.

    Each library is imported in a process of its own. The exit status is 1 if something is broken. A library that is
    not installed is not broken.
    """
    report = _doctor.examine(given.timeout)
    return report if given.json else _doctor.describe(report), 0 if report["ok"] else 1


def routes(given: Given) -> Result:
    """Show how arrays travel between libraries.

    Without a name, it shows all routes; with one, those from and to that library; with two, each step from one to the other.
    """
    report = _routes.find(given.source, given.target, given.timeout)
    return report if given.json else _routes.describe(report, given.source, given.target), 0


def check(given: Given) -> Result:
    """Run the contract kit on an installed plugin.

    It runs pytest, and passes on its output and its exit status.
    """
    report, status = _check.check(given.package, given.timeout, to_stderr=given.json)
    return report if given.json else _check.describe(report), status


def check_env(given: Given) -> Result:
    """Try an environment of your own in several libraries, or audit vector environments.

    The exit status is 1 if something is wrong.
    """
    report = _check_env.check(given.env, given.timeout, given.steps if given.vector else None)
    return report if given.json else _check_env.describe(report), 0 if report["ok"] else 1


def new_plugin(given: Given) -> Result:
    """Write a new plugin, to be completed.

    Where it is not complete, its tests fail and say what is missing. No file is overwritten.
    """
    return _new_plugin.write(given.name, given.package, given.directory, given.timeout), 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="arrayferry",
        description="See how arrays are converted between libraries here, and write and check plugins.",
        allow_abbrev=False,
    )
    text = f"arrayferry {arrayferry.__version__}"
    parser.add_argument("-V", "--version", action="version", version=text, help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(run: Callable[[Given], Result], timeout: int, limited: str) -> argparse.ArgumentParser:
        name, text = run.__name__.replace("_", "-"), run.__doc__ or ""
        line = text.partition("\n")[0]
        command = commands.add_parser(name, help=line, description=text, allow_abbrev=False)
        command.set_defaults(run=run, timeout=timeout)
        limit = f"how long {limited} may take, {timeout} by default"
        command.add_argument("--timeout", type=_seconds, metavar="SECONDS", help=limit)
        if run is not new_plugin:
            command.add_argument("--json", action="store_true", help="print JSON")
        return command

    add(doctor, 60, "the import of a library")
    command = add(routes, 60, "the import of a library")
    command.add_argument("source", nargs="?", metavar="SOURCE", help="the name of a library")
    command.add_argument("target", nargs="?", metavar="TARGET", help="the name of another one")
    command = add(check, 600, "the tests of a backend")
    names = "the name of a backend, a plugin, a distribution or a module"
    command.add_argument("package", metavar="PACKAGE", help=names)
    command = add(check_env, 600, "all of it")
    names = "a FunctionalEnv, or FILE.py:CLASS; with --vector, an id of Gymnasium, or a function that makes vector environments"
    command.add_argument("env", metavar="MODULE:CLASS", help=names)
    command.add_argument("--vector", action="store_true", help="audit vector environments of any kind")  # fmt: skip
    steps = "how many steps a run of --vector has, 300 by default"
    command.add_argument("--steps", type=_count, default=300, metavar="STEPS", help=steps)
    command = add(new_plugin, 60, "loading the plugins")
    command.add_argument("name", metavar="NAME", help="what users call the library, such as mylib")
    module = "the module of the library, NAME by default"
    command.add_argument("--package", metavar="LIB", help=module)
    place = "where the folder of the plugin is made"
    command.add_argument("--directory", type=Path, default=Path(), metavar="DIR", help=place)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 86_400:
        raise argparse.ArgumentTypeError("it must be between 0.1 and 86400")
    return number
