"""Environments that are saved to files, and served where JAX is not installed."""

import copy
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import array_api_strict
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from functional_envs import Count
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from trajectories import PUSHES, assert_same, walked

import arrayferry as af
from arrayferry_envs import (
    CartPole,
    FunctionalEnv,
    Pendulum,
    UnknownEnvError,
    make,
    make_vec,
    repeat_action,
    with_seeds,
    wrap,
)
from arrayferry_envs._contract.plain_spaces import space_in_json, space_of_json
from arrayferry_gym.wrappers import kernels, vector
from arrayferry_translate import ProgramError, read_all, translate

pytestmark = pytest.mark.assumes_other("rbg")  # whose bits are not translated

MODES = "NextStep", "SameStep", "Disabled"
SPACES = {
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "half": spaces.Box(np.float32([0, -np.inf]), np.float32([np.inf, 0.1])),
    "bytes": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    "half precision": spaces.Box(-1, 1, (), np.float16),
    "choice": spaces.Discrete(3, start=-1),
    "narrow choice": spaces.Discrete(3, dtype=np.int32),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -2]]),
    "bits": spaces.MultiBinary((2, 2)),
    "tree": spaces.Dict(
        {
            "b": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))]),
            "a": spaces.MultiBinary(3),
        }
    ),
}


class Shows(FunctionalEnv):
    """Has any spaces, and observes ones."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        return state + 1, state, state > 3

    def observe(self, xp, state, params):
        def ones(space):
            if isinstance(space, spaces.Dict):
                return {key: ones(part) for key, part in space.items()}
            if isinstance(space, spaces.Tuple):
                return tuple(map(ones, space))
            dtype = jax.dtypes.canonicalize_dtype(space.dtype)
            return xp.ones((len(state), *space.shape), dtype=dtype)

        return ones(self.observation_space)


def saved(env, path, count=4, **options):
    """Save translated environments, and return the path as text."""
    env.make_vec(count, translate=True, **options).save(path)
    return str(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of four CartPoles."""
    return saved(CartPole(), tmp_path_factory.mktemp("saved") / "cartpole.afp")


@pytest.mark.parametrize(
    "xp", ["numpy", "torch", "jax", array_api_strict], ids=["numpy", "torch", "jax", "strict"]
)
@pytest.mark.parametrize("mode", MODES)
def test_a_saved_trajectory_is_that_of_jax(tmp_path, xp, mode):
    options = {"autoreset_mode": mode, "max_episode_steps": 7}
    envs = make_vec(saved(CartPole(), tmp_path / "x.afp", **options), 4, xp=xp)
    theirs = CartPole().make_vec(4, xp="jax", **options)
    steps = 6 if mode == "Disabled" else 20
    for seed in (3, 2**40, [1, 2, 3, 2**35]):
        assert_same(walked(envs, steps, seed=seed), walked(theirs, steps, seed=seed))
        assert_same(walked(envs, 2, seed=None), walked(theirs, 2, seed=None))
    assert envs.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert envs.single_observation_space.shape == (4,)
    assert not np.array_equal(envs.reset()[0], envs.reset()[0])


def test_masks_of_resets(path):
    ours, theirs = make_vec(path, 4, xp="torch"), CartPole().make_vec(4, xp="jax")
    options = {"reset_mask": [True, False, False, True]}
    for given in (options, None, options, options):  # the first resets all
        assert_same(ours.reset(seed=1, options=given), theirs.reset(seed=1, options=given))
        assert_same(ours.step(PUSHES[0]), theirs.step(PUSHES[0]))
    assert_same(ours.reset(options=options), theirs.reset(options=options))
    with pytest.raises(af.OptionError, match=r"no option 'state'.*reset_mask"):
        ours.reset(options={"state": 1})


@pytest.mark.parametrize("mode", MODES[:2])
def test_kernels_and_what_they_tell(tmp_path, mode):
    around = (
        kernels.NormalizeObservation(),
        kernels.StickyAction(0.5),
        kernels.RecordEpisodeStatistics(),
    )
    env, options = wrap(CartPole(), *around), {"autoreset_mode": mode, "max_episode_steps": 5}
    envs = make_vec(saved(env, tmp_path / "x.afp", **options), 4, xp="torch")
    for seed in (3, [1, 2, 3, 4]):
        results = walked(envs, 12, seed=seed)
        assert_same(results, walked(env.make_vec(4, xp="jax", **options), 12, seed=seed))
        assert ["episode" in result[4] for result in results[1:6]] == [False] * 4 + [True]
        envs = make_vec(str(tmp_path / "x.afp"), 4, xp="torch")


