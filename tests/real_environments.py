"""Real environments are stepped with every form of action that agents produce, with an adapter and without one.

What the rule for actions calls right or passed on is never refused, and gives what the canonical action
gives; what it calls wrong is refused before anything is stepped.
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from action_forms import PASSED_ON, UNCOMPARED, WRONG, alike, forms, numbers

import arrayferry as af
from arrayferry_gym import ArrayConversion, vector
from arrayferry_gym._spaces.batches import batch_of_actions

__all__ = ["UnusableError", "takes_every_form", "takes_every_form_in_batches"]


class UnusableError(Exception):
    """The environment does not run here by itself."""


def takes_every_form(env_id: str) -> None:
    """Check a single environment, which Gymnasium makes by its id."""
    try:
        env = _made(env_id)
        env.reset(seed=3)
        env.action_space.seed(0)
        action = env.action_space.sample()
        expected = _outcome(env, action)
    except Exception as error:
        raise UnusableError(f"{type(error).__name__}: {error}"[:200]) from error
    counted = Counted(env)
    adapter = ArrayConversion(counted, target_xp="numpy")
    for name, what, value in forms(env.action_space, action):
        before = counted.steps
        try:
            found = _outcome(adapter, value)
        except af.ConversionError as error:
            ours = env_id.startswith("arrayferry/") and name == "none"  # for which it has no use
            if what != WRONG and not ours:
                pytest.fail(f"{name} was refused: {error}")
            if counted.steps != before and not ours:
                pytest.fail(f"{name} was refused after the step")
            continue
        except Exception as error:  # the environment's own
            if what != PASSED_ON and name.rpartition(": ")[2] not in UNCOMPARED:
                pytest.fail(f"{name}: {error!r}")
            if what == PASSED_ON and not getattr(error, "__notes__", None):
                pytest.fail(f"{name}: the error {error!r} has no note")
            env = _made(env_id)  # it may be broken now
            counted = Counted(env)
            adapter = ArrayConversion(counted, target_xp="numpy")
            continue
        assert what != WRONG, f"{name} was not refused"
        if what != PASSED_ON and name.rpartition(": ")[2] not in UNCOMPARED:
            tries = itertools.chain([found], (_outcome(adapter, value) for _ in range(4)))
            found_again = any(alike(one, expected) for one in tries)
            assert found_again or not _repeats(env, action, expected), name
    env.close()


def takes_every_form_in_batches(make: Callable[[], Any], num_envs: int) -> None:
    """Check a vector environment."""
    try:
        envs = make()
        space = batch_of_actions(getattr(envs, "single_action_space", envs.action_space), num_envs)
        space.seed(0)
        actions = space.sample()
        expected = _outcome_of_batch(envs, actions)
        repeats = all(alike(_outcome_of_batch(make(), actions), expected) for _ in range(2))
    except Exception as error:
        raise UnusableError(f"{type(error).__name__}: {error}"[:200]) from error
    for name, what, value in forms(space, actions, num_envs=num_envs):
        if isinstance(value, np.ndarray):
            value = value.copy()  # EnvPool keeps what it is given
        adapter = vector.ArrayConversion(make(), target_xp="numpy")
        try:
            found = _outcome_of_batch(adapter, value)
        except af.ConversionError as error:
            if what != WRONG:
                pytest.fail(f"{name} was refused: {error}")
            # nothing was stepped
            assert not repeats or alike(_outcome_of_batch(adapter, actions), expected), name
            continue
        except Exception as error:  # the environments' own
            if what != PASSED_ON and name.rpartition(": ")[2] not in UNCOMPARED:
                pytest.fail(f"{name}: {error!r}")
            continue
        assert what != WRONG, f"{name} was not refused"
        if name.rpartition(": ")[2] not in UNCOMPARED and repeats:
            assert alike(found, _expected(make, value, actions, expected)), name


def _expected(make: Callable[[], Any], value: Any, actions: Any, expected: Any) -> Any:
    """Return what the environment does with an action whose numbers were rounded, such as float32 instead of float64."""
    if not hasattr(value, "dtype") or not isinstance(actions, np.ndarray):
        return expected
    rounded = np.asarray(af.convert(value, "numpy"))
    is_other = rounded.dtype.kind == "f" and rounded.dtype != actions.dtype
    if rounded.shape != actions.shape or not is_other:
        return expected
    return _outcome_of_batch(make(), rounded.astype(actions.dtype))


def _made(env_id: str) -> gym.Env:
    with warnings.catch_warnings(action="ignore"):
        return gym.make(env_id, disable_env_checker=True).unwrapped


def _outcome(env, action):
    """Return what a step after a reset gives, as NumPy arrays."""
    env.reset(seed=3)
    np.random.seed(3)
    *results, _ = env.step(action)
    return numbers(*results)


def _repeats(env, action, expected):
    """Tell whether an environment repeats itself, which some do not, even with a seed."""
    return all(alike(_outcome(env, action), expected) for _ in range(4))


class Counted(gym.Wrapper):
    """Counts the steps that reach an environment."""

    steps = 0

    def step(self, action):
        self.steps += 1
        return self.env.step(action)


def _outcome_of_batch(envs, actions):
    *results, _ = envs.step(actions)
    return numbers(*results)
