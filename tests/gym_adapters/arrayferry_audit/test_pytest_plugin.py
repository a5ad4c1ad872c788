"""The audit as tests: `pytest -p arrayferry_audit.pytest`."""

import os
import subprocess
import sys

import pytest

ENVS = """
import gymnasium as gym

def right():
    return gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)

def buffered():
    return gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, copy=False)

def single():
    return gym.make("CartPole-v1")
"""
CONFTEST = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "arrays_are_not_overwritten":
            item.add_marker(pytest.mark.xfail(reason="buffers"))
"""


@pytest.fixture
def audit(tmp_path):
    """Runs pytest in a folder, and returns the exit status and what it printed."""
    (tmp_path / "my_envs.py").write_text(ENVS, encoding="utf-8")
    (tmp_path / "test_other.py").write_text("def test_other(): pass", encoding="utf-8")

    def run(*arguments, plugin="arrayferry_audit.pytest"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, *arguments]
        paths = os.pathsep.join(sys.path)
        environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_ADDOPTS": ""}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_each_check_is_a_test(audit):
    status, text = audit("--vector-env", "my_envs:buffered", "--vector-env-steps", "40")
    assert status == 1
    assert "FAILED my_envs:buffered::arrays_are_not_overwritten" in text
    assert "environments, reset: the observation was overwritten" in text
    assert "1 failed, " in text
    assert "test_other" not in text


@pytest.mark.long
def test_other_tests_run_where_they_are_named(audit):
    status, text = audit("--vector-env", "my_envs:right", "test_other.py", "-rA")
    assert status == 0
    assert "PASSED test_other.py::test_other" in text
    assert "PASSED my_envs:right::calls_can_be_read" in text


def test_what_is_known_to_fail_is_named_or_marked(audit, tmp_path):
    options = "--vector-env", "my_envs:buffered", "--vector-env-steps", "40"
    status, text = audit(*options, "--vector-env-xfail", "arrays_are_not_overwritten")
    assert (status, "1 xfailed" in text) == (0, True)
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    status, text = audit(*options)
    assert (status, "1 xfailed" in text) == (0, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("my_envs:single", "it returns .*, which is not a vector environment"),
        ("my_envs:missing", "AttributeError"),
        pytest.param("missing:right", "ModuleNotFoundError", marks=pytest.mark.long),
        pytest.param("my_envs", "TypeError", marks=pytest.mark.long),
    ],
)
def test_other_names_are_usage_errors(audit, name, why):
    status, text = audit("--vector-env", name)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "does not name a function that makes vector environments" in text
    assert why.partition(" .*")[0] in text


@pytest.mark.long
def test_without_the_option_nothing_is_added(audit):
    status, text = audit()
    assert (status, "1 passed" in text) == (0, True)
    assert audit("--vector-env-xfail", "missing")[0] == pytest.ExitCode.USAGE_ERROR
