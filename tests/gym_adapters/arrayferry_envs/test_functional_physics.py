"""The reference environments follow Gymnasium's own, step by step from the same state, in every library."""

import math

import gymnasium as gym
import numpy as np
import pytest
from cases import quick_if
from envs import begun
from functional_envs import LIBRARIES

import arrayferry as af
import arrayferry_gym  # noqa: F401

COUNT = 4
STEPS = 1_000
"""With NumPy. With the other libraries 100 steps show that they do the same."""
LIMIT = 12 * 2 * math.pi / 360

# the id in Gymnasium, its limit of steps, and how far a state is from the threshold of its termination
ENVS = {
    "CartPole": ("CartPole-v1", 500, lambda s: min(abs(abs(s[0]) - 2.4), abs(abs(s[2]) - LIMIT))),
    "Pendulum": ("Pendulum-v1", 200, lambda s: 1.0),
    "MountainCar": ("MountainCar-v0", 200, lambda s: abs(s[0] - 0.5)),
    "MountainCarContinuous": ("MountainCarContinuous-v0", 999, lambda s: abs(s[0] - 0.45)),
    "Acrobot": ("Acrobot-v1", 500, lambda s: abs(-math.cos(s[0]) - math.cos(s[0] + s[1]) - 1.0)),
}


@pytest.fixture(autouse=True)
def registered(name):
    """Register environments that are in a package of their own, which `make test` installs."""
    if name not in ("CartPole", "Pendulum"):
        pytest.importorskip("arrayferry_classic")


def their_step(theirs, state, action):
    """Step Gymnasium's environment from a state. Return what it returns, and its state."""
    theirs.reset()
    theirs.state = np.array(state, np.float64)
    if hasattr(theirs, "steps_beyond_terminated"):
        theirs.steps_beyond_terminated = None
    observation, reward, terminated, _, _ = theirs.step(action)
    return observation, reward, terminated, np.array(theirs.state, np.float64)


QUICK = [("numpy", STEPS), ("torch", 100)]


@pytest.mark.parametrize(
    ("library", "steps"),
    quick_if(dict.fromkeys([*QUICK, *((name, STEPS) for name in LIBRARIES)]), QUICK.__contains__),
)
@pytest.mark.parametrize("name", ENVS)
def test_every_step(name, library, steps):
    their_id, limit, distance = ENVS[name]
    theirs, options = gym.make(their_id).unwrapped, LIBRARIES[library]
    ours = begun(gym.make_vec(f"arrayferry/{name}-v0", COUNT, autoreset_mode="SameStep", **options))
    space = gym.vector.utils.batch_space(theirs.action_space, COUNT)
    space.seed(1)
    found, wanted, resets = [], [], 0
    for _ in range(steps):
        before = np.stack(af.convert(list(ours.state), "numpy"), axis=1)
        actions = space.sample()
        _, *results, infos = ours.step(actions)
        rewards, terminated, truncated, final = af.convert([*results, infos["final_obs"]], "numpy")
        resets += (terminated | truncated).sum()
        found += [*final]
        for each, action, reward, ended in zip(before, actions, rewards, terminated, strict=True):
            observation, their_reward, their_end, after = their_step(theirs, each, action)
            wanted.append(observation)
            if distance(after) > 1e-5:
                assert ended == their_end, (each, action)
                assert reward == pytest.approx(their_reward, rel=1e-4, abs=1e-4)
    found, wanted = np.array(found), np.array(wanted)
    span = np.ptp(wanted, axis=0)
    error = np.abs(found - wanted) / span
    assert error.max() < 1e-4
    assert resets >= COUNT * (steps // limit)
    assert resets > 0 or steps < STEPS


@pytest.mark.parametrize("name", ENVS)
def test_spaces_limits_and_starts_are_those_of_gymnasium(name):
    their_id, limit, _ = ENVS[name]
    theirs, ours = gym.make(their_id), gym.make(f"arrayferry/{name}-v0")
    assert gym.spec(their_id).max_episode_steps == limit
    assert gym.spec(f"arrayferry/{name}-v0").max_episode_steps == limit
    assert ours.action_space == theirs.action_space
    assert np.allclose(ours.observation_space.low, theirs.observation_space.low)
    assert np.allclose(ours.observation_space.high, theirs.observation_space.high)
    ours = gym.make_vec(f"arrayferry/{name}-v0", num_envs=2_000)
    starts = ours.reset(seed=0)[0]
    their_starts = np.array([theirs.reset(seed=seed)[0] for seed in range(2_000)])
    span = np.ptp(their_starts, axis=0)
    for measure, tolerance in ((np.min, 0.02), (np.max, 0.02), (np.mean, 0.05), (np.std, 0.05)):
        difference = np.abs(measure(starts, axis=0) - measure(their_starts, axis=0))
        assert np.all(difference <= tolerance * span + 1e-6)
    varying = span > 0
    ours_together, theirs_together = (
        np.corrcoef(x[:, varying], rowvar=False) for x in (starts, their_starts)
    )
    assert np.allclose(ours_together, theirs_together, atol=0.2)


@pytest.mark.parametrize("name", ENVS)
def test_images(name):
    pytest.importorskip("pygame")
    env = begun(gym.make(f"arrayferry/{name}-v0", render_mode="rgb_array"), 0)
    theirs = begun(gym.make(ENVS[name][0], render_mode="rgb_array"), 0)
    theirs.unwrapped.state = np.array([float(x[0]) for x in env.unwrapped.state])
    image = env.render()
    assert image.dtype == np.uint8
    assert np.array_equal(image, theirs.render())
    envs = gym.make_vec(f"arrayferry/{name}-v0", num_envs=2, render_mode="rgb_array", xp="torch")
    envs.reset(seed=0)
    assert [image.shape for image in envs.render()] == [image.shape] * 2
