"""Gymnasium's own wrappers inside and outside an adapter, as a page of the docs says."""

import os
import re
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from cases import quick_if
from gymnasium import spaces, wrappers

import arrayferry as af
import arrayferry_gym
from arrayferry_gym import ArrayConversion, vector

PAGE = Path(__file__).parents[3] / "docs/how-to/gymnasium-wrappers.md"
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
    return gym.make_vec("CartPole-v1", 3, "sync", render_mode="rgb_array", wrappers=inner)


def pendulums():
    return gym.make_vec("Pendulum-v1", num_envs=3, vectorization_mode="sync")


def many_pixels():
    return carts(wrappers.AddRenderObservation)


def many_timed():
    return carts(lambda env: wrappers.TimeAwareObservation(env, flatten=False))


def counted():
    return wrappers.vector.RecordEpisodeStatistics(carts())


MANY = {cart: carts, pendulum: pendulums, pixels: many_pixels, timed: many_timed}
ALSO = ("ClipAction", "ClipReward", "DtypeObservation", "FilterObservation", "FlattenObservation", "GrayscaleObservation",
        "HumanRendering", "NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics", "RecordVideo", "RescaleAction",
        "RescaleObservation", "ReshapeObservation", "ResizeObservation", "TransformAction", "TransformObservation", "TransformReward")  # fmt: skip
VECTOR = {name: (MANY[SINGLE[name][0]], SINGLE[name][1]) for name in ALSO}
VECTOR["DictInfoToList"] = counted, {}
for part in ("Action", "Observation", "Reward"):
    make, options = VECTOR[name := f"Transform{part}"]
    VECTOR[f"Vectorize{name}"] = make, {**options, "wrapper": getattr(wrappers, name)}
LIBRARIES = {"PyTorch": "torch", "JAX": "jax", "NumPy": "numpy"}
"""The libraries of agents, as the columns of the table are called."""
CASES = [("single", name) for name in SINGLE] + [("vector", name) for name in VECTOR]


def read_page():
    """Read what the page says, as {(kind, wrapper, library): what happens outside an adapter}."""
    cells = {}
    _, single, several = re.split(r"^### For .*$", PAGE.read_text(), flags=re.MULTILINE)
    for kind, text in (("single", single), ("vector", several)):
        rows = [
            (name, row)
            for names, row in re.findall(r"^\| (`.*`) \| (.*) \|$", text, re.MULTILINE)
            for name in re.findall(r"\w+", names)
        ]
        others = re.search(r"^All others work.*?\.$", text, re.MULTILINE | re.DOTALL)
        rows += [(name, "works | works | works") for name in re.findall(r"`(\w+)`", others[0])]
        for name, row in rows:
            for library, what in zip(LIBRARIES, row.split(" | "), strict=True):
                cells[kind, name, library] = what
    return cells


SAID = read_page()


def outcome(env, vectorised, library):
    """Run for some episodes with actions of a library. Tell whether all observations are of it."""
    observations = [env.reset(seed=1)[0]]
    for _ in range(40):
        action = af.convert(env.action_space.sample(), library, scalars="convert")
        observation, reward, ended, cut, info = env.step(action)
        observations.append(observation)
        if not vectorised and (ended or cut):
            observations.append(env.reset()[0])
    found = {af.backend_of(part).name for part in af.flatten(observations)[0]}
    if vectorised:
        found.add(af.backend_of(reward).name)
        for entry in info if isinstance(info, list) else ():
            assert isinstance(entry, dict)
    env.close()
    return "works" if found == {library} else "NumPy"


def attempt(make, vectorised, library):
    with warnings.catch_warnings(action="ignore"):
        try:
            return outcome(make(), vectorised, library)
        except Exception as error:
            return f"fails: {error!r}"


WRITES_INTO_ACTIONS = ("vector", "VectorizeTransformAction")
"""Arrays of JAX are read-only in NumPy, around Gymnasium's own adapter too, so this needs copies."""


def inside_and_outside(kind, name, library, folder):
    """Return what happens with a wrapper inside and outside of an adapter."""
    vectorised = kind == "vector"
    cases, module, adapter = (
        (VECTOR, wrappers.vector, vector.ArrayConversion)
        if vectorised
        else (SINGLE, wrappers, ArrayConversion)
    )
    wrapper = getattr(module, name, None)
    if wrapper is None:
        pytest.skip(f"this Gymnasium has no {name}")
    make, options = cases[name]
    options = {key: str(folder) if value == "FOLDER" else value for key, value in options.items()}

    def adapted(env):
        copy = True if (kind, name) == WRITES_INTO_ACTIONS else None
        return adapter(env, target_xp=library, copy=copy)

    return (
        attempt(lambda: adapted(wrapper(make(), **options)), vectorised, library),
        attempt(lambda: wrapper(adapted(make()), **options), vectorised, library),
    )


def test_the_page_names_every_wrapper():
    assert {(kind, name) for kind, name, _ in SAID} == set(CASES)
    for kind, module in (("single", wrappers), ("vector", wrappers.vector)):
        listed = {name for of, name in CASES if of == kind}
        assert set(module.__all__) - OURS - {"vector"} <= listed


OF_IMAGES = "GrayscaleObservation", "ResizeObservation", "AtariPreprocessing"
SLOW = "RecordVideo", "HumanRendering", *OF_IMAGES


@pytest.mark.parametrize("library", quick_if(LIBRARIES, "PyTorch".__eq__))
@pytest.mark.parametrize(("kind", "name"), quick_if(CASES, lambda case: case[1] not in SLOW))
def test_inside_and_outside(kind, name, library, tmp_path):
    if name == "DictInfoToList" and gym.__version__ < "1.2":
        pytest.skip("in this Gymnasium it fails with RecordEpisodeStatistics on its own")
    inside, outside = inside_and_outside(kind, name, LIBRARIES[library], tmp_path)
    assert inside == "works"
    assert outside.partition(":")[0] == SAID[kind, name, library], outside


def test_a_wrapper_of_actions_works_where_no_reset_is_needed():
    class Echoes(gym.Env):
        observation_space = action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            return action, 0.0, False, False, {}

    env = arrayferry_gym.wrappers.ClipAction(Echoes())
    assert env.step(np.array([5, -0.5], np.float32))[0].tolist() == [1.0, -0.5]
