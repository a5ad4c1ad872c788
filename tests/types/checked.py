"""What type checkers know of arrayferry. It is checked by `test_types.py`, and never run.

`# wrong` marks a line that must be an error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, assert_type

import dask.array as da
import gymnasium as gym
import jax
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from numpy.typing import NDArray

import arrayferry as af
import arrayferry_gym
from arrayferry.typing import Narrowing, Target
from arrayferry_cluster import Collector
from arrayferry_envs import (
    CartPole,
    Evaluation,
    FunctionalSingleEnv,
    FunctionalVectorEnv,
    Trajectory,
    evaluate,
    rollout,
)
from arrayferry_gym import vector

NumpyArray = np.ndarray[Any, np.dtype[Any]]


class State(NamedTuple):
    speed: torch.Tensor


class Named(gym.Env[dict[str, torch.Tensor], int]):
    pass


def arrays(
    plain: np.ndarray,
    floats: NDArray[np.float32],
    tensor: torch.Tensor,
    jaxed: jax.Array,
    lazy: da.Array,
) -> None:
    assert_type(af.convert(plain, "torch"), torch.Tensor)
    assert_type(af.convert(floats, "pytorch"), torch.Tensor)
    assert_type(af.convert(np.float64(1), "torch"), torch.Tensor)
    assert_type(af.convert(lazy, to="torch", copy=True), torch.Tensor)
    assert_type(af.convert(tensor, "numpy"), NumpyArray)
    assert_type(af.convert(tensor, "np"), NumpyArray)
    assert_type(af.convert(tensor, "jax", narrowing="allow"), jax.Array)
    assert_type(af.convert(tensor, "jnp"), jax.Array)
    assert_type(af.convert(tensor, "jax.numpy"), jax.Array)
    assert_type(af.convert(jaxed, "torch", scalars="convert"), torch.Tensor)
    assert_type(af.convert(jaxed, "dask"), da.Array)
    assert_type(af.convert(jaxed, "dask.array"), da.Array)


def structures(
    floats: NDArray[np.float32],
    nested: dict[str, dict[str, Any]],
    ordered: OrderedDict[str, torch.Tensor],
    state: State,
    several: list[Any],
) -> None:
    assert_type(af.convert({"x": floats}, "torch"), dict[str, Any])
    assert_type(af.convert(nested, "torch"), dict[str, Any])
    assert_type(af.convert(ordered, "jax"), dict[str, Any])
    assert_type(af.convert([floats], torch), list[Any])
    assert_type(af.convert(several, "torch"), list[Any])
    assert_type(af.convert((floats, "text"), "jax"), tuple[Any, ...])
    assert_type(af.convert(state, "jax"), State)


def not_known(
    anything: Any,
    objects: NDArray[np.object_],
    text: NDArray[np.str_],
    number: float,
    x: torch.Tensor,
    module: ModuleType,
    backend: af.Backend,
) -> None:
    assert_type(af.convert(anything, "torch"), Any)
    assert_type(af.convert(objects, "torch"), Any)
    assert_type(af.convert(text, "torch"), Any)
    assert_type(af.convert(number, "torch"), Any)  # NumPy's float64 is one, and becomes an array
    assert_type(af.convert("text", "torch"), Any)
    assert_type(af.convert(x, torch), Any)
    assert_type(af.convert(x, module), Any)
    assert_type(af.convert(x, backend), Any)
    assert_type(af.convert(x, "warp"), Any)
    assert_type(af.convert(x, like=x), Any)


def converters(x: torch.Tensor, tree: dict[str, Any], module: ModuleType) -> None:
    to_jax = af.converter("jax", copy=True)
    assert_type(to_jax, af.Conversion[jax.Array])
    assert_type(to_jax(x), jax.Array)
    assert_type(to_jax({"x": {"y": x}}), dict[str, Any])
    assert_type(to_jax((x, x)), tuple[Any, ...])
    assert_type(to_jax(tree), dict[str, Any])
    assert_type(to_jax(3), Any)
    assert_type(af.converter(torch), af.Conversion[Any])
    assert_type(af.converter(module), af.Conversion[Any])
    assert_type(af.converter(like=x), af.Conversion[Any])
    bare: af.Conversion = to_jax
    assert_type(bare(x), Any)


def the_rest(x: torch.Tensor, lazy: da.Array) -> None:
    assert_type(af.backends()["numpy"], af.Backend)
    assert_type(af.stream(lazy, "torch"), af.Stream[torch.Tensor])
    assert_type(af.stream(lazy, "torch")[0], torch.Tensor)
    assert_type(af.stream(lazy, "torch")[1:], af.Stream[torch.Tensor])
    assert_type(af.stream({"x": lazy}, "jax", block=2), af.Stream[Any])
    assert_type(af.stream(lazy, like=x), af.Stream[Any])

    @af.agnostic("numpy")
    def mean(x: np.ndarray, axis: int = 0) -> float:
        return float(x.mean(axis))

    assert_type(mean(x), Any)
    assert_type(mean(x, axis=1), Any)
    assert_type(mean.__wrapped__(np.ones(2)), float)
    jax.jit(mean)


def environments(target: Target) -> None:
    env = arrayferry_gym.ArrayConversion(CartPoleEnv(), target_xp="torch")
    assert_type(env.reset()[0], torch.Tensor)
    assert_type(env.step(1)[0], torch.Tensor)
    assert_type(arrayferry_gym.ArrayConversion(Named(), target_xp="jax").reset()[0], dict[str, Any])
    assert_type(arrayferry_gym.NumpyToTorch(CartPoleEnv()).reset()[0], torch.Tensor)
    assert_type(arrayferry_gym.JaxToNumpy(Named()).reset()[0], dict[str, Any])
    made = arrayferry_gym.ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
    assert_type(made, arrayferry_gym.ArrayConversion[Any, Any])
    assert_type(made.reset(), tuple[Any, dict[str, Any]])
    assert_type(made.step(0), tuple[Any, float, bool, bool, dict[str, Any]])
    assert_type(made.env, gym.Env[Any, Any])
    assert_type(made.action_space, gym.Space[Any])
    stated: arrayferry_gym.ArrayConversion[torch.Tensor, torch.Tensor] = (
        arrayferry_gym.ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
    )
    assert_type(stated.reset()[0], torch.Tensor)
    assert_type(stated.action_space.sample(), torch.Tensor)
    assert_type(env.observation_space.sample(), torch.Tensor)
    assert_type(arrayferry_gym.ArrayConversion(CartPoleEnv(), target_xp=target).reset()[0], Any)
    envs = vector.ArrayConversion(gym.make_vec("CartPole-v1"), target_xp="torch")
    assert_type(envs.reset()[0], Any)
    assert_type(envs.step(0)[1:4], tuple[torch.Tensor, torch.Tensor, torch.Tensor])
    known = vector.ArrayConversion(CartPoleVectorEnv(), target_xp="jax")
    assert_type(known.step(0)[1], jax.Array)
    assert_type(vector.JaxToNumpy(gym.make_vec("CartPole-v1")).step(0)[1], NumpyArray)
    assert_type(vector.NumpyToTorch(gym.make_vec("CartPole-v1")).step(0)[1], torch.Tensor)
    assert_type(vector.ArrayConversion(gym.make_vec("CartPole-v1")).step(0)[1], Any)
    stated_envs: vector.ArrayConversion[torch.Tensor, Any, torch.Tensor] = vector.ArrayConversion(
        gym.make_vec("CartPole-v1"), target_xp="torch"
    )
    assert_type(stated_envs.reset()[0], torch.Tensor)
    assert_type(envs.env, gym.vector.VectorEnv[Any, Any, Any])
    assert_type(envs.single_action_space, gym.Space[Any])
    served: FunctionalVectorEnv[Any, Any, torch.Tensor] = FunctionalVectorEnv(
        CartPole(), 2, xp="torch"
    )
    assert_type(served.step(0)[1], torch.Tensor)
    assert_type(FunctionalVectorEnv(CartPole()).step(0)[1], Any)
    one: FunctionalSingleEnv[torch.Tensor] = FunctionalSingleEnv(CartPole(), xp="torch")
    assert_type(one.reset()[0], torch.Tensor)


def unknown_targets(target: Any) -> None:
    """Not the first of all targets."""
    envs = vector.ArrayConversion(gym.make_vec("CartPole-v1"), target_xp=target)
    assert_type(envs.step(0)[1], Any)
    assert_type(arrayferry_gym.ArrayConversion(CartPoleEnv(), target_xp=target).reset()[0], Any)


def results(
    policy: Callable[..., tuple[Any, Any]], module: torch.nn.Module, key: jax.Array
) -> None:
    compiled = evaluate(CartPole(), policy, key=key, num_envs=4)
    assert_type(compiled, Evaluation[jax.Array])
    assert_type(compiled.returns, jax.Array)
    assert_type(evaluate(CartPole, module, num_envs=4).lengths, NumpyArray)
    assert_type(evaluate(CartPole(), policy, policy_xp="torch").returns, NumpyArray)
    assert_type(evaluate(CartPole(), policy, policy_xp="jax").returns, jax.Array)
    assert_type(evaluate(gym.make("CartPole-v1"), module).returns, NumpyArray)
    assert_type(evaluate(gym.make_vec("CartPole-v1"), policy, key=key).returns, NumpyArray)
    _, steps = rollout(CartPole(), policy, None, key, 10, 4)
    assert_type(steps, Trajectory[jax.Array])
    assert_type(steps.reward + steps.episode_return, jax.Array)
    tensors = Trajectory(1, 1, torch.ones(2), torch.ones(2), torch.ones(2), None, None)
    assert_type(tensors.reward, torch.Tensor)


def collected(collector: Collector[torch.Tensor]) -> None:
    for trajectories in collector:
        assert_type(trajectories.reward, torch.Tensor)


def load(value: Any, to: Target, narrowing: Narrowing = "checked") -> Any:
    return af.convert(value, to, narrowing=narrowing)


def options_of_any_type(x: torch.Tensor, anything: Any) -> None:
    assert_type(af.convert(x, "jax", copy=anything, narrowing=anything), jax.Array)
    assert_type(af.converter("jax", sparse=anything), af.Conversion[jax.Array])


def mistakes(x: torch.Tensor, name: str) -> None:
    af.convert(x)  # wrong
    af.converter()  # wrong
    af.convert(x, like=x), af.converter(like=x), af.stream(x, like=x)
    af.convert({"x": "text"})  # wrong
    af.covert(x, "jax")  # wrong
    arrayferry_gym.NumpyToJax(CartPoleEnv())  # wrong
    vector.NumpyToJax(CartPoleEnv())  # wrong
    af.convert(x, "jax", narrowing="alow")  # wrong
    af.convert(x, "jax", narowing="allow")  # wrong
    af.convert(x, "jax", scalars=True)  # wrong
    af.convert(x, "jax", unsupported="drop")  # wrong
    af.convert(x, "jax", copy="yes")  # wrong
    af.convert(x, 3)  # wrong
    af.convert(x, "jax").requires_grad_()  # wrong
    af.convert(x, "toch")  # wrong
    af.convert(x, name)  # wrong
    af.converter("toch")  # wrong
    af.stream(x, "toch")  # wrong
    af.agnostic("toch")  # wrong
    arrayferry_gym.NumpyToTorch(CartPoleEnv(), info_xp="toch")  # wrong
    af.converter("jax", sparse="desne")  # wrong
    af.converter("jax")(x).requires_grad_()  # wrong
    af.stream(x, "torch", prefetch="all")  # wrong
    af.agnostic("numpy", narrowing="alow")  # wrong
    af.agnostic("numpy", narrow="allow")  # wrong
    af.Options(unknown="drop")  # wrong
    af.backends()["numpy"] = af.backends()["torch"]  # wrong
    af.convert(x, "torch", copyy=True)  # wrong
    af.convert({"x": x}, "torch", narrowing="chekced", copy=True)  # wrong
    af.convert(x, like=x, sparse="desne")  # wrong
    af.converter("jax", copyy=True)  # wrong
    af.stream({"x": x}, "torch", prefetchh=2)  # wrong
    load(x, "jax", narrowing=name)  # wrong
    arrayferry_gym.ArrayConversion(CartPoleEnv(), target_xp="torch", narrowing="alow")  # wrong
    arrayferry_gym.NumpyToTorch(CartPoleEnv(), scalars="no")  # wrong
    arrayferry_gym.NumpyToTorch(gym.make("CartPole-v1"), check_actions="stric")  # wrong
    arrayferry_gym.NumpyToTorch("CartPole-v1")  # wrong
    arrayferry_gym.JaxToNumpy(CartPoleEnv(), device="cpu")  # wrong
    arrayferry_gym.ArrayConversion(CartPoleEnv(), target_xp="torch", coppy=True)  # wrong
    vector.ArrayConversion(gym.make_vec("CartPole-v1"), stack_final="yes")  # wrong
    vector.NumpyToTorch(gym.make_vec("CartPole-v1"), stack_finl=True)  # wrong
    CartPole().make_vec(2, xp="jax", check_actions="stric")  # wrong
    evaluate(CartPole(), print, num_envs="4")  # wrong
    evaluate(gym.make("CartPole-v1"), print, episods=4)  # wrong
    evaluate(CartPole(), print, None, 0, 4)  # wrong
    evaluate("CartPole-v1", print)  # wrong
    CartPole().make(xp="jax", autoreset_mode="SameStep")  # wrong
    FunctionalVectorEnv(CartPole(), 2, xp="torch", validat=True)  # wrong
