"""`arrayferry new-plugin`: writes the distribution of a new plugin, which its author then completes."""

from __future__ import annotations

import keyword
import re
import shlex
import shutil
from importlib.resources import files
from pathlib import Path
from string import Template

import arrayferry

from ._envs import suite_names
from ._plugins import distribution_of, survey
from ._result import Arguments, Result, UsageError

OURS = (
    "arrayferry", "arrayferry_audit", "arrayferry_cli", "arrayferry_cluster", "arrayferry_envs",
    "arrayferry_functions", "arrayferry_gym", "arrayferry_kit", "arrayferry_plugins",
    "arrayferry_streams", "arrayferry_suites", "arrayferry_translate",
)  # fmt: skip
"""The packages of arrayferry, whose names no plugin may have."""


WHAT = (
    "converts arrays between $package and every other supported library",
    "brings the environments of $package to agents of any library",
)
"""The words for what a plugin does: without `--suite`, and with it."""


def new_plugin(args: Arguments) -> Result:
    """Write a new plugin for you to complete.

    Until the plugin is complete, its tests fail with messages about what is missing. No file is overwritten.
    """
    backend = re.sub(r"[-_.]+", "_", args.name.lower()).removeprefix("arrayferry_")
    package, module = args.package or backend, f"arrayferry_{backend}"
    _refuse_wrong_names(args, backend, package)
    file_texts = _texts(backend, package, module, suite=args.suite)
    plugin_folder = args.directory / module.replace("_", "-")
    _write(plugin_folder, file_texts)
    quoted = shlex.quote(str(plugin_folder))
    lines = [
        f"{plugin_folder} was written:",
        *(f"  {path}" for path in file_texts),
        "Next:",
        *(
            f"  write {task}"
            for task in _to_write(f"{quoted}/{module}.py", quoted, backend, args.suite)
        ),
        f"  pip install -e {shlex.quote(f'{plugin_folder}[test]')}",
        f"  arrayferry check {backend}",
        f"  pytest {quoted}",
    ]
    return {}, lines, 0


def _to_write(file: str, folder: str, backend: str, suite: bool) -> list[str]:
    if suite:
        methods = "actions(), begin(), advance() and observation_of()"
        return [f"ids() and load() in {file}", f"{methods} in {file.removesuffix('.py')}_env.py"]
    return [f"to_numpy() and from_numpy() in {file}", f"make() in {folder}/tests/test_{backend}.py"]


def _refuse_wrong_names(args: Arguments, backend: str, package: str) -> None:
    """Check the names of the plugin and of its library.

    Raises:
        UsageError: a name is wrong or taken.
    """
    name, module_name, name_remedy = args.name, f"arrayferry_{backend}", "Use another name."
    if not re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", backend):
        form_remedy = "Use letters, digits, and - between them, and begin with a letter, such as mylib or arrayferry-mylib."
        raise UsageError(f"{name!r} is not the name of a distribution", remedy=form_remedy)
    if module_name in OURS:
        reason = f"{name!r} would make a module {module_name}, but this is a package of arrayferry"
        raise UsageError(reason, remedy=name_remedy)
    for word in (backend, *package.split(".")):
        if keyword.iskeyword(word):
            raise UsageError(f"{word!r} is a keyword of Python", remedy=name_remedy)
        if not word.isidentifier():
            form_remedy = "Pass the name to import, such as mylib or mylib.numpy."
            raise UsageError(f"{package!r} is not the name of a module", remedy=form_remedy)
    if package.partition(".")[0] in (*OURS, module_name):
        reason = f"{package!r} is a package of arrayferry, or the module of the plugin itself"
        raise UsageError(reason, remedy="Pass the module of the array library.")
    if args.suite:
        if backend in suite_names(args.timeout):
            raise UsageError(f"there is a suite {backend!r} already", remedy=name_remedy)
        return
    for library in survey(args.timeout)["libraries"]:
        owner = f"the {library['kind']} {library['name']!r} of the plugin {library['plugin']!r}"
        if backend in library["names"]:
            raise UsageError(f"the name {backend!r} is taken by {owner}", remedy=name_remedy)
        if library["kind"] == "backend" and package in library["names"]:
            raise UsageError(f"{package} already has a backend: {owner}", remedy="Use that plugin.")


def _texts(backend: str, package: str, module: str, *, suite: bool) -> dict[str, str]:
    """Return the files of the distribution: a dict from their paths in its folder to their texts."""
    distribution, suffix = distribution_of(package), "Suite" if suite else "Backend"
    camel, modules = "".join(part.capitalize() for part in backend.split("_")), [f"{module}.py"]
    whole_text = f"`{module}.py` is the whole plugin"
    if suite:
        modules.append(f"{module}_env.py")
        whole_text = f"`{module}.py` has the suite, `{module}_env.py` has an environment in JAX"
    substitutions = {
        "name": backend,
        "package": package,
        "distribution": module.replace("_", "-"),
        "module": module,
        "class_name": camel + suffix,
        "env_name": f"{camel}Env",
        "modules": ", ".join(f'"{name}"' for name in modules),
        "whole": whole_text,
        "needed": "arrayferry[gym]" if suite else "arrayferry",
        "what": WHAT[suite].replace("$package", package),
        "version": ".".join(arrayferry.__version__.split(".")[:2]),
        "requirement": distribution or package.partition(".")[0].replace("_", "-"),
        "mark": "" if distribution else "# ",
        "note": "" if distribution else "  # remove the first # if this is its name on PyPI",
    }
    templates = files("arrayferry_cli") / "template"

    def render(name: str) -> str:
        return Template((templates / name).read_text(encoding="utf-8")).substitute(substitutions)

    env_files = {f"{module}_env.py": render("suite_env.py.txt")} if suite else {}
    return {
        "pyproject.toml": render("pyproject.toml.txt"),
        "README.md": render("README.md.txt"),
        f"{module}.py": render("suite.py.txt" if suite else "plugin.py.txt"),
        **env_files,
        f"tests/test_{backend}.py": render("test_suite.py.txt" if suite else "test_plugin.py.txt"),
    }


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write files into a new folder. `texts` maps paths in the folder to texts. After an error, remove the folder."""
    try:
        folder.mkdir(parents=True)
        try:
            (folder / "tests").mkdir()
            for path, text in texts.items():
                (folder / path).write_text(text, encoding="utf-8")
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        remedy = "Nothing was written. Pass another --directory, or remove the folder."
        raise UsageError(f"{folder} cannot be made: {error.strerror}", remedy=remedy) from error
