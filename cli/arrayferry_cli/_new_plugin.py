"""`arrayferry new-plugin`: the distribution of a plugin, to be completed."""

from __future__ import annotations

import keyword
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from string import Template

import arrayferry

from ._errors import NoAnswerError, RefusedError
from ._recovery import Question, attempt, survey
from ._screen import Screen

PREFIX = "arrayferry-"
OURS = ("arrayferry", "arrayferry_plugins", "arrayferry_gym", "arrayferry_cli")


@dataclass(frozen=True)
class Written:
    """A distribution that was written.

    Attributes:
        folder: its folder.
        files: its files, in that folder.
        backend: the name of its backend.
    """

    folder: str
    files: list[str]
    backend: str


def write(name: str, package: str | None, directory: Path, timeout: float) -> Written:
    """Write a distribution.

    Args:
        name: the name of the backend, or of the distribution.
        package: the module of the library; None if it has the name of the backend.
        directory: the folder in which the folder of the distribution is made.
        timeout: seconds that loading the plugins that are installed may take.

    Raises:
        RefusedError: a name is wrong or taken, or there is something in that place. Nothing was written.
        NoAnswerError: the plugins that are installed cannot be loaded. Nothing was written.
    """
    backend = _checked_name(name)
    package = package or backend
    _checked_package(package, backend)
    _check_free(backend, package, timeout)
    distribution = PREFIX + backend.replace("_", "-")
    folder = directory / distribution
    texts = _texts(backend, package, distribution)
    _write(directory, folder, texts)
    return Written(str(folder), list(texts), backend)


def _write(directory: Path, folder: Path, texts: dict[str, str]) -> None:
    """Write all files, or none."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise RefusedError(f"{directory} is not a folder, and cannot be made one.") from None
    try:
        folder.mkdir()
    except FileExistsError:
        raise RefusedError(
            f"{folder} exists already. Nothing was written: pass another --directory, or remove it."
        ) from None
    except OSError as error:
        raise RefusedError(f"{folder} cannot be made: {error.strerror}.") from None
    try:
        (folder / "tests").mkdir()
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RefusedError(
            f"{folder} cannot be written: {error.strerror}. Nothing was written."
        ) from None


def _checked_name(name: str) -> str:
    """Return the name of the backend."""
    short = name.lower().removeprefix(PREFIX).removeprefix(PREFIX.replace("-", "_"))
    if not re.fullmatch(r"[a-z]([a-z0-9._-]*[a-z0-9])?", short, re.ASCII):
        raise RefusedError(
            f"{name!r} is not the name of a distribution. Use letters, digits, and - between them, and begin with a "
            "letter, such as mylib or arrayferry-mylib."
        )
    backend = re.sub(r"[-_.]+", "_", short)
    if f"arrayferry_{backend}" in OURS:
        raise RefusedError(
            f"{name!r} would make a module arrayferry_{backend}, which is a part of arrayferry. Use another name."
        )
    if keyword.iskeyword(backend) or keyword.issoftkeyword(backend):
        raise RefusedError(f"{name!r} is a keyword of Python. Use another name.")
    return backend


def _checked_package(package: str, backend: str) -> None:
    parts = package.split(".")
    wrong = [part for part in parts if not part.isidentifier() or keyword.iskeyword(part)]
    if wrong:
        why = (
            "is a keyword of Python"
            if keyword.iskeyword(wrong[0])
            else "is not the name of a module"
        )
        raise RefusedError(
            f"{wrong[0]!r} {why}, so {package!r} cannot be imported. Pass the name to import, such as mylib "
            "or mylib.numpy."
        )
    if parts[0] in OURS:
        raise RefusedError(
            f"{package!r} is a part of arrayferry. Pass the module of an array library."
        )
    if parts[0] == f"arrayferry_{backend}":
        raise RefusedError(
            f"{package!r} would be the module of the plugin itself. Pass the module of the array library."
        )


def _check_free(backend: str, package: str, timeout: float) -> None:
    question = Question("names", {"name": backend, "package": package})
    answers = attempt(question, timeout)
    if answers.failure is not None:  # a plugin that is installed crashes or hangs
        answers = attempt(replace(question, environment=survey(timeout).environment), timeout)
    if answers.failure is not None:
        raise NoAnswerError(f"Looking for plugins with that name failed: {answers.failure}")
    for conflict in answers.messages:
        raise RefusedError(
            f"{backend!r} cannot be used: {conflict.error}. Use another name, or that plugin."
        )


def _texts(backend: str, package: str, distribution: str) -> dict[str, str]:
    """Return the files of the distribution, by their paths in its folder."""
    module = distribution.replace("-", "_")
    top = package.partition(".")[0]
    known = next(iter(packages_distributions().get(top, ())), None)
    requirement = known or top.replace("_", "-")
    dependency = f'    "{requirement}",\n'
    if top in sys.stdlib_module_names:
        dependency = ""
    elif known is None:
        dependency = f'    # "{requirement}",  # remove the first # if this is its name on PyPI\n'
    values = {
        "name": backend,
        "package": package,
        "distribution": distribution,
        "module": module,
        "class_name": "".join(part.capitalize() for part in backend.split("_")) + "Backend",
        "version": ".".join(arrayferry.__version__.split(".")[:2]),
        "requirement": requirement,
        "dependencies": dependency,
    }
    paths = {
        "pyproject.toml.txt": "pyproject.toml",
        "README.md.txt": "README.md",
        "plugin.py.txt": f"{module}.py",
        "test_plugin.py.txt": f"tests/test_{backend}.py",
    }
    template = files("arrayferry_cli") / "template"
    return {
        path: Template((template / name).read_text(encoding="utf-8")).substitute(values)
        for name, path in paths.items()
    }


def show(written: Written, screen: Screen) -> None:
    """Print what was written, and what to do next."""
    screen.say(f"{written.folder} was written:")
    for path in written.files:
        screen.say(path, indent=2)
    module, tests = written.files[2:]
    backend, folder = written.backend, shlex.quote(written.folder)
    screen.say("Next:")
    screen.say(f"write to_numpy() and from_numpy() in {folder}/{module}", indent=2)
    screen.say(f"write make() in {folder}/{tests}", indent=2)
    screen.say(f"pip install -e {shlex.quote(written.folder + '[test]')}", indent=2)
    screen.say(f"arrayferry check {backend}", indent=2)
    screen.say(f"pytest {folder}", indent=2)