def test_infos_and_rewards_of_others(tmp_path):
    envs = make_vec(saved(Count(), tmp_path / "x.afp"), 4, xp="torch")
    assert_same(walked(envs), walked(Count().make_vec(4, xp="jax")))
    forced = make_vec(saved(Pendulum(), tmp_path / "y.afp", params={"gravity": 5.0}), 4)
    theirs = Pendulum().make_vec(4, xp="jax", params={"gravity": 5.0})
    actions = np.full((4, 1), 9.0)  # clipped
    for envs in (forced, theirs):
        envs.reset(seed=1)
    assert_same(forced.step(actions), theirs.step(actions))


def begun(**options):
    """Return environments that have taken a step, with other parameters. Files have no states."""
    envs = CartPole().make_vec(4, **options)
    envs.reset(seed=9, options={"params": {"gravity": np.float32([9, 8, 7, 6])}})
    envs.step(PUSHES[0])
    return envs


MADE = {
    "levels": lambda **options: with_seeds(CartPole(), range(9)).make_vec(
        4, max_episode_steps=8, **options
    ),
    "repeated actions": lambda **options: repeat_action(CartPole(), 2).make_vec(4, **options),
    "begun, with other parameters": begun,
}


@pytest.mark.parametrize("name", MADE)
def test_environments_that_are_made_in_other_ways(tmp_path, name):
    MADE[name](translate=True).save(tmp_path / "x.afp")
    assert_same(
        walked(make_vec(str(tmp_path / "x.afp"), 4, xp="torch"), 20),
        walked(MADE[name](xp="jax"), 20),
    )


@pytest.mark.parametrize("name", SPACES)
def test_spaces_of_all_kinds(tmp_path, name):
    space = SPACES[name]
    envs = Shows(space, space).make_vec(2, translate=True)
    envs.save(tmp_path / "x.afp")
    again = make_vec(str(tmp_path / "x.afp"), 2)
    for key in (
        "observation_space",
        "action_space",
        "single_observation_space",
        "single_action_space",
    ):
        assert getattr(again, key) == getattr(envs, key)
    again.reset(seed=1)
    again.step(again.action_space.sample())


def test_other_spaces_are_refused_before():
    text = Shows(spaces.Text(3), spaces.Discrete(2))
    with pytest.raises(Exception, match="not arrays of one shape"):
        text.make_vec(2, translate=True)


