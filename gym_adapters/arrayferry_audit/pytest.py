"""A plugin of pytest that runs the audit of vector environments. Each check becomes a test.

    pytest -p arrayferry_audit.pytest --vector-env my.module:make

`make` is a function without arguments that makes new vector environments, as for `check_vector_env`. If no files or
folders are named, only these tests run. For a check that is known to fail, pass `--vector-env-xfail CHECK`, or mark the
test as `xfail` by `pytest_collection_modifyitems` in a `conftest.py`.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from arrayferry_audit import check_vector_env

from ._audit import OTHER_CHECKS
from ._checks import CHECKS

NAMES = (*(check.__name__ for check in CHECKS), *OTHER_CHECKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--vector-env`, `--vector-env-steps` and `--vector-env-xfail`."""
    add_option = parser.getgroup("vector environments").addoption
    add_option("--vector-env", metavar="MODULE:MAKE", help="audit environments of this function")
    add_option("--vector-env-steps", type=int, default=300, help="the number of steps of a run")
    xfail_args = {"help": "a check that is known to fail; repeat it for several", "choices": NAMES}
    add_option("--vector-env-xfail", action="append", default=[], metavar="CHECK", **xfail_args)


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """If `--vector-env` is passed without files or folders, ignore all files."""
    return bool(config.getoption("vector_env") and not config.option.file_or_dir) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    """Add a test for each check. The first test that runs also runs the audit. All tests use its result."""
    if (name := config.getoption("vector_env")) is None:
        return
    make, num_steps = _function(name), config.getoption("vector_env_steps")
    find_problems = cache(lambda: check_vector_env(make, steps=num_steps))
    for check_name in NAMES:
        items.append(_Check.from_parent(session, name=check_name, nodeid=f"{name}::{check_name}"))
        items[-1].problems = find_problems
        if check_name in config.getoption("vector_env_xfail"):
            items[-1].add_marker(pytest.mark.xfail(strict=True))


def _function(name: str) -> Any:
    """Return the function with this name, after a check that the function makes vector environments."""
    try:
        sys.path.insert(0, os.getcwd())
        make = pkgutil.resolve_name(name)
        envs = make()
        if hasattr(envs, "step") and hasattr(envs, "num_envs"):
            envs.close()
            return make
        reason = f"it returns {envs!r:.80}, which is not a vector environment"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    message = "does not name a function that makes vector environments"
    raise pytest.UsageError(f"--vector-env {name} {message}: {reason}. Write MODULE:FUNCTION")


class _Check(pytest.Item):
    problems: Callable[[], Any]

    def runtest(self) -> None:
        if messages := [str(problem) for problem in self.problems() if problem.check == self.name]:
            pytest.fail("\n".join(messages), pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.nodeid
