"""The commands, their arguments and their exit statuses: 0 for success, 1 for a problem, 2 for wrong usage.

Each command imports what it needs, so that completion is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

import arrayferry

from . import _complete
from ._errors import NoAnswerError, RefusedError, WrongNameError
from ._reports import CheckReport, DoctorReport, EnvReport, Unanswerable
from ._screen import OutputError, Screen, writing

Result = TypeVar("Result")
Judged = TypeVar("Judged", DoctorReport, CheckReport, EnvReport)

app = typer.Typer(
    name="arrayferry",
    help="See how arrays are converted between libraries here, and write and check plugins.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _seconds(what: str) -> typer.models.OptionInfo:
    """Declare the option --timeout."""
    option: typer.models.OptionInfo = typer.Option(
        min=0.1, max=86_400, metavar="SECONDS", help=f"How long {what} may take."
    )
    return option


Timeout = Annotated[float, _seconds("the import of a library")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"arrayferry {arrayferry.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(json: Json = False, timeout: Timeout = 60) -> None:
    """Show what is installed here, and what is broken.

    Each library is imported in a process of its own. The exit status is 1 if something is broken. A library that is not installed is not broken.
    """
    from . import _doctor

    screen = Screen()
    with screen.working("") as tell:
        report = _attempt(screen, lambda: _doctor.examine(timeout, tell))
    _show(screen, report, json, _doctor.show)


@app.command()
def routes(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="The name of a library.", autocompletion=_complete.sources
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="The name of another one.", autocompletion=_complete.targets
        ),
    ] = None,
    json: Json = False,
    timeout: Timeout = 60,
) -> None:
    """Show how arrays travel between libraries.

    Without a name between all, with one from and to it, with two step by step.
    """
    from . import _routes

    screen = Screen()
    with screen.working("importing the libraries"):
        report = _attempt(screen, lambda: _routes.find(source, target, timeout))
    if isinstance(report, Unanswerable):
        _fail(screen, report.error, 2 if report.usage else 1)
    if json:
        screen.data(report)
    else:
        _routes.show(report, source, target is not None, screen)


@app.command()
def check(
    package: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE",
            help="The name of a backend, a plugin, a distribution or a module.",
            autocompletion=_complete.plugins,
        ),
    ],
    json: Json = False,
    timeout: Annotated[float, _seconds("one test")] = 120,
) -> None:
    """Run the contract kit on an installed plugin.

    The exit status is 1 if a test fails.
    """
    from . import _check

    screen = Screen()
    with screen.working("") as tell:
        report = _attempt(screen, lambda: _check.check(package, timeout, tell))
    _show(screen, report, json, _check.show)


@app.command()
def check_env(
    env: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A FunctionalEnv, or FILE.py:CLASS.")
    ],
    json: Json = False,
    timeout: Annotated[float, _seconds("all of it")] = 600,
) -> None:
    """Try an environment of your own in several libraries.

    The exit status is 1 if something is wrong.
    """
    from . import _check_env

    screen = Screen()
    with screen.working(f"trying {env}"):
        report = _attempt(screen, lambda: _check_env.check(env, timeout), advice="")
    _show(screen, report, json, _check_env.show)


@app.command()
def new_plugin(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the library for users, such as mylib."),
    ],
    package: Annotated[
        str | None,
        typer.Option(metavar="LIB", help="The module of the library, NAME by default."),
    ] = None,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the folder of the plugin is made.")
    ] = Path(),
    timeout: Annotated[float, _seconds("loading the plugins")] = 60,
) -> None:
    """Write a new plugin, to be completed.

    Where it is not complete, its tests fail and say what is missing. No file is overwritten.
    """
    from . import _new_plugin

    screen = Screen()
    with screen.working("looking for plugins"):
        written = _attempt(screen, lambda: _new_plugin.write(name, package, directory, timeout))
    _new_plugin.show(written, screen)


_DOCTOR = " Run arrayferry doctor to see which library or plugin it is."


def _attempt(screen: Screen, work: Callable[[], Result], advice: str = _DOCTOR) -> Result:
    try:
        return work()
    except (WrongNameError, RefusedError) as error:
        _fail(screen, str(error), 2)
    except NoAnswerError as error:
        _fail(screen, f"{error}.{advice}", 1)


def _show(
    screen: Screen, report: Judged, json: bool, show: Callable[[Judged, Screen], None]
) -> None:
    """Print a report, and end with the status that it gives."""
    if json:
        screen.data(report)
    else:
        show(report, screen)
    raise typer.Exit(0 if report.ok else 1)


def _fail(screen: Screen, text: str, status: int) -> NoReturn:
    screen.fail(text)
    raise typer.Exit(status)


def run(arguments: Sequence[str] | None) -> int:
    """Run a command, and return its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        return _run(arguments)
    except OutputError as error:
        print(f"Error: the output cannot be written: {error}.", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    status = 0
    try:
        app(args=None if arguments is None else list(arguments), prog_name="arrayferry")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    with writing():
        sys.stdout.flush()
    return status
