"""Python 3.15: what has no build for it yet, and lazy imports.

Tests that need a package without a build are skipped, with its name. With `ARRAYFERRY_LAZY_IMPORTS=1`, imports at the
top of our modules and of the tests are lazy, as they are for users who set `PYTHON_LAZY_IMPORTS=all`. Those of other
packages are not, as pytest and Dask do not work then.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

# It imports ndonnx at its top, which `make check` and Python 3.15 do not have.
collect_ignore = [] if find_spec("ndonnx") else ["core/arrayferry_translate/_onnx.py"]

# As they are imported. pyproject.toml and the Makefile leave them out.
_NO_BUILD = (
    "ale_py",
    "arrayferry_tensorflow",
    "flax",
    "grain",
    "h5py",
    "minari",
    "moviepy",
    "pettingzoo",
    "stable_baselines3",
    "tensordict",
    "tensorflow",
    "torch",
    "torchdata",
    "torchrl",
)
_MISSING = (
    {name for name in _NO_BUILD if find_spec(name) is None}
    if sys.version_info >= (3, 15)
    else set()
)
_TESTS = Path(__file__).parent / "tests"
_HELPERS = [path.stem for path in _TESTS.glob("*.py")]
_PACKAGES = [path.parent.name for path in _TESTS.parent.glob("*/arrayferry*/__init__.py")]
_LAZY = {"tests", *_HELPERS, *_PACKAGES}
# cloudpickle cannot pickle what such a module has not imported yet.
_BY_VALUE = {p.stem for p in _TESTS.rglob("*.py") if "register_pickle_by_value" in p.read_text()}


def _is_lazy(importer: str | None, imported: str, names: object) -> bool:
    parts = (importer or "").split(".")
    return parts[0] in _LAZY and parts[-1] not in _BY_VALUE


if os.environ.get("ARRAYFERRY_LAZY_IMPORTS"):
    sys.set_lazy_imports_filter(_is_lazy)
    sys.set_lazy_imports("all")


def _reason(name: str) -> str:
    return f"{name} has no build for Python 3.15"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that says what it needs."""
    for marker in item.iter_markers("needs"):
        for name in _MISSING.intersection(marker.args):
            pytest.skip(_reason(name))


if _MISSING:

    def _skip(report: pytest.CollectReport | pytest.TestReport, path: Path) -> bool:
        """Make a report one of a skip if its error is that a package is missing, and return if it is."""
        errors = [
            line
            for line in report.longreprtext.splitlines()
            if line.startswith(("E ", "UNEXPECTED"))
        ]
        text = "\n".join([*errors, report.capstdout, report.capstderr])
        for names in re.findall(r"No module named '(\w+)|(\w+) is not installed", text):
            for name in _MISSING.intersection(names):
                report.outcome = "skipped"
                report.longrepr = (str(path), 1, f"Skipped: {_reason(name)}")
                return True
        return False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        item: pytest.Item,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Skip a test that fails since something is missing."""
        report = yield
        if report.failed:
            _skip(report, item.path)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        collector: pytest.Collector,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Skip a module that cannot be imported since something is missing."""
        report = yield
        if report.failed and _skip(report, collector.path):
            for name, module in list(sys.modules.items()):  # pytest leaves what was half imported
                if getattr(module, "__file__", None) == str(collector.path):
                    del sys.modules[name]
        return report
