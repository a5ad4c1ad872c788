"""Mistakes that new users make, and the answers that they get: each says what to do."""

import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from boxes import DirectToTorch

import arrayferry as af
import arrayferry_gym
from arrayferry_gym import ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch, vector

X = np.arange(3.0)
T = torch.arange(3.0)


def cart():
    return gym.make("CartPole-v1")


def carts(mode="sync", **options):
    return gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, **options)


def step(env, *actions):
    env.reset(seed=1)
    for action in actions:
        env.step(action)


class NoParameters(torch.nn.Module):
    pass


MISTAKES = {
    # the target
    "a name that nobody has": (lambda: af.convert(X, "mxnet"), "install or write a plugin"),
    "the class of arrays as the target": (lambda: af.convert(X, torch.Tensor), "'torch'"),
    "an array as the target": (lambda: af.convert(X, T), "like="),
    "None as the target": (lambda: af.convert(X, None), 'such as "torch"'),
    "value and target in the wrong order": (lambda: af.convert("torch", X), "the value comes first"),
    "a module that is no library": (lambda: af.convert(X, sys), "sys"),
    "like the class of a module": (lambda: af.convert(X, like=torch.nn.Linear), "was given the class Linear"),
    "like a name": (lambda: af.convert(X, like="torch"), "contains no array|name"),
    "like a number": (lambda: af.convert(X, like=5), "array"),
    "a route from a wrong name": (lambda: af.route("nunpy", "torch"), "Did you mean 'numpy'"),
    # options
    "an option that there is not": (lambda: af.convert(X, "torch", dtype="float32"), "dtype"),
    "an option of a converter that there is not": (lambda: af.converter("torch", dvice="cpu"), "dvice"),
    "a second argument to a converter": (lambda: af.converter("torch")(X, "jax"), "argument"),
    # values
    "dates into PyTorch": (lambda: af.convert(np.array(["2020-01-01"], "M8[D]"), "torch"), "datetime64|view"),
    "a sparse tensor": (lambda: af.convert(T.to_sparse(), "numpy"), "to_dense"),
    # plugins
    "something else that is registered": (lambda: af.registry.register("boxes"), "Backend"),
    "a converter of a wrong cost": (lambda: af.registry.register(type("Direct", (DirectToTorch,), {"cost": "free"})()), "Set cost to"),
    # the environment
    "the name of an environment": (lambda: NumpyToTorch("CartPole-v1"), "gymnasium.make"),
    "a function that makes environments": (lambda: NumpyToTorch(cart), "call it"),
    "the class of an environment": (lambda: NumpyToTorch(gym.Env), "call it"),
    "a vector environment in a single adapter": (lambda: NumpyToTorch(carts()), "arrayferry_gym.vector"),
    "an environment in a vector adapter": (lambda: vector.NumpyToTorch(cart()), "arrayferry_gym.NumpyToTorch"),
    "a vector adapter for each environment": (lambda: carts(wrappers=[vector.NumpyToTorch]), "arrayferry_gym.NumpyToTorch"),
    "an adapter that there is not": (lambda: arrayferry_gym.NumpyToJax, "ArrayConversion\\(env"),
    "a vector adapter that there is not": (lambda: vector.TorchToNumpy, "ArrayConversion\\(env"),
    # options of adapters
    "to instead of target_xp": (lambda: ArrayConversion(cart(), to="torch"), "Write target_xp="),
    "target instead of target_xp": (lambda: ArrayConversion(cart(), target="torch"), "Write target_xp="),
    "device instead of target_device": (lambda: ArrayConversion(cart(), device="cpu"), "Write target_device="),
    "a letter wrong in an option": (lambda: NumpyToTorch(cart(), narowing="allow"), "Write narrowing="),
    "an option of vector adapters": (lambda: NumpyToTorch(cart(), reward_dtype="float32"), "NumpyToTorch has no option 'reward_dtype'. The options are"),
    "target_device instead of device": (lambda: NumpyToTorch(cart(), target_device="cpu"), "Write device="),
    "a target for NumpyToTorch": (lambda: NumpyToTorch(cart(), target_xp="jax"), "ArrayConversion\\(env, target_xp"),
    "an env_xp for JaxToNumpy": (lambda: JaxToNumpy(cart(), env_xp="numpy"), "ArrayConversion\\(env, env_xp"),
    "a target for the vector JaxToNumpy": (lambda: vector.JaxToNumpy(carts(), like=T), "ArrayConversion\\(env, like"),
    "a target of NumpyToTorch by another name": (lambda: NumpyToTorch(cart(), xp="jax"), "ArrayConversion\\(env, target_xp"),
    "target_device with a letter wrong": (lambda: NumpyToTorch(cart(), target_devic="cpu"), "Write device="),
    "convert_info as a number": (lambda: NumpyToTorch(cart(), convert_info=1), "Pass True or False"),
    "a module as a reward dtype": (lambda: vector.NumpyToTorch(carts(), reward_dtype=torch), '"float32"'),
    "an unknown target": (lambda: ArrayConversion(cart(), target_xp="toch"), "Did you mean 'torch'"),
    "an unknown library for infos": (lambda: NumpyToTorch(cart(), info_xp="nunpy"), "Did you mean 'numpy'"),
    "a GPU that there is not": (lambda: NumpyToTorch(cart(), device="cuda:9"), "cpu"),
    "narrowing of an adapter": (lambda: NumpyToTorch(cart(), narrowing="off"), "'checked', 'forbid', 'allow'"),
    "scalars of an adapter": (lambda: ArrayConversion(cart(), scalars="all"), "'keep', 'convert'"),
    "copy of an adapter": (lambda: JaxToTorch(cart(), copy="always"), "None, True, False"),
    "like the class of a policy": (lambda: ArrayConversion(cart(), like=torch.nn.Linear), "Pass an instance"),
    "like a policy without parameters": (lambda: ArrayConversion(cart(), like=NoParameters()), "target_xp"),
    "like and a target": (lambda: ArrayConversion(cart(), target_xp="torch", like=T), "together with target_xp"),
    "a reward dtype with a letter wrong": (lambda: vector.NumpyToTorch(carts(), reward_dtype="flot32"), '"float32"'),
    "a reward dtype that JAX lacks": (lambda: vector.ArrayConversion(carts(), target_xp="jax", reward_dtype="float64"), "float32"),
    # actions
    "no action": (lambda: step(vector.NumpyToTorch(carts()), None), "MultiDiscrete\\(\\[2 2"),
    "one action for a vector environment": (lambda: step(vector.NumpyToTorch(carts()), torch.tensor(1)), "shape \\(2,\\)"),
    "a step before the reset": (lambda: NumpyToTorch(cart()).step(torch.tensor(1)), "reset"),
}  # fmt: skip

