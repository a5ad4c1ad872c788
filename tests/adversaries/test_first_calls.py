"""The first call of each public function and class, from eight threads of a new process at once."""

import inspect
import re
import sysconfig

import pytest

import arrayferry as af
import arrayferry_envs
import arrayferry_gym

EIGHT_THREADS = """
import os, sys, threading, traceback

sys.setswitchinterval(1e-6)

def first_calls(call):
    gate, found = threading.Barrier(8), []
    def work():
        gate.wait()
        try:
            found.append(repr(eval(call, globals())))
        except BaseException:
            found.append(traceback.format_exc())
    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    [thread.start() for thread in threads], [thread.join(100) for thread in threads]
    if len(found) < 8 or len({*found}) > 1 or "Traceback" in found[0]:
        print(call, f"{len(found)} of 8 threads ended", *{*found}, sep="\\n", file=sys.stderr, flush=True)
        os._exit(1)
"""

CORE = """
import json
import numpy as np
import arrayferry as af
from arrayferry_streams import even_lengths

x = np.ones(2, "f4")
kept, inner = af.converter("torch"), af.agnostic("torch")(lambda x: x.cumsum(0))

def traced():
    with af.trace() as trace:
        af.convert([x], "jax")
    return sum(row.arrays for row in trace.rows)
"""
CORE_CALLS = [
    "[af.convert({'x': x}, to)['x'].tolist() for to in ('torch', 'jax')]",
    "af.convert({'x': x}, 'dask')['x'].compute(), af.convert([x], 'warp')[0].numpy()",
    "af.convert([x], 'array_api_strict')",
    "[kept([x, {'a': n}]) for n in range(5)]",
    "af.converter('numpy', device='cpu')(x)",
    "[getattr(af, name) for name in dir(af)]",
    "[af.route('torch', 'jax'), sorted(map(str, af.backends())), af.registry.backend('jax').problem()]",
    "[af.namespace_of(x), af.backend_of(x), af.first_array([1, x]), af.flatten({'a': x})]",
    "inner(x), inner(inner(x))",
    "[block.tolist() for block in af.stream(np.arange(9), 'torch', block=4)]",
    "even_lengths((9, 2), 4, 0), af.fit_dtype(x, af.registry.backend('jax'), 'checked')",
    "traced() > 0",
]

LIBRARIES = """
import jax, torch
import jax.numpy as jnp
import dask.array as da
import arrayferry as af

inner = af.agnostic("jax")(jax.jit(lambda x: x * 2))
square = af.agnostic("jax", differentiable=True)(jax.jit(lambda x: (x * x).sum()))
like = {"differentiable": True, "result_like": lambda x: x[0]}
torch_square = af.agnostic("torch", **like)(lambda x: (x * x).sum())

def gradient():
    x = torch.ones(2, requires_grad=True)
    square(x).backward()
    return x.grad
"""
LIBRARIES_CALLS = [
    "af.convert([torch.ones(2)], 'jax'), af.convert([jnp.ones(2)], 'torch')",
    "af.convert(da.ones(3), 'torch'), af.convert(da.ones(3), 'jax')",
    "inner(torch.ones(2)), inner(da.ones(2)).compute()",
    "gradient()",
    "jax.grad(torch_square)(jnp.ones(2)), jax.jit(jax.grad(torch_square))(jnp.ones(2))",
    "[block['x'] for block in af.stream({'x': da.arange(9, chunks=2)}, 'torch', block=4)]",
]

ADAPTERS = """
import gymnasium as gym
import numpy as np
import arrayferry_envs
import arrayferry_gym as ag

def cart_pole(adapter, *args, **options):
    env = adapter(gym.make("CartPole-v1"), *args, **options)
    return env.reset(seed=1), env.step(np.int64(1))[0]

class JaxLike(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    def __init__(self, xp):
        self.xp = xp
    def reset(self, *, seed=None, options=None):
        import arrayferry as af
        return af.convert(np.zeros(2, "f4"), self.xp), {}

def same_step(xp):
    return arrayferry_envs.CartPole().make_vec(2, xp=xp, autoreset_mode="SameStep")

def torchrl():
    from arrayferry_gym.torchrl import TorchRLEnv
    return TorchRLEnv(same_step("torch")).reset().shape

def sb3():
    from arrayferry_gym.sb3 import SB3VecEnv
    return SB3VecEnv(same_step("numpy")).reset().shape
"""
ADAPTERS_CALLS = [
    "[getattr(ag, name).__name__ for name in dir(ag)]",
    "[getattr(part, name) for part in (ag.wrappers, ag.wrappers.vector) for name in dir(part)]",
    "cart_pole(ag.NumpyToTorch), cart_pole(ag.ArrayConversion, target_xp='jax')",
    "[ag.ArrayConversion(JaxLike('jax'), 'jax', to).reset() for to in ('numpy', 'torch')]",
    "[ag.ArrayConversion(JaxLike('torch'), 'torch', to).reset() for to in ('numpy', 'jax')]",
    "ag.vector.NumpyToTorch(gym.make_vec('CartPole-v1', 2)).reset(seed=1)",
    "[getattr(ag, name)(np.ones(2, 'f4')) for name in ('numpy_to_torch', 'numpy_to_jax')]",
    "ag.torch_to_jax(ag.jax_to_torch(ag.numpy_to_jax(np.ones(2, 'f4'))))",
    "ag.torch_to_numpy(ag.numpy_to_torch(ag.jax_to_numpy(ag.numpy_to_jax(np.ones(2, 'f4')))))",
    "ag.array_conversion(np.ones(2, 'f4'), 'torch')",
    "ag.wrappers.NormalizeObservation(ag.NumpyToTorch(gym.make('CartPole-v1'))).reset(seed=1)",
    "gym.make('arrayferry/Pendulum-v0', xp='torch').reset(seed=1)",
    "ag.advantages(*[np.ones((3, 2), 'f4')] * 3, *[np.zeros((3, 2), bool)] * 2, gamma=0.5, lam=0.5)",
    "ag.check_integers(0, 3, 'int8'), [ag.make_rng(xp, 1).uniform((2,)) for xp in ('numpy', 'jax')]",
    "sb3()",
    "torchrl()",
]

