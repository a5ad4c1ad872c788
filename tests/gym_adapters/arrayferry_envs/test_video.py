"""Videos of agents."""

import sys

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from boxes import Plain
from envs import MODES, in_mode
from functional_envs import still
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
import arrayferry_gym
from arrayferry_envs import EnvResultError, FunctionalEnv, record, wrap
from arrayferry_gym.vector import NumpyToTorch
from arrayferry_gym.wrappers import kernels


class Glow(FunctionalEnv):
    """Each environment begins at its number, and becomes brighter. Its image has odd sides."""

    observation_space = spaces.Box(0.0, 1e6, (), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"gain": 8.0}
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def reset(self, xp, rng, n, params):
        return Plain(xp.arange(n, dtype=xp.float32))

    def step(self, xp, rng, state, action, params):
        return Plain(state.x + params["gain"]), 0.0, False

    def observe(self, xp, state, params):
        return state.x

    def render(self, state, index):
        assert isinstance(state.x, np.ndarray)
        return np.full((33, 47, 3), state.x[index], np.uint8)


def levels(path):
    """Return the brightness of each image, the size, and the rate."""
    plugin = "pillow" if path.suffix == ".gif" else "pyav"
    with imageio.imopen(path, "r", plugin=plugin) as file:
        images = file.read(index=...) if plugin == "pillow" else file.read()
        about = file.metadata(index=0) if plugin == "pillow" else file.metadata()
    rate = 1000 / about["duration"] if plugin == "pillow" else about["fps"]
    return images[..., :3].mean(axis=(1, 2, 3)), images.shape[1:3], rate


@pytest.mark.filterwarnings("ignore:os.fork")  # imageio-ffmpeg starts a process
@pytest.mark.parametrize("without", ["av", "imageio_ffmpeg"])
def test_an_mp4_is_written_with_what_is_installed(without, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, without, None)
    path = tmp_path / "glow.mp4"
    assert record(Glow(), still, path=path, num_steps=19, fps=12.5) == path
    monkeypatch.undo()
    found, size, rate = levels(path)
    np.testing.assert_allclose(found, np.arange(20) * 8, atol=4)
    assert rate == 12.5
    assert size == (34, 48)
    assert [x.name for x in tmp_path.iterdir()] == [path.name]


class Shrinking(Glow):
    def render(self, state, index):
        return super().render(state, index)[: 33 - int(state.x[index] > 40)]


class Failing(Glow):
    def render(self, state, index):
        if state.x[index] > 40:
            raise RuntimeError("no brush")
        return super().render(state, index)


@pytest.mark.parametrize("env", [Shrinking, Failing])
def test_a_failure_leaves_the_file_that_was_there(env, tmp_path):
    path = tmp_path / "glow.mp4"
    path.write_text("before")
    with pytest.raises((EnvResultError, RuntimeError), match=r"image 6|no brush"):
        record(env, still, path=path, num_steps=20)
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


MISSING = [
    (["imageio.v2"], "a video needs imageio"),
    (["av", "imageio_ffmpeg"], "an .mp4 also PyAV or imageio-ffmpeg"),
    (["rich.console"], "progress is shown by rich"),
]


@pytest.mark.parametrize(("missing", "words"), MISSING, ids=str)
def test_missing_libraries_are_named(missing, words, monkeypatch, tmp_path):
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(af.OptionError, match=rf"{words}.*'\.\[video\]'"):
        record(Glow(), still, path=tmp_path / "a.mp4", num_steps=2)


class Ends(Glow):
    """Ends after four steps."""

    max_episode_steps = 4


class Zero(torch.nn.Module):
    def forward(self, observation):
        assert type(observation) is torch.Tensor
        return torch.zeros(len(observation), dtype=torch.int64)


EPISODE = [0, 8, 16, 24, 32]


SHOWN = [
    Ends,
    wrap(Ends(), kernels.ClipReward(-1, 1)),
    Ends().make(render_mode="rgb_array"),
    arrayferry_gym.NumpyToTorch(Ends().make(render_mode="rgb_array")),
    Ends().make_vec(3, xp="jax", autoreset_mode="Disabled", render_mode="rgb_array"),
]


@pytest.mark.parametrize("policy", [Zero(), still])
@pytest.mark.parametrize("env", SHOWN)
def test_an_agent_is_shown(env, policy, tmp_path):
    xp = None if isinstance(policy, Zero) else "jax"
    path = record(env, policy, path=tmp_path / "agent.gif", episodes=2, policy_xp=xp)
    found, _, rate = levels(path)
    np.testing.assert_allclose(found, EPISODE * 2, atol=4)
    assert rate == 10


@MODES
def test_one_of_several_environments(mode, tmp_path):
    makes = [
        lambda gain=gain: Ends().make(render_mode="rgb_array", params={"gain": gain})
        for gain in (8.0, 32.0)
    ]
    adapter = NumpyToTorch(in_mode(makes, mode))
    path = record(adapter, Zero(), path=tmp_path / "agent.gif", index=1, episodes=2)
    first = [4 * x for x in EPISODE]
    shown = first[:-1] * 2 if mode is AutoresetMode.SAME_STEP else first * 2
    np.testing.assert_allclose(levels(path)[0], shown, atol=4)
    assert all(env.render() is not None for env in adapter.unwrapped.envs)  # which are open


def test_a_part_of_an_episode(tmp_path):
    path = record(Glow(), still, path=tmp_path / "agent.gif", num_steps=3)
    np.testing.assert_allclose(levels(path)[0], [0, 8, 16, 24], atol=4)


def test_images_of_other_forms_are_refused(tmp_path):
    env = Ends().make(render_mode="rgb_array")
    env.render = lambda: "drawn"
    with pytest.raises(EnvResultError, match="as image 0"):
        record(env, Zero(), path=tmp_path / "glow.mp4")


def test_a_reset_of_another_environment_repeats_no_image(tmp_path):
    class Uneven(gym.vector.VectorWrapper):
        """Ends the episodes of the second environment at each step."""

        def step(self, actions):
            observation, reward, terminated, *rest = self.env.step(actions)
            return observation, reward, terminated | [False, True], *rest

    envs = Uneven(Ends().make_vec(2, autoreset_mode="Disabled", render_mode="rgb_array"))
    path = record(envs, still, path=tmp_path / "glow.gif", policy_xp="numpy")
    assert levels(path)[0].round().tolist() == [0, 8, 16, 24, 32]