WITHOUT_JAX = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = None
import pickle, torch
from arrayferry_envs import make_vec
envs = make_vec(sys.argv[1], 4, xp="torch")
observation, _ = envs.reset(seed=3)
envs = pickle.loads(pickle.dumps(envs))
result = envs.step(torch.tensor([0, 1, 0, 1]))
envs.reset(seed=[1, 2, 3, 2**40], options={"reset_mask": [True, False, True, False]})
print(observation.tolist(), result[0].tolist())
"""


def test_it_needs_no_jax(path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_JAX, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = CartPole().make_vec(4, xp="jax")
    expected = [theirs.reset(seed=3)[0], theirs.step(np.array([0, 1, 0, 1]))[0]]
    given = json.loads("[" + done.stdout.strip().replace("]] [[", "]], [[") + "]")
    np.testing.assert_allclose(given, np.stack(expected), rtol=1e-4, atol=1e-5)


def test_what_was_saved_cannot_be_changed(path):
    for options, words in (
        (
            {"num_envs": 3},
            "num_envs=3, but .*cartpole.afp was saved with num_envs=4. Pass num_envs=4",
        ),
        (
            {"autoreset_mode": "SameStep"},
            "autoreset_mode='SameStep', but .* saved with autoreset_mode='NextStep'",
        ),
        ({"max_episode_steps": 7}, "max_episode_steps=7, but .* saved with max_episode_steps=500"),
        (
            {"max_episode_steps": None},
            "max_episode_steps=None, but .* saved with max_episode_steps=500",
        ),
        ({"translate": False}, "translate=False, but .* saved with translate=True"),
        ({"differentiable": True}, "differentiable was passed, .*but no gradients"),
        ({"seeds": 5}, "seeds was passed, but saved environments have no such option"),
        (
            {"params": {"gravity": 1.0}},
            "params was passed, but saved environments have no such option",
        ),
        ({"acts": False}, "acts was passed, but saved environments have no such option"),
        ({"max_episode_steps": np.array([500, 500])}, r"max_episode_steps=array.* is not valid"),
        ({"check_actions": "strikt"}, "check_actions='strikt' is not valid. Pass one of 'fit'"),
        ({"xp": "dask"}, "computed on demand, so the states of environments would never"),
    ):
        with pytest.raises(af.OptionError, match=words):
            make_vec(path, **{"num_envs": 4, **options})
    assert make_vec(path, 4, autoreset_mode="NextStep", max_episode_steps=500, translate=True)
    with pytest.raises(UnknownEnvError, match=r"there is no suite|names no suite"):
        make(path)


def test_the_mode_is_that_of_the_file(tmp_path):
    same = saved(CartPole(), tmp_path / "x.afp", autoreset_mode="SameStep")
    for options in (
        {},
        {"autoreset_mode": "SAME_STEP"},
        {"autoreset_mode": AutoresetMode.SAME_STEP},
    ):
        envs = make_vec(same, 4, **options)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    for mode in ("NextStep", "NEXT_STEP", AutoresetMode.NEXT_STEP):
        with pytest.raises(af.OptionError, match="saved with autoreset_mode='SameStep'"):
            make_vec(same, 4, autoreset_mode=mode)


def test_what_cannot_be_saved(tmp_path):
    envs = CartPole().make_vec(4)
    with pytest.raises(af.OptionError, match=r"end the name in .afp"):
        envs.save(tmp_path / "x.afp")
    for name in ("x", "x.npz", "afp"):
        with pytest.raises(af.OptionError, match=r"end the name in .afp"):
            CartPole().make_vec(4, translate=True).save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_damaged_newer_and_other_files(path, tmp_path):
    other = tmp_path / "x.afp"
    with pytest.raises(FileNotFoundError, match=r"x.afp"):
        make_vec(str(other), 4)
    content = Path(path).read_bytes()
    for wrong in (
        b"",
        b"text",
        content[: len(content) // 2],
        content[:200] + b"\xff" * 20 + content[220:],
    ):
        other.write_bytes(wrong)
        with pytest.raises(ProgramError, match="contains no program, or is damaged"):
            make_vec(str(other), 4)
    translate(jnp.cumsum, "numpy").program(np.ones(3, np.float32)).save(other)
    with pytest.raises(ProgramError, match=r"contains no environments.*make_vec"):
        make_vec(str(other), 4)

    def changed(**parts):
        with zipfile.ZipFile(path) as before, zipfile.ZipFile(other, "w") as after:
            for name in before.namelist():
                text = before.read(name)
                after.writestr(
                    name,
                    json.dumps({**json.loads(text), **parts}) if name == "program.json" else text,
                )

    changed(format=99)
    with pytest.raises(ProgramError, match=r"has the format 99.*Upgrade arrayferry"):
        make_vec(str(other), 4)
    about = read_all(path)[1]
    for wrong in (
        [], None, {}, {**about, "observation_space": ["Graph", 1]}, {**about, "action_space": []},
        {**about, "autoreset_mode": "Never"}, {**about, "action_space": ["Discrete", 2, 0, "int6"]},
    ):  # fmt: skip
        changed(about=wrong)
        with pytest.raises(ProgramError, match="contains no environments"):
            make_vec(str(other), 4)


def test_two_loads_are_independent(path):
    first, second = make_vec(path, 4), make_vec(path, 4)
    theirs = make_vec(path, 4)
    expected = walked(theirs)
    result = first.reset(seed=3)
    for action, wanted in zip(PUSHES, expected, strict=False):
        assert_same(result, wanted)
        second.reset(seed=1)
        for x in af.flatten(result)[0]:
            x[...] = 1  # writing into results changes nothing
        result = first.step(action)
        second.step(1 - action)


def test_copies_of_saved_environments_go_on_by_themselves(path):
    for xp in ("numpy", "torch", "jax"):
        envs = make_vec(path, 4, xp=xp)
        for number in range(3):
            copies = [envs, copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))]
            if number == 0:
                results = [each.reset(seed=4) for each in copies]
            else:
                results = [each.step(PUSHES[number]) for each in copies]
            for each in results[1:]:
                assert_same(each, results[0])


def test_learnt_statistics_are_loaded_into_a_wrapper(tmp_path):
    learning = wrap(CartPole(), kernels.NormalizeObservation()).make_vec(4, translate=True)
    walked(learning, 20)
    envs = vector.NormalizeObservation(make_vec(saved(CartPole(), tmp_path / "x.afp"), 4))
    envs.load_state_dict(learning.state_dict())
    assert_same(walked(envs, 5), walked(learning, 5))


READ = """
import pickle
from arrayferry_envs import make_vec
with open({path!r}, "rb") as file:
    print(pickle.load(file).step([0, 1, 0, 1])[0].tolist())
