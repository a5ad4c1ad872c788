"""`torch.compile` calls environments as they are."""

import gymnasium as gym
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import arrayferry_gym.wrappers as single
from arrayferry_envs import CartPole, evaluate, make_vec, wrap
from arrayferry_gym import NumpyToTorch
from arrayferry_gym.vector import ArrayConversion
from arrayferry_gym.vector import NumpyToTorch as VectorNumpyToTorch
from arrayferry_gym.wrappers import vector

ONE, TWO = torch.tensor(1), torch.tensor([1, 0])
ENVS = {
    "adapter": lambda: (NumpyToTorch(gym.make("CartPole-v1")), ONE),
    "vector adapter": lambda: (VectorNumpyToTorch(gym.make_vec("arrayferry/CartPole-v0", 2)), TWO),
    "served": lambda: (CartPole().make_vec(2, xp="torch"), TWO),
    "served single": lambda: (CartPole().make(xp="torch"), ONE),
    "JAX": lambda: (ArrayConversion(CartPole().make_vec(2, xp="jax"), target_xp="torch"), TWO),
    "wrapper": lambda: (single.RescaleObservation(NumpyToTorch(gym.make("MountainCar-v0")), 0, 1), ONE),
    "vector wrapper": lambda: (vector.ClipReward(CartPole().make_vec(2, xp="torch"), 0, 1), TWO),
    "wrap": lambda: (
        wrap(CartPole(), single.kernels.ClipReward(0, 1)).make_vec(2, xp="torch"),
        TWO,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENVS)
def test_steps_and_resets_are_called_uncompiled(name):
    env, action = ENVS[name]()
    torch._dynamo.reset()
    counter = CompileCounter()
    reset = torch.compile(lambda x: env.reset(seed=3), backend=counter)
    step = torch.compile(lambda x: env.step(x), backend=counter)
    found = reset(action)[0], step(action)[0]
    expected = env.reset(seed=3)[0], env.step(action)[0]
    assert str(found) == str(expected)
    assert counter.frame_count == 0
    env.close()


CALLS = {
    "make_vec": lambda x: make_vec("gymnasium/CartPole-v1", 2, xp="torch").reset(seed=1)[0],
    "its method": lambda x: CartPole().make_vec(2, xp="torch").reset(seed=1)[0] + x,
    "single": lambda x: CartPole().make(xp="torch").reset(seed=1)[0] + x,
    "adapter": lambda x: NumpyToTorch(gym.make("CartPole-v1")).reset(seed=1)[0] + x,
    "evaluate": lambda x: evaluate(
        CartPole(), lambda params, obs, key: ((obs[:, 2] > 0).long(), ()), policy_xp="torch", num_envs=2, key=1
    ).returns,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_environments_are_made_and_evaluated_uncompiled(name):
    if name == "make_vec":
        pytest.importorskip("arrayferry_suites")
    torch._dynamo.reset()
    x = torch.zeros(4)
    expected = CALLS[name](x)
    found = torch.compile(CALLS[name], backend=CompileCounter())(x)
    assert str(found) == str(expected)
