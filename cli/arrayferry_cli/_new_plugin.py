"""`arrayferry new-plugin`: the distribution of a plugin, to be completed."""

from __future__ import annotations

import keyword
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from string import Template

import arrayferry

from ._plugins import survey
from ._result import Given, Result, UsageError

OURS = (
    "arrayferry", "arrayferry_audit", "arrayferry_cli", "arrayferry_cluster", "arrayferry_envs",
    "arrayferry_functions", "arrayferry_gym", "arrayferry_kit", "arrayferry_plugins",
    "arrayferry_streams", "arrayferry_suites",
)  # fmt: skip
"""The packages that no plugin may be called like."""


def new_plugin(given: Given) -> Result:
    """Write a new plugin, to be completed.

    Where it is not complete, its tests fail and say what is missing. No file is overwritten.
    """
    backend = re.sub(r"[-_.]+", "_", given.name.lower()).removeprefix("arrayferry_")
    package = given.package or backend
    for reason, remedy in _wrong_names(given, backend, package):
        raise UsageError(reason, remedy=remedy)
    distribution = f"arrayferry-{backend.replace('_', '-')}"
    texts = _texts(backend, package, distribution)
    place = given.directory / distribution
    _write(place, texts)
    folder = shlex.quote(str(place))
    module, tests = list(texts)[2:]
    lines = [
        f"{place} was written:",
        *(f"  {path}" for path in texts),
        "Next:",
        f"  write to_numpy() and from_numpy() in {folder}/{module}",
        f"  write make() in {folder}/{tests}",
        f"  pip install -e {shlex.quote(f'{place}[test]')}",
        f"  arrayferry check {backend}",
        f"  pytest {folder}",
    ]
    return {}, lines, 0


def _wrong_names(given: Given, backend: str, package: str) -> Iterator[tuple[str, str]]:
    """Yield why a name is wrong or taken, and what to do about it."""
    name, other = given.name, "Use another name."
    if not re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", backend):
        form = "Use letters, digits, and - between them, and begin with a letter, such as mylib or arrayferry-mylib."
        yield f"{name!r} is not the name of a distribution", form
    if f"arrayferry_{backend}" in OURS:
        yield (
            f"{name!r} would make a module arrayferry_{backend}, which is a part of arrayferry",
            other,
        )
    if keyword.iskeyword(backend) or keyword.issoftkeyword(backend):
        yield f"{name!r} is a keyword of Python", other
    for part in package.split("."):
        form = "Pass the name to import, such as mylib or mylib.numpy."
        if keyword.iskeyword(part):
            yield f"{part!r} is a keyword of Python, so {package!r} cannot be imported", form
        if not part.isidentifier():
            yield f"{part!r} is not the name of a module, so {package!r} cannot be imported", form
    if package.partition(".")[0] in (*OURS, f"arrayferry_{backend}"):
        reason = f"{package!r} is a part of arrayferry, or the module of the plugin itself"
        yield reason, "Pass the module of the array library."
    for library in survey(given.timeout)["libraries"]:
        known = f"the {library['kind']} {library['name']!r} of the plugin {library['plugin']!r}"
        if backend in library["names"]:
            yield f"the name {backend!r} is taken by {known}", other
        if library["kind"] == "backend" and package in library["names"]:
            yield f"{package} has a backend already, {known}", "Use that plugin."


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
        try:
            (folder / "tests").mkdir()
            for path, text in texts.items():
                (folder / path).write_text(text, encoding="utf-8")
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        remedy = "Nothing was written: pass another --directory, or remove it."
        raise UsageError(f"{folder} cannot be made: {error.strerror}", remedy=remedy) from error
