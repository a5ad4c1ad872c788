"""Videos of collected states."""

from __future__ import annotations

import dataclasses
import sys
from typing import NamedTuple

import imageio.v3 as imageio
import jax
import numpy as np
import pytest
from envs import still
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym.functional import EnvResultError, FunctionalEnv, rollout, video, wrap
from arrayferry_gym.wrappers import kernels


@dataclasses.dataclass
class Brightness:
    """A state that JAX does not know."""

    level: object


class Glow(FunctionalEnv):
    """Each environment begins at its number, and becomes brighter. Its image has odd sides."""

    observation_space = spaces.Box(0.0, 1e6, (), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"gain": 8.0}
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def reset(self, xp, rng, n, params):
        return Brightness(xp.arange(n, dtype=xp.float32))

    def step(self, xp, rng, state, action, params):
        return Brightness(state.level + params["gain"]), 0.0, False

    def observe(self, xp, state, params):
        return state.level

    def render(self, state, index):
        assert isinstance(state.level, np.ndarray)
        return np.full((33, 47, 3), state.level[index], np.uint8)


class Drawn(Glow):
    """Draws its gain at each reset."""

    def sample_params(self, xp, rng, n, params):
        return {"gain": rng.uniform((n,), 8.0, 8.5)}


def states(env, steps=20, envs=3):
    _, transitions = rollout(env, still, None, jax.random.key(0), steps, envs, collect=("state",))
    return transitions.state


def levels(path):
    """Return the brightness of each image, the size, and the rate."""
    plugin = "pillow" if path.suffix == ".gif" else "pyav"
    with imageio.imopen(path, "r", plugin=plugin) as file:
        images = file.read(index=...) if plugin == "pillow" else file.read()
        about = file.metadata(index=0) if plugin == "pillow" else file.metadata()
    rate = 1000 / about["duration"] if plugin == "pillow" else about["fps"]
    return images[..., :3].mean(axis=(1, 2, 3)), images.shape[1:3], rate


@pytest.mark.parametrize("ending", ["mp4", "gif", pytest.param("webm", marks=pytest.mark.long)])
@pytest.mark.parametrize("env", [Glow(), Drawn(), wrap(Glow(), kernels.ClipReward(-1, 1))])
def test_each_state_is_an_image(env, ending, tmp_path):
    path = tmp_path / f"glow.{ending}"
    video(env, states(env), path, index=2)
    found, size, rate = levels(path)
    gain = 8.5 if isinstance(env, Drawn) else 8.0
    assert len(found) == 20
    np.testing.assert_allclose(found[0], 2, atol=4)
    assert np.all(np.diff(found) > 4)
    assert 2 + 19 * 8 - 4 <= found[-1] <= 2 + 19 * gain + 4
    assert rate == 10
    assert size == ((33, 47) if ending == "gif" else (34, 48))
    assert [x.name for x in tmp_path.iterdir()] == [path.name]


def test_states_of_a_single_environment_and_the_rate(tmp_path):
    path = tmp_path / "one.mp4"
    video(Glow, Brightness(np.arange(0, 200, 20, np.float32)), path, index=None, fps=12.5)
    found, _, rate = levels(path)
    assert len(found) == 10
    assert rate == 12.5


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"index": 3}, "3 environments"),
        ({"index": True}, "index=True"),
        ({"fps": 0}, "fps=0"),
        ({"fps": "fast"}, "fps='fast'"),
        ({"path": "glow.txt"}, "glow.txt"),
        ({"path": "glow"}, "no ending"),
        ({"progress": None}, "progress"),
        ({"states": Brightness(np.zeros(4, np.float32))}, "(time, environment, ...)"),
        ({"states": Brightness(np.zeros((0, 4), np.float32))}, "(time, environment, ...)"),
        ({"states": Brightness(np.float32(1)), "index": None}, "(time, ...)"),
    ],
)
def test_what_is_wrong_is_named(changed, told, tmp_path):
    options = {"states": states(Glow()), "path": "glow.mp4", **changed}
    with pytest.raises(af.OptionError, match=told.replace("(", r"\(").replace(")", r"\)")):
        video(Glow, options.pop("states"), tmp_path / options.pop("path"), **options)
    assert not list(tmp_path.iterdir())


class Shrinking(Glow):
    def render(self, state, index):
        return super().render(state, index)[: 33 - int(index > 5)]


class Failing(Glow):
    def render(self, state, index):
        if index > 5:
            raise RuntimeError("no brush")
        return super().render(state, index)


@pytest.mark.parametrize("env", [Shrinking, Failing])
def test_a_failure_leaves_the_file_that_was_there(env, tmp_path):
    path = tmp_path / "glow.mp4"
    path.write_text("before")
    with pytest.raises((EnvResultError, RuntimeError), match=r"step 6|no brush"):
        video(env, states(Glow()), path)
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


class Pair(NamedTuple):
    x: object


def test_environments_without_images(tmp_path):
    class Unseen(Glow):
        render = FunctionalEnv.render

    with pytest.raises(NotImplementedError, match="Unseen cannot be rendered"):
        video(Unseen, Pair(np.zeros((3, 2))), tmp_path / "a.mp4")


@pytest.mark.parametrize("module", ["imageio.v3", "av", "rich.console"])
def test_missing_libraries_are_named(module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(af.OptionError, match=r"arrayferry\[video\]"):
        video(Glow, states(Glow()), tmp_path / "a.mp4")
