"""Steps and resets that fail or are interrupted change nothing: the next one gives what they would have given."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from envs import LIBRARIES, library
from gymnasium import spaces

import arrayferry as af
import arrayferry_gym.functional
from arrayferry_gym.functional import FunctionalEnv

modes = pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled", "single"])
calls = {}  # at which call each method fails


class Noise(FunctionalEnv):
    """A random walk, with random starts and parameters. Episodes end after 2, 3 and 4 steps."""

    observation_space = spaces.Dict(x=spaces.Box(-99, 99, (), np.float32), k=spaces.Discrete(99))
    action_space = spaces.Discrete(2)
    default_params = {"drift": 0.5, "ends": 4}

    def call(self, name):
        calls[name] = calls.get(name, 0) - 1
        if not calls[name]:
            raise ZeroDivisionError(name)

    def sample_params(self, xp, rng, n, params):
        self.call("sample_params")
        return {**params, "drift": rng.normal((n,))}

    def reset(self, xp, rng, n, params):
        self.call("reset")
        k = xp.zeros((n,), dtype=xp.int32)
        return {"x": rng.uniform((n,)), "k": k, "end": rng.integers((n,), 2, params["ends"] + 1)}

    def step(self, xp, rng, state, action, params):
        self.call("step")
        x = state["x"] + rng.normal(tuple(state["x"].shape)) + params["drift"]
        k = state["k"] + 1
        return {"x": x, "k": k, "end": state["end"]}, x, k >= state["end"]

    def observe(self, xp, state, params):
        self.call("observe")
        return {"x": state["x"], "k": state["k"]}

    def info(self, xp, state, params):
        self.call("info")
        return {"twice": 2 * state["x"]}


def made(mode, library, seed=1):
    calls.clear()
    options = LIBRARIES[library]
    if mode == "single":
        envs = Noise().make(**options)
    else:
        envs = Noise().make_vec(3, autoreset_mode=mode, **options)
    envs.reset(seed=seed)
    return envs


def step(envs):
    return af.convert(envs.step(envs.action_space.sample() * 0), "numpy", scalars="convert")


def equal(a, b):
    (a, layout), (b, other) = af.flatten(a), af.flatten(b)
    return layout == other and all(map(np.array_equal, a, b))


def expected(mode, library, count):
    envs = made(mode, library)
    return [step(envs) for _ in range(count)]


@library
@modes
def test_a_step_that_fails_changes_nothing(library, mode):
    with jax.disable_jit():  # or only the first step could fail
        rows, envs = expected(mode, library, 5), made(mode, library)
        for row in rows:
            for name in ("step", "observe", "info", "reset", "sample_params"):
                for count in (1, 2):
                    other = copy.deepcopy(envs)
                    calls[name] = count
                    try:
                        step(other)
                    except ZeroDivisionError:
                        calls.clear()
                        assert equal(step(other), row)
                    else:
                        assert count == 2 or name in ("reset", "sample_params")
            calls.clear()
            assert equal(step(envs), row)


def test_a_step_that_fails_while_it_is_compiled_changes_nothing():
    rows, envs = expected("SameStep", "jax", 4), made("SameStep", "jax")
    for name in ("step", "observe", "info", "reset"):
        calls[name] = 1
        with pytest.raises(ZeroDivisionError):
            step(envs)
        calls.clear()
    assert all(equal(step(envs), row) for row in rows)


@library
def test_a_reset_that_fails_changes_nothing(library):
    envs, twin = made("NextStep", library), made("NextStep", library)
    for options in ({}, {"reset_mask": [True, False, True]}, {"state": envs.state}):
        for name in ("reset", "observe", "info"):
            given = {**options, "params": {"ends": 3, "drift": 2.0}}
            if "reset_mask" in options:
                given["params"] = {"drift": 2.0}
            for seed in (None, 5):
                calls[name] = 1
                if "state" not in options or name != "reset":
                    with pytest.raises(ZeroDivisionError):
                        envs.reset(seed=seed, options=given)
                calls.clear()
        assert equal(envs.params, twin.params)
        assert equal(step(envs), step(twin))
        seen = [af.convert(x.reset(options=options), "numpy") for x in (envs, twin)]
        assert equal(*seen)


def interrupted(call, number):
    """Call a function, and interrupt it at one of its lines. Tell whether it has so many."""
    places = str(Path(arrayferry_gym.functional.__file__).parent), __file__
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.startswith(places):
            return None
        if event == "line" and frame.f_code is not step.__code__:
            count += 1
            if count == number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "strict"])
@modes
def test_a_step_can_be_interrupted_at_each_line(library, mode):
    rows, envs = iter(expected(mode, library, 900)), made(mode, library)
    number = lost = 0
    while interrupted(lambda: step(envs), number := number + 1):
        now, row = step(envs), next(rows)
        if not equal(now, row):  # it had succeeded, and was interrupted on its way back
            lost += 1
            assert equal(now, next(rows))
    assert number > 20
    assert lost <= (25 if library == "jax" else 3)


@pytest.mark.parametrize("mode", ["NextStep", "single"])
def test_a_reset_can_be_interrupted_at_each_line(mode):
    envs, other = made(mode, "numpy"), made(mode, "numpy")
    step(envs), step(other)
    rows = [step(copy.deepcopy(envs))]
    other.reset()
    rows.append(step(other))
    number = 0
    while interrupted((stopped := copy.deepcopy(envs)).reset, number := number + 1):
        after = step(stopped)
        assert any(equal(after, row) for row in rows)
    assert number > 20


def test_random_numbers_go_back_to_a_state():
    for name in ("numpy", "torch", "jax", "array_api_strict"):
        backend = af.registry.backend(name)
        for rng in (backend.random(3), backend.random()):
            rng.normal((2,))
            state = pickle.loads(pickle.dumps(rng.getstate()))
            first = [backend.to_numpy(rng.uniform((3,))).tolist() for _ in range(6)]
            for _ in range(2):
                rng.setstate(state)
                again = [backend.to_numpy(rng.uniform((3,))).tolist() for _ in range(6)]
                assert again == first


def test_random_numbers_of_other_classes_go_back_too():
    class Counted(af.Random):
        def __init__(self):
            self.counts = [0]

        def uniform(self, shape, low=0.0, high=1.0, dtype="float32"):
            self.counts[0] += 1
            return self.counts[0]

        normal = integers = categorical = uniform

    rng = Counted()
    rng.uniform(())
    state = rng.getstate()
    for _ in range(2):
        assert [rng.uniform(()), rng.uniform(())] == [2, 3]
        rng.setstate(state)


def test_a_copy_of_an_environment_whose_step_has_failed():
    for name in ("numpy", "torch itself"):
        row, envs = expected("NextStep", name, 1)[0], made("NextStep", name)
        calls["observe"] = 1
        with pytest.raises(ZeroDivisionError):
            step(envs)
        calls.clear()
        for other in (pickle.loads(pickle.dumps(envs)), envs):
            assert equal(step(other), row)
