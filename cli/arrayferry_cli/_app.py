"""The commands, their arguments and their exit statuses: 0 for success, 1 for a problem, 2 for wrong usage."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import arrayferry

from ._check import check
from ._check_env import check_env
from ._doctor import doctor
from ._envs import envs
from ._new_plugin import new_plugin
from ._result import Arguments, CommandError, Result
from ._routes import routes

ENDING = ("SIGHUP", "SIGINT", "SIGTERM")
"""The signals that end the command. Windows has no SIGHUP."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command `arrayferry`, and exit.

    Args:
        arguments: the words after `arrayferry`. None uses `sys.argv`.

    Raises:
        SystemExit: always, with the exit status.
    """
    if arguments is None:  # a signal must raise SystemExit, so that `ask` ends its child process
        for number in signal.Signals:
            if number.name in ENDING and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: sys.exit(128 + number))
    for stream_name in ("stdout", "stderr"):
        # a stream is None if its file descriptor was closed at the start
        stream = getattr(sys, stream_name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):  # pytest and notebooks use other classes
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, stream_name, stream)
    parser = _parser()
    try:
        args = parser.parse_args(arguments)
        report, lines, status = args.run(args)
        lines = [json.dumps(report, indent=2)] if args.json else lines
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
    except CommandError as error:
        parser.exit(error.status, f"Error: {error}\n")
    except OSError as error:
        # replace stdout: at exit, Python would write the rest of the output to it, and fail again
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        message = f"Error: there is no current folder, or the output or a temporary file cannot be written: {error}\n"
        # print nothing for a broken pipe, which means that the reader of the output has exited
        parser.exit(1, "" if isinstance(error, BrokenPipeError) else message)
    parser.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="arrayferry",
        description="See how arrays are converted between libraries here, and write and check plugins.",
        allow_abbrev=False,
    )
    text = f"arrayferry {arrayferry.__version__}"
    parser.add_argument("-V", "--version", action="version", version=text, help="print the version")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add_command(
        run: Callable[[Arguments], Result], timeout: int, limited: str
    ) -> Callable[..., object]:
        """Add a command, whose help is the docstring of `run`. Return the function that adds its arguments."""
        name, text = run.__name__.replace("_", "-"), run.__doc__ or ""
        summary = text.partition("\n")[0]
        subparser = subparsers.add_parser(name, help=summary, description=text, allow_abbrev=False)
        subparser.set_defaults(run=run, timeout=timeout, json=False)
        limit_help = f"how long {limited} may take, {timeout} by default"
        subparser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help=limit_help)
        if run is not new_plugin:
            subparser.add_argument("--json", action="store_true", help="print JSON")
        return subparser.add_argument

    add_command(doctor, 60, "the import of a library")
    argument = add_command(routes, 60, "the import of a library")
    argument("source", nargs="?", metavar="SOURCE", help="the name of a library")
    argument("target", nargs="?", metavar="TARGET", help="the name of another library")
    argument = add_command(check, 600, "the tests of a backend")
    name_help = "the name of a backend, a plugin, a distribution or a module"
    argument("package", metavar="PACKAGE", help=f"{name_help}; or a suite")
    argument = add_command(check_env, 600, "the whole check")
    name_help = "a FunctionalEnv, or FILE.py:CLASS; with --vector, an id of Gymnasium, or a function that makes vector environments"
    argument("env", metavar="MODULE:CLASS", help=name_help)
    argument("--vector", action="store_true", help="audit vector environments of any kind")
    steps = "how many steps a run of --vector has, 300 by default"
    argument("--steps", type=_count, default=300, help=steps)
    argument = add_command(envs, 60, "the import of a suite")
    argument("suite", nargs="?", metavar="SUITE", help="the name of a suite, to list its ids")
    argument = add_command(new_plugin, 60, "loading the plugins")
    argument("name", metavar="NAME", help="what users call the library or the suite, such as mylib")
    argument("--package", metavar="LIB", help="the module of the library, NAME by default")
    argument("--suite", action="store_true", help="write a suite of environments")
    folder_help = "where the folder of the plugin is made"
    argument("--directory", type=Path, default=Path(), metavar="DIR", help=folder_help)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("it must be a whole number of 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("it must be between 0.1 and 86400 seconds")
    return seconds
