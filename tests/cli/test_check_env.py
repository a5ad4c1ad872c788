"""`arrayferry check-env`."""

from __future__ import annotations

import json

import pytest

WRONG = """
from arrayferry_gym.functional import CartPole

class Wrong(CartPole):
    def step(self, xp, rng, state, action, params):
        if state.angle > 0:
            return state, 1.0, False
        return state, 0.0, False

class Right(CartPole):
    pass

other = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_envs_of_test.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_what_is_wrong_is_told(run, folder):
    status, out, err = run("check-env", "own_envs_of_test:Wrong")
    assert (status, err) == (1, "")
    assert "own_envs_of_test:Wrong: 1 problem\n" in out
    assert "step(), own_envs_of_test.py:6" in out
    assert "it asks whether an array is true" in out
    status, out, _ = run("check-env", "own_envs_of_test.py:Wrong", "--json")
    assert status == 1
    (problem,) = json.loads(out)["problems"]
    assert problem["libraries"] == ["numpy", "array_api_strict", "torch", "jax"]


def test_nothing_is_wrong(run, folder):
    status, out, _ = run("check-env", "own_envs_of_test:Right")
    assert (status, out) == (0, "own_envs_of_test:Right: nothing is wrong\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("own_envs_of_test", "does not name a class"),
        ("own_envs_of_test:Nothing", "has no Nothing"),
        ("own_envs_of_test:other", "a FunctionalEnv is needed"),
        ("no_such_module:X", "no_such_module cannot be imported"),
        ("missing.py:X", "cannot be imported: FileNotFoundError"),
    ],
)
def test_wrong_names(run, folder, name, told):
    status, out, err = run("check-env", name)
    assert (status, out) == (2, "")
    assert told in err
