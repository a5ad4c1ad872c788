"""Functional environments of other libraries, stepped by NumPy and PyTorch: `make bridges`. `make translated` tries more."""

import subprocess
import sys

import numpy as np
import pytest

import arrayferry as af
from arrayferry_envs import make, make_vec
from arrayferry_translate import TranslationError

pytestmark = pytest.mark.filterwarnings("ignore")

IDS = [
    "gymnax/Breakout-MinAtar",
    "gymnax/MountainCarContinuous-v0",
    "gymnax/Acrobot-v1",
    "pgx/tic_tac_toe",
    "pgx/connect_four",
    "pgx/2048",
    "jumanji/Snake-v1",
    "navix/Navix-DoorKey-5x5-v0",
]
COUNT, STEPS = 8, 30


def actions(envs, observation, rng):
    """Return actions at random, among those that are allowed."""
    if not isinstance(observation, dict) or "action_mask" not in observation:
        return envs.action_space.sample()
    mask = np.asarray(observation["action_mask"])
    if mask.ndim != 2:
        return envs.action_space.sample()
    return np.where(mask, rng.random(mask.shape), -1).argmax(1)


def assert_same(given, expected):
    """Compare results: all but floats are equal, and floats are close."""
    pairs = (af.flatten(af.convert(tree, "numpy"))[0] for tree in (given, expected))
    for x, y in zip(*pairs, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        tolerance = 1e-4 if x.dtype.kind == "f" else 0
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("env_id", IDS)
def test_trajectories_are_those_of_jax(env_id):
    options = {"autoreset_mode": "SameStep", "max_episode_steps": 20}
    theirs = make_vec(env_id, COUNT, xp="jax", **options)
    ours = {
        xp: make_vec(env_id, COUNT, xp=xp, translate=True, **options) for xp in ("numpy", "torch")
    }
    expected = theirs.reset(seed=5)
    for envs in ours.values():
        assert_same(envs.reset(seed=5), expected)
    rng, ended = np.random.default_rng(0), 0
    ours["numpy"].action_space.seed(0)
    for _ in range(STEPS):
        action = actions(ours["numpy"], expected[0], rng)
        expected = theirs.step(action)
        for envs in ours.values():
            assert_same(envs.step(action), expected)
        ended += int((np.asarray(expected[2]) | np.asarray(expected[3])).sum())
    assert ended
    state = ours["torch"].state
    ours["torch"].state = state
    assert_same(ours["torch"].state.leaves, state.leaves)


def test_a_single_environment():
    ours, theirs = (
        make("gymnax/CartPole-v1", xp="torch", translate=True),
        make("gymnax/CartPole-v1", xp="jax"),
    )
    assert_same(ours.reset(seed=2), theirs.reset(seed=2))
    assert_same(ours.step(1), theirs.step(1))


WITHOUT_JAX = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = sys.modules["pgx"] = None
import numpy as np
from arrayferry_envs import make_vec
envs = make_vec(sys.argv[1], 8, xp="torch")
envs.reset(seed=5)
for action in np.load(sys.argv[2]):
    result = envs.step(action)
np.save(sys.argv[2], result[0]["observation"].numpy())
"""


def test_a_saved_game_needs_neither_jax_nor_its_library(tmp_path):
    path, file = str(tmp_path / "game.afp"), str(tmp_path / "actions.npy")
    make_vec("pgx/tic_tac_toe", COUNT, translate=True).save(path)
    moves = np.stack([np.full(COUNT, move) for move in (0, 4, 8, 2, 6, 3)])
    np.save(file, moves)
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_JAX, path, file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = make_vec("pgx/tic_tac_toe", COUNT, xp="jax")
    theirs.reset(seed=5)
    for move in moves:
        expected = theirs.step(move)
    np.testing.assert_array_equal(np.load(file), expected[0]["observation"])


def test_what_has_no_rule_is_refused_by_name():
    envs = make_vec("brax/ant", 2, translate=True)
    with pytest.raises(TranslationError, match=r"the primitive \w+ of .* cannot be translated"):
        envs.reset(seed=1)