WARNED = {
    "the target in the place of the environment's library": (
        lambda: ArrayConversion(cart(), "torch").reset(), "ArrayConversion\\(env, env_xp='numpy', target_xp='torch'\\)"),
    "JaxToNumpy for a NumPy environment": (lambda: JaxToNumpy(cart()).reset(), "'jax'.*'numpy'"),
    "NumpyToTorch for a JAX environment": (
        lambda: NumpyToTorch(gym.make("phys2d/CartPole-v1")).reset(), "'numpy'.*'jax'.*target_xp='torch'"),
    "an adapter around another": (lambda: NumpyToTorch(NumpyToTorch(cart())).reset(), "'numpy'.*'torch'"),
    "a library that is not the environment's": (lambda: ArrayConversion(cart(), env_xp="jax").reset(), "write ArrayConversion.*env_xp='numpy', target_xp='jax'"),
    "a vector adapter for the wrong library": (lambda: vector.JaxToTorch(carts()).reset(), "target_xp='torch'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_an_answer(mistake):
    make, answer = MISTAKES[mistake]
    with pytest.raises(Exception, match=answer) as error:
        make()
    text = str(error.value)
    assert 30 < len(text) < 700
    assert len(error.traceback) < 30


@pytest.mark.parametrize("mistake", WARNED)
def test_a_mistake_gets_a_warning(mistake):
    make, answer = WARNED[mistake]
    with pytest.warns(UserWarning, match=answer):
        make()


BRIDGES = [
    ("sb3", "stable_baselines3.common.vec_env", "stable-baselines3"),
    ("torchrl", "torchrl.envs", "torchrl"),
    ("tianshou", "tianshou.env", "tianshou"),
    ("rsl_rl", "rsl_rl.env", "rsl-rl-lib"),
    ("pettingzoo", "pettingzoo.utils.env", "pettingzoo"),
]


@pytest.mark.parametrize(("module", "needed", "package"), BRIDGES)
def test_a_bridge_says_what_to_install(monkeypatch, module, needed, package):
    monkeypatch.setitem(sys.modules, needed, None)
    monkeypatch.setitem(sys.modules, needed.partition(".")[0], None)
    monkeypatch.delitem(sys.modules, f"arrayferry_gym.{module}", raising=False)
    with pytest.raises(af.BackendUnavailableError, match=f"pip install {package}$") as error:
        importlib.import_module(f"arrayferry_gym.{module}")
    assert isinstance(error.value.__cause__, ImportError)


OTHERS = [
    ("stable_baselines3.common.vec_env", "wrapper_class"), ("pettingzoo.utils.env", "ParallelConversion"),
    ("gymnax.environments", "from_env"), ("brax.envs.base", "from_env"), ("pgx.chess", "make_vec"),
    ("torchrl.envs", "GymWrapper"), ("gym", "Shimmy"),
]  # fmt: skip


@pytest.mark.parametrize(("package", "remedy"), OTHERS)
def test_environments_of_other_projects_get_an_answer(package, remedy):
    other = type("Env", (), {"__module__": package})()
    for adapter in (NumpyToTorch, vector.NumpyToTorch):
        with pytest.raises(TypeError, match=f"an environment of Gymnasium.*{remedy}"):
            adapter(other)
