"""`arrayferry new-plugin`: the distribution of a plugin, to be completed."""

from __future__ import annotations

import keyword
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent

import arrayferry

from ._errors import RefusedError
from ._recovery import Question, attempt
from ._reports import Conflict, Outline
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
        package: the module of its library.
        missing: what could not be found out about the library, None if all methods are filled in.
        guessed: what the types of its arrays may be, if no array was seen.
    """

    folder: str
    files: list[str]
    backend: str
    package: str
    missing: str | None
    guessed: list[str]


def write(name: str, package: str | None, directory: Path, timeout: float) -> Written:
    """Write a distribution.

    Args:
        name: the name of the backend, or of the distribution.
        package: the module of the library; None if it has the name of the backend.
        directory: the folder in which the folder of the distribution is made.
        timeout: seconds that importing the library may take.

    Raises:
        RefusedError: a name is wrong or taken, or there is something in that place. Nothing was written.
    """
    backend = _checked_name(name)
    package = package or backend
    _checked_package(package, backend)
    outline = _look(backend, package, timeout)
    distribution = PREFIX + backend.replace("_", "-")
    folder = directory / distribution
    texts = _texts(backend, package, distribution, outline)
    _write(directory, folder, texts)
    guessed = [] if outline.make else outline.classes
    return Written(str(folder), list(texts), backend, package, outline.missing, guessed)


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


def _look(backend: str, package: str, timeout: float) -> Outline:
    """Return what is known of the library."""
    question = Question("outline", {"name": backend, "package": package})
    answers = attempt(question, timeout)
    outline = Outline()
    for message in answers.messages:
        if isinstance(message, Conflict):
            raise RefusedError(
                f"{backend!r} cannot be used: {message.reason}. Use another name, or that plugin."
            )
        outline = message
    if answers.failure is not None:
        outline.missing = f"importing {package} failed: {answers.failure}"
    return outline


def _texts(backend: str, package: str, distribution: str, outline: Outline) -> dict[str, str]:
    module = distribution.replace("-", "_")
    class_name = "".join(part.capitalize() for part in backend.split("_")) + "Backend"
    values = {
        "name": backend,
        "package": package,
        "distribution": distribution,
        "module": module,
        "class_name": class_name,
        "version": ".".join(arrayferry.__version__.split(".")[:2]),
        "requirement": outline.distribution or package.partition(".")[0].replace("_", "-"),
        "dependencies": "",
    }
    if package.partition(".")[0] not in sys.stdlib_module_names:
        known = f'    "{values["requirement"]}",\n'
        guess = (
            f'    # "{values["requirement"]}",  # remove the first # if this is its name on PyPI\n'
        )
        values["dependencies"] = known if outline.distribution else guess
    reading, held, make = outline.to_numpy, outline.dtypes, outline.make
    classes = outline.classes or [f"{package}.Array"]
    values["array_types"] = "".join(f'"{path}", ' for path in classes).rstrip()
    values["todo_types"] = "" if make else " To be checked: this is a guess."
    values["memory"] = outline.memory or "writable"
    values["to_numpy"] = _body(
        f"import numpy as np\n\nreturn np.array({reading})" if reading else "",
        f"Write {class_name}.to_numpy(x) in {module}.py: return the values of x, an array of {package}, as a "
        "numpy.ndarray of the same shape and dtype, in memory of its own",
    )
    values["from_numpy"] = _body(
        f"import {package}\n\nreturn {package}.{make}(x.copy())" if reading else "",
        f"Write {class_name}.from_numpy(x) in {module}.py: return an array of {package} with the values, the shape and "
        "the dtype of x, a numpy.ndarray, in memory of its own",
    )
    values["make"] = _body(
        f"return {package}.{make}(values.copy())" if reading else "",
        f"Write Test{class_name}.make(values) in tests/test_{backend}.py: return an array of {package} with the values, "
        "the shape and the dtype of a numpy.ndarray, made without the plugin",
    )
    lacking = sorted(arrayferry.STANDARD_DTYPES - set(held)) if held else []
    names = ", ".join(f'"{name}"' for name in lacking)
    values["dtypes"] = f"af.STANDARD_DTYPES - {{{names}}}" if lacking else "af.STANDARD_DTYPES"
    writes = "    # Define write(self, array, value), too, if arrays are not written to by array[...] = value.\n\n"
    values["write"] = writes if values["memory"] == "writable" else ""
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


def _body(code: str, task: str) -> str:
    """Return the body of a method, or one that says what to write."""
    return indent(code or f"raise NotImplementedError(\n{_quoted(task)}\n)", " " * 8)


def _quoted(text: str, width: int = 90) -> str:
    """Return string literals of a limited width that make up a text."""
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > width:
            lines.append(line)
            line = ""
        line += f"{word} "
    lines.append(line.rstrip())
    return "\n".join(f'    "{each}"' for each in lines)


def show(written: Written, screen: Screen) -> None:
    """Print what was written, and what to do next."""
    screen.say(f"{written.folder} was written:")
    for path in written.files:
        screen.say(path, indent=2)
    module, tests = written.files[2:]
    backend, folder = written.backend, shlex.quote(written.folder)
    if written.missing:
        screen.say(f"The methods are still to be written, since {written.missing}.")
        if written.guessed:
            screen.say(
                f"Its arrays may be {' or '.join(written.guessed)}: check array_types in {module}."
            )
    else:
        screen.say(
            f"The methods were filled in from what was seen of {written.package}. Check them, as the tests do."
        )
    screen.say("Next:")
    if written.missing:
        screen.say(f"write to_numpy() and from_numpy() in {folder}/{module}", indent=2)
        screen.say(f"write make() in {folder}/{tests}", indent=2)
    screen.say(f"pip install -e {shlex.quote(written.folder + '[test]')}", indent=2)
    screen.say(f"arrayferry check {backend}", indent=2)
    screen.say(f"pytest {folder}", indent=2)
