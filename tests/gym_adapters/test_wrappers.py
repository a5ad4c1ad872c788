"""Gymnasium's own wrappers inside and outside an adapter, as the table in the docs says."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import wrappers

from arrayferry_gym import NumpyToTorch, vector

DOCS = Path(__file__).parents[2] / "docs" / "gymnasium.md"
OURS = {"ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"}
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def cart(mode="rgb_array"):
    return gym.make("CartPole-v1", render_mode=mode)


def pendulum():
    return gym.make("Pendulum-v1")


def pixels():
    return wrappers.AddRenderObservation(cart())


def timed():
    return wrappers.TimeAwareObservation(cart(), flatten=False)


def atari():
    import ale_py

    gym.register_envs(ale_py)
    return gym.make("ALE/Pong-v5", frameskip=1)


def same(x):
    return x


SINGLE = {
    "AddRenderObservation": (cart, {}), "AddWhiteNoise": (pixels, {"probability_of_noise_per_pixel": 0.1}),
    "AtariPreprocessing": (atari, {"noop_max": 0}), "Autoreset": (cart, {}), "ClipAction": (pendulum, {}),
    "ClipReward": (cart, {"min_reward": 0.0, "max_reward": 0.5}), "DelayObservation": (cart, {"delay": 2}),
    "DiscretizeAction": (pendulum, {"bins": 5}), "DiscretizeObservation": (pendulum, {"bins": 5}),
    "DtypeObservation": (cart, {"dtype": np.float64}), "FilterObservation": (timed, {"filter_keys": ["obs"]}),
    "FlattenObservation": (timed, {}), "FrameStackObservation": (cart, {"stack_size": 3}),
    "GrayscaleObservation": (pixels, {}), "HumanRendering": (cart, {}), "MaxAndSkipObservation": (pixels, {"skip": 2}),
    "NormalizeObservation": (cart, {}), "NormalizeReward": (cart, {}),
    "ObstructView": (pixels, {"obstructed_pixels_ratio": 0.1, "obstruction_width": 4}),
    "OrderEnforcing": (cart, {}), "PassiveEnvChecker": (cart, {}), "RecordEpisodeStatistics": (cart, {}),
    "RecordVideo": (cart, {"video_folder": "FOLDER", "fps": 10}), "RenderCollection": (cart, {}),
    "RepeatAction": (cart, {"num_repeats": 2}), "RescaleAction": (pendulum, {"min_action": -1.0, "max_action": 1.0}),
    "RescaleObservation": (pendulum, {"min_obs": -1.0, "max_obs": 1.0}), "ReshapeObservation": (cart, {"shape": (2, 2)}),
    "ResizeObservation": (pixels, {"shape": (20, 20)}), "StickyAction": (cart, {"repeat_action_probability": 0.5}),
    "TimeAwareObservation": (cart, {}), "TimeLimit": (cart, {"max_episode_steps": 3}),
    "TransformAction": (pendulum, {"func": same, "action_space": None}),
    "TransformObservation": (cart, {"func": same, "observation_space": None}), "TransformReward": (cart, {"func": same}),
}  # fmt: skip


def carts(*inner):
    return gym.make_vec(
        "CartPole-v1",
        num_envs=3,
        vectorization_mode="sync",
        render_mode="rgb_array",
        wrappers=inner,
    )


def pendulums():
    return gym.make_vec("Pendulum-v1", num_envs=3, vectorization_mode="sync")


def many_pixels():
    return carts(wrappers.AddRenderObservation)


def many_timed():
    return carts(lambda env: wrappers.TimeAwareObservation(env, flatten=False))


def counted():
    return wrappers.vector.RecordEpisodeStatistics(carts())


VECTOR = {
    "ClipAction": (pendulums, {}), "ClipReward": (carts, {"min_reward": 0.0, "max_reward": 0.5}),
    "DictInfoToList": (counted, {}), "DtypeObservation": (carts, {"dtype": np.float64}),
    "FilterObservation": (many_timed, {"filter_keys": ["obs"]}), "FlattenObservation": (many_timed, {}),
    "GrayscaleObservation": (many_pixels, {}), "HumanRendering": (carts, {}), "NormalizeObservation": (carts, {}),
    "NormalizeReward": (carts, {}), "RecordEpisodeStatistics": (carts, {}),
    "RecordVideo": (carts, {"video_folder": "FOLDER", "fps": 10}),
    "RescaleAction": (pendulums, {"min_action": -1.0, "max_action": 1.0}),
    "RescaleObservation": (pendulums, {"min_obs": -1.0, "max_obs": 1.0}), "ReshapeObservation": (carts, {"shape": (2, 2)}),
    "ResizeObservation": (many_pixels, {"shape": (20, 20)}), "TransformAction": (pendulums, {"func": same}),
    "TransformObservation": (carts, {"func": same}), "TransformReward": (carts, {"func": same}),
    "VectorizeTransformAction": (pendulums, {"wrapper": wrappers.TransformAction, "func": same, "action_space": None}),
    "VectorizeTransformObservation": (
        carts, {"wrapper": wrappers.TransformObservation, "func": same, "observation_space": None}),
    "VectorizeTransformReward": (carts, {"wrapper": wrappers.TransformReward, "func": same}),
}  # fmt: skip


def read_table():
    """Read which wrappers the docs list in each row, as {(kind, what happens outside): names}."""
    rows = {}
    for line in DOCS.read_text().splitlines():
        found = re.fullmatch(r"\| (single|vector) \| (works|NumPy|fails) \| (.*) \| .* \|", line)
        if found:
            rows[found[1], found[2]] = set(re.findall(r"`(\w+)`", found[3]))
    return rows


TABLE = read_table()


def outcome(env, vectorised):
    """Run for some episodes with PyTorch actions. Tell whether all observations are tensors."""
    observations, all_tensors = [env.reset(seed=1)[0]], True
    for _ in range(40):
        action = torch.as_tensor(env.action_space.sample())
        observation, reward, ended, cut, info = env.step(action)
        observations.append(observation)
        if not vectorised and (ended or cut):
            observations.append(env.reset()[0])
    for observation in observations:
        parts = observation.values() if isinstance(observation, dict) else [observation]
        all_tensors &= all(isinstance(part, torch.Tensor) for part in parts)
    if vectorised:
        all_tensors &= isinstance(reward, torch.Tensor)
        for entry in info if isinstance(info, list) else ():
            assert isinstance(entry, dict)
    env.close()
    return "works" if all_tensors else "NumPy"


def attempt(make, vectorised):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return outcome(make(), vectorised)
        except Exception as error:
            return f"fails: {error!r}"


def test_the_table_names_every_wrapper_once():
    for kind, module, cases in (
        ("single", wrappers, SINGLE),
        ("vector", wrappers.vector, VECTOR),
    ):
        rows = [TABLE[kind, what] for what in ("works", "NumPy", "fails") if (kind, what) in TABLE]
        listed = set().union(*rows)
        assert len(listed) == sum(map(len, rows))
        assert listed == set(cases)
        assert set(module.__all__) - OURS - {"vector"} <= listed


@pytest.mark.parametrize(
    ("kind", "name"), [("single", name) for name in SINGLE] + [("vector", name) for name in VECTOR]
)
def test_inside_and_outside(kind, name, tmp_path):
    vectorised = kind == "vector"
    cases, module, adapter = (
        (VECTOR, wrappers.vector, vector.NumpyToTorch)
        if vectorised
        else (SINGLE, wrappers, NumpyToTorch)
    )
    wrapper = getattr(module, name, None)
    if wrapper is None:
        pytest.skip(f"this Gymnasium has no {name}")
    if name == "DictInfoToList" and gym.__version__ < "1.2":
        pytest.skip("in this Gymnasium it fails with RecordEpisodeStatistics on its own")
    make, options = cases[name]
    options = {key: str(tmp_path) if value == "FOLDER" else value for key, value in options.items()}
    assert attempt(lambda: adapter(wrapper(make(), **options)), vectorised) == "works"
    found = attempt(lambda: wrapper(adapter(make()), **options), vectorised)
    expected = next(what for (of, what), names in TABLE.items() if of == kind and name in names)
    assert found.partition(":")[0] == expected, found