"""


def test_pickles_of_environments_with_kernels(tmp_path, run_python):
    env = wrap(CartPole(), kernels.NormalizeObservation(), kernels.RecordEpisodeStatistics())
    envs = make_vec(saved(env, tmp_path / "x.afp"), 4)
    assert_same(pickle.loads(pickle.dumps(envs)).reset(seed=4), envs.reset(seed=4))
    envs.step([1, 1, 0, 0])
    (tmp_path / "envs").write_bytes(pickle.dumps(envs))
    again = json.loads(run_python(READ.format(path=str(tmp_path / "envs"))))
    assert again == envs.step([0, 1, 0, 1])[0].tolist()


def test_actions_and_closing(path):
    envs = make_vec(path, 4, xp="torch", check_actions="strict")
    for _ in range(2):
        with pytest.raises(gym.error.ResetNeeded):
            envs.step(PUSHES[0])
        envs.reset(seed=1)
        with pytest.raises(af.ConversionError, match="out of its range"):
            envs.step([0, 1, 2, 0])
        assert envs.step(torch.tensor([0, 1, 0, 1]))[0].shape == (4, 4)
        envs.close()
    assert repr(envs) == "SavedVectorEnv('CartPole', num_envs=4, xp='torch')"


def test_wrappers_know_the_step_limit(path):
    envs = vector.TimeAwareObservation(make_vec(path, 4), normalize_time=True)
    envs.reset(seed=1)
    assert envs.step(PUSHES[0])[0][:, -1] == pytest.approx(1 / 500)


DEVICES = """
import os, sys
import jax, numpy as np
import arrayferry as af
from arrayferry_envs import CartPole, make_vec, wrap
from arrayferry_envs._contract.plain_spaces import space_in_json, space_of_json
from arrayferry_gym.wrappers import kernels
from test_translated import Still

device = jax.devices()[1]
options = {"xp": "jax", "device": device}
path = os.path.join(sys.argv[1], "x.afp")
for env in (CartPole(), Still(), wrap(CartPole(), kernels.NormalizeObservation())):
    translated = env.make_vec(4, translate=True, **options)
    translated.save(path)
    for envs in (translated, make_vec(path, 4, **options)):
        for result in (envs.reset(seed=1), envs.step(np.ones(4, int)), envs.reset(options={"reset_mask": [True] * 4})):
            assert {x.device for x in af.flatten(result)[0]} == {device}
"""


def test_results_are_on_the_device(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-W", "ignore", "-c", DEVICES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,), np.float16),
        spaces.Box(np.float64([-np.inf, 0]), np.float64([0.1, np.inf]), dtype=np.float64),
        spaces.Box(0, 2**64 - 1, (1, 0), np.uint64), spaces.Box(-(2**63), 2**63 - 1, (), np.int64),
        spaces.Discrete(3, start=-2), spaces.MultiDiscrete([2, 3], start=[1, -1], dtype=np.int32),
        spaces.MultiBinary([2, 3]), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Dict({})])),
    ],
)  # fmt: skip
def test_spaces_in_json_are_the_same(space):
    given = json.loads(json.dumps(space_in_json(space), allow_nan=False))
    assert space_of_json(given) == space
    assert space_of_json(given).dtype == space.dtype
