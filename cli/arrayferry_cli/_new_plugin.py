"""`arrayferry new-plugin`: the distribution of a plugin, to be completed."""

from __future__ import annotations

import keyword
import os
import re
import shlex
import shutil
import sys
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from string import Template

import arrayferry

from ._errors import UsageError
from ._plugins import survey

PREFIX = "arrayferry-"
OURS = (
    "arrayferry", "arrayferry_audit", "arrayferry_cli", "arrayferry_cluster", "arrayferry_envs",
    "arrayferry_functions", "arrayferry_gym", "arrayferry_kit", "arrayferry_plugins",
    "arrayferry_streams", "arrayferry_suites",
)  # fmt: skip


def write(name: str, package: str | None, directory: Path, timeout: float) -> list[str]:
    """Write a distribution.

    Args:
        name: the name of the backend, or of the distribution.
        package: the module of the library; None if it has the name of the backend.
        directory: the folder in which the folder of the distribution is made.
        timeout: seconds that loading the plugins that are installed may take.

    Returns:
        What was written, and what to do next, as lines of text.

    Raises:
        CommandError: a name is wrong or taken, there is something in that place, or the plugins that are installed
            cannot be loaded. Nothing was written.
    """
    backend = _checked_name(name)
    package = package or backend
    _check_package(package, backend)
    _check_free(backend, package, timeout)
    distribution = PREFIX + backend.replace("_", "-")
    texts = _texts(backend, package, distribution)
    _write(directory / distribution, texts)
    folder = shlex.quote(str(directory / distribution))
    module, tests = list(texts)[2:]
    return [
        f"{directory / distribution} was written:",
        *(f"  {path}" for path in texts),
        "Next:",
        f"  write to_numpy() and from_numpy() in {folder}/{module}",
        f"  write make() in {folder}/{tests}",
        f"  pip install -e {shlex.quote(f'{directory / distribution}[test]')}",
        f"  arrayferry check {backend}",
        f"  pytest {folder}",
    ]


def _checked_name(name: str) -> str:
    """Return the name of the backend."""
    short = name.lower().removeprefix(PREFIX).removeprefix(PREFIX.replace("-", "_"))
    backend = re.sub(r"[-_.]+", "_", short)
    if not re.fullmatch(r"[a-z]([a-z0-9._-]*[a-z0-9])?", short, re.ASCII):
        remedy = "Use letters, digits, and - between them, and begin with a letter, such as mylib or arrayferry-mylib."
        raise UsageError(f"{name!r} is not the name of a distribution", remedy)
    if f"arrayferry_{backend}" in OURS:
        reason = f"{name!r} would make a module arrayferry_{backend}, which is a part of arrayferry"
        raise UsageError(reason, "Use another name.")
    if keyword.iskeyword(backend) or keyword.issoftkeyword(backend):
        raise UsageError(f"{name!r} is a keyword of Python", "Use another name.")
    return backend


def _check_package(package: str, backend: str) -> None:
    parts = package.split(".")
    for part in parts:
        if keyword.iskeyword(part) or not part.isidentifier():
            what = "a keyword of Python" if keyword.iskeyword(part) else "not the name of a module"
            reason = f"{part!r} is {what}, so {package!r} cannot be imported"
            raise UsageError(reason, "Pass the name to import, such as mylib or mylib.numpy.")
    if parts[0] in (*OURS, f"arrayferry_{backend}"):
        reason = f"{package!r} is a part of arrayferry, or the module of the plugin itself"
        raise UsageError(reason, "Pass the module of the array library.")


def _check_free(backend: str, package: str, timeout: float) -> None:
    for library in survey(timeout)["libraries"]:
        home = f" of the plugin {library['plugin']!r}" if library["plugin"] else ""
        known = f"the {library['kind']} {library['name']!r}{home}"
        if backend in library["names"]:
            raise UsageError(f"the name {backend!r} is taken by {known}", "Use another name.")
        if library["kind"] == "backend" and package in library["names"]:
            raise UsageError(f"{package} has a backend already, {known}", "Use that plugin.")


def _texts(backend: str, package: str, distribution: str) -> dict[str, str]:
    """Return the files of the distribution, by their paths in its folder."""
    module = distribution.replace("-", "_")
    top = package.partition(".")[0]
    known = next(iter(packages_distributions().get(top, ())), None)
    requirement = known or top.replace("_", "-")
    mark, note = ("", "") if known else ("# ", "  # remove the first # if this is its name on PyPI")
    named = top not in sys.stdlib_module_names
    values = {
        "name": backend,
        "package": package,
        "distribution": distribution,
        "module": module,
        "class_name": "".join(part.capitalize() for part in backend.split("_")) + "Backend",
        "version": ".".join(arrayferry.__version__.split(".")[:2]),
        "install": f'    {mark}install = "{requirement}"{note}\n' if named else "",
        "dependencies": f'    {mark}"{requirement}",{note}\n' if named else "",
    }
    paths = {
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        f"{module}.py": "plugin.py.txt",
        f"tests/test_{backend}.py": "test_plugin.py.txt",
    }
    template = files("arrayferry_cli") / "template"
    return {
        path: Template((template / name).read_text(encoding="utf-8")).substitute(values)
        for path, name in paths.items()
    }


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write all files, or none."""
    try:
        os.makedirs(folder)
    except OSError as error:
        remedy = "Nothing was written: pass another --directory, or remove it."
        raise UsageError(f"{folder} cannot be made: {error.strerror}", remedy) from error
    try:
        (folder / "tests").mkdir()
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        reason = f"{folder} cannot be written: {error.strerror}"
        raise UsageError(reason, "Nothing was written.") from error