FUNCTIONAL = """
import gymnasium as gym
import jax, torch
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional
import arrayferry_envs
from arrayferry_envs import *
from arrayferry_gym.wrappers import kernels

key = jax.random.key(0)

def lean(params, observation, key):
    return (observation[:, 2] > 0) * 1, None

class Module(torch.nn.Module):
    def forward(self, observation):
        return (observation[:, 2] > 0).long()

module = Module()

def steps(env, xp, count=2):
    envs = env.make_vec(2, xp=xp)
    envs.reset(seed=1), envs.action_space.seed(1)
    return [envs.step(envs.action_space.sample())[:3] for _ in range(count)]
"""
FUNCTIONAL_CALLS = [
    "[getattr(arrayferry_envs, name) for name in dir(arrayferry_envs)]",
    "[steps(CartPole(), xp) for xp in ('numpy', 'torch', 'jax')]",
    "[steps(env, 'jax', 1) for env in (from_env(CartPoleFunctional()), Pendulum())]",
    "Pendulum().make(xp='torch').reset(seed=1)",
    "steps(wrap(Pendulum(), kernels.NormalizeObservation(), kernels.ClipReward(-1, 1)), 'jax')",
    "freeze(Functions(wrap(CartPole(), kernels.NormalizeObservation())).reset(key, 2)[0].wrappers)",
    "steps(repeat_action(Pendulum(), 2), 'numpy'), steps(with_seeds(CartPole(), range(5)), 'numpy')",
    "rollout(CartPole(), lean, None, key, 5, 2)[1].reward",
    "evaluate(CartPole(), lean, num_envs=2).returns, evaluate(CartPole(), module, num_envs=2).returns",
    "Functions(CartPole()).reset(key, 2)[1]",
    "to_gymnax(CartPole()).reset(key)[0]",
    "sorted(suites()), suites('gymnasium')[:3], make_functional('arrayferry/Pendulum-v0')",
    "make('gymnasium/CartPole-v1', xp='torch').reset(seed=1)",
    "make_vec('arrayferry/CartPole-v0', 2, xp='jax', autoreset_mode='SameStep').reset(seed=1)",
    "make_vec('gymnasium/CartPole-v1', 2, xp='jax').reset(seed=1)",
]

CALLS = {
    "core": (CORE, CORE_CALLS),
    "libraries": (LIBRARIES, LIBRARIES_CALLS),
    "adapters": (ADAPTERS, ADAPTERS_CALLS),
    "functional": (FUNCTIONAL, FUNCTIONAL_CALLS),
}


NOT_CALLED = {
    "check_functional_env",
    "check_export",
    "export",
    "from_simulator",
    "record",
    "register",
    "to_minari",
}
"""What calls others, takes minutes, or changes what all share."""


@pytest.mark.long
@pytest.mark.parametrize("gil", ["1", "0"])
@pytest.mark.parametrize("part", CALLS)
def test_eight_threads_call_each_first(run_python, part, gil):
    free = sysconfig.get_config_var("Py_GIL_DISABLED")
    if gil == "0" and not free:
        pytest.skip("this Python cannot run without a GIL")
    setup, calls = CALLS[part]
    each = "\n".join(f"first_calls({call!r})" for call in calls)
    run_python(f"{EIGHT_THREADS}{setup}{each}", env={"PYTHON_GIL": gil} if free else {})


def test_eight_threads_import_the_packages(run_python):
    names = ("arrayferry", "arrayferry_envs")
    calls = [f"sorted(dir(importlib.import_module({name!r})))" for name in names]
    each = "\n".join(f"first_calls({call!r})" for call in calls)
    run_python(f"{EIGHT_THREADS}\nimport importlib\n{each}")


@pytest.mark.parametrize("module", [af, arrayferry_gym, arrayferry_envs], ids=lambda x: x.__name__)
def test_each_public_function_is_called(module):
    called = {*re.findall(r"\w+", " ".join(setup + str(calls) for setup, calls in CALLS.values()))}
    functions = {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    assert functions - called <= NOT_CALLED
