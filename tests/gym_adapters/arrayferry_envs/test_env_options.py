"""Options of environments mean the same in all that this package makes: adapted and functional."""

from types import SimpleNamespace

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from envs import EVERY_MODE, make_vec
from gymnasium.vector import AutoresetMode
from remote_workers import CARTPOLE

import arrayferry as af
from arrayferry._utilities.options import is_whole
from arrayferry_envs import CartPole, extending
from arrayferry_gym import ArrayConversion, vector
from arrayferry_gym.wrappers._driver import step_limit

N = 3


def adapted(mode=AutoresetMode.NEXT_STEP):
    return vector.ArrayConversion(make_vec(N, mode), target_xp="torch")


def functional(mode=AutoresetMode.NEXT_STEP):
    return CartPole().make_vec(N, xp="torch", autoreset_mode=mode)


ALL = pytest.mark.parametrize("make", [adapted, functional])


def starts(make, seed):
    return make().reset(seed=seed)[0]


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_autoreset_modes_by_value_and_by_name(mode):
    for given in (mode, mode.value, mode.name, mode.name.lower()):
        envs = functional(given)
        assert envs.autoreset_mode is mode
        assert envs.metadata["autoreset_mode"] is mode
        envs.close()


ONES = (np.int64(1), np.asarray(1), torch.tensor(1), True)
LISTS = (
    (3, 4, 5), range(3, 6), np.arange(3, 6), torch.arange(3, 6), [np.int32(3), 4, torch.tensor(5)],
)  # fmt: skip


@ALL
@pytest.mark.parametrize(("same", "seeds"), [(1, ONES), ([3, 4, 5], LISTS)])
def test_seeds_as_any_whole_numbers(make, same, seeds):
    expected = starts(make, same)
    for seed in seeds:
        assert torch.equal(starts(make, seed), expected)
    assert starts(make, [3, None, 5]).shape == (N, 4)


@ALL
def test_masks_of_resets(make):
    mask = [False, True, False]
    envs = make()
    for given in (mask, tuple(mask), np.array(mask), torch.tensor(mask)):
        options = {"reset_mask": given}
        before, _ = envs.reset(seed=1)
        after, _ = envs.reset(options=options)
        assert (after != before).any(dim=1).tolist() == mask
        assert options == {"reset_mask": given} or make is adapted  # Gymnasium takes it out
    envs.close()


@pytest.mark.parametrize("mask", [[False] * N, np.zeros(N, bool)], ids=["list", "numpy"])
def test_a_mask_that_is_false_everywhere_resets_nothing(mask):
    envs = functional()
    before, _ = envs.reset(seed=1)
    for _ in range(2):
        after, infos = envs.reset(options={"reset_mask": mask})
        assert torch.equal(after, before)
        assert infos == {}
    stepped = envs.step(torch.zeros(N, dtype=torch.int64))[0]
    after, _ = envs.reset(options={"reset_mask": mask})
    assert torch.equal(after, stepped)
    envs.close()


@pytest.mark.parametrize(
    "make", [lambda: ArrayConversion(CARTPOLE(), target_xp="numpy"), lambda: CartPole().make()]
)
def test_seeds_of_single_environments(make):
    env = make()
    first, _ = env.reset(seed=1)
    for seed in (np.int64(1), torch.tensor(1), True):
        assert np.array_equal(env.reset(seed=seed)[0], first)
    assert env.unwrapped.np_random_seed == 1
    for seed in (-1, 1.5, "1"):
        with pytest.raises((af.OptionError, gym.error.Error)):
            env.reset(seed=seed)
    env.close()


def test_limits_of_other_libraries_are_whole_numbers_of_any_type():
    whole = (9, 9.0, np.int64(9), np.uint8(9), np.array(9), torch.tensor(9), jnp.asarray(9.0))
    assert all(map(is_whole, whole))
    others = (None, "9", 0.5, float("inf"), np.nan, np.ones(2), [9], jax.eval_shape(lambda: 9))
    assert not any(map(is_whole, others))
    for limit in whole[2:]:
        env = gym.make("CartPole-v1", max_episode_steps=None)
        env.unwrapped.spec = SimpleNamespace(max_episode_steps=limit)
        assert step_limit(env.unwrapped) == 9


REFUSED = {
    "first_carry": (CartPole(), None, None, 0, 2), "library_of": ("mine", None, None, 0, None),
    "policy_rows": (np.zeros(3), 2), "usable": (SimpleNamespace(problem=lambda: af.OptionError("no")),),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_packages_pass_is_checked(name):
    options = {"functional": False} if name == "library_of" else {}
    with pytest.raises(af.OptionError):
        getattr(extending, name)(*REFUSED[name], **options)
