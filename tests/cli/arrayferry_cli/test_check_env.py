"""`arrayferry check-env`."""

import json

import pytest
from cases import quick_if

WRONG = """
import os, time
from arrayferry_envs import CartPole

class Wrong(CartPole):
    def step(self, xp, rng, state, action, params):
        if state.angle > 0:
            return state, 1.0, False
        return state, 0.0, False

class Endless(CartPole):
    max_episode_steps = None

    def step(self, xp, rng, state, action, params):
        return state, 1.0, False

class Prints(CartPole):
    def observe(self, xp, state, params):
        print("hello")
        os.write(1, b"hello")
        return super().observe(xp, state, params)

class Ends(CartPole):
    def reset(self, xp, rng, n, params):
        os._exit(0)

class Crashes(CartPole):
    def reset(self, xp, rng, n, params):
        os.kill(os.getpid(), 11)

class Mute(BaseException):
    def __str__(self):
        raise ValueError

class Raises(CartPole):
    def reset(self, xp, rng, n, params):
        raise Mute

class Hangs(CartPole):
    def reset(self, xp, rng, n, params):
        time.sleep(1000)

other = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_envs_of_test.py").write_text(WRONG)
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.needs("torch")
def test_what_is_wrong_is_told(run, folder):
    status, out, err = run("check-env", "own_envs_of_test:Wrong")
    assert (status, err) == (1, "")
    assert "own_envs_of_test:Wrong: 1 problem\n" in out
    assert "step(), own_envs_of_test.py:7" in out
    assert "it asks whether an array is true" in out
    _, out, _ = run("check-env", "own_envs_of_test.py:Wrong", "--json", status=1)
    (problem,) = json.loads(out)["problems"]
    assert problem["libraries"] == ["numpy", "array_api_strict", "torch", "jax"]


ENDS = {
    "Ends": "failed: it ended the process with exit status 0",
    "Crashes": "failed: it crashed with SIGSEGV",
    "Raises": "failed: Mute\n",
    "Hangs": "took longer than 15 seconds",
}


@pytest.mark.parametrize(("name", "told"), quick_if(ENDS.items(), lambda row: row[0] == "Ends"))
def test_code_that_ends_its_process(run, folder, name, told):
    place = f"own_envs_of_test.py:{name}"
    options = ("--timeout", "15") if name == "Hangs" else ()
    status, out, err = run("check-env", place, "--json", *options)
    assert (status, out) == (1, "")
    assert f"trying {place} {told}" in err


@pytest.mark.long
def test_nothing_is_wrong(run, folder):
    """What an environment prints is not in the report."""
    told = "own_envs_of_test:Prints: no problem was found\n"
    assert run("check-env", "own_envs_of_test:Prints") == (0, told, "")
    status, out, err = run("check-env", "own_envs_of_test:Prints", "--json")
    assert (status, json.loads(out)["ok"], err) == (0, True, "")


@pytest.mark.long
def test_what_may_be_meant_is_a_warning(run, folder):
    _, out, _ = run("check-env", "own_envs_of_test:Endless", status=0)
    told, warning = out.splitlines()
    assert told == "own_envs_of_test:Endless: no problem was found"
    assert warning.startswith("Warning: Endless.step(), own_envs_of_test.py:14: no episode ended")
    _, out, _ = run("check-env", "own_envs_of_test:Endless", "--json")
    assert warning == f"Warning: {json.loads(out)['warnings'][0]}"


VECTOR = """
import gymnasium as gym

def make():
    return gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, copy=False)
"""


def test_vector_environments_are_audited(run, folder):
    (folder / "vectors.py").write_text(VECTOR)
    status, out, err = run("check-env", "--vector", "vectors.py:make", "--steps", "30", "--json")
    assert (status, err) == (1, "")
    (problem,) = json.loads(out)["problems"]
    place = {"env": None, "step": 0, "place": "all environments, reset"}
    assert place.items() <= problem.items()
    assert problem["times"] > 30
    words = "CartPole-v1 (3 in CartPoleVectorEnv, NEXT_STEP): no problem was found\n"
    assert run("check-env", "--vector", "CartPole-v1")[:2] == (0, words)
    assert "NameNotFound" in run("check-env", "--vector", "CartPool-v1")[2]
    assert (
        "it must be a whole number of 1 or more"
        in run("check-env", "--vector", "CartPole-v1", "--steps", "0")[2]
    )


WRONG_NAMES = {
    "own_envs_of_test": "does not name a class",
    "CartPole-v1": "With --vector, an id of Gymnasium is possible",
    "own_envs_of_test:Nothing": "has no Nothing",
    "own_envs_of_test:other": "a FunctionalEnv is needed",
    "no_such_module:X": "no_such_module cannot be imported",
    "missing.py:X": "cannot be imported: FileNotFoundError",
    "leaves.py:X": "cannot be imported: SystemExit: 3",
}


@pytest.mark.parametrize(
    ("name", "told"), quick_if(WRONG_NAMES.items(), lambda row: "X" not in row[0])
)
def test_wrong_names(run, folder, name, told):
    status, out, err = run("check-env", name)
    assert (status, out) == (2, "")
    assert told in err
