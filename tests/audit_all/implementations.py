"""Every implementation of vectorised environments that installs: how its project's documentation makes four of them.

`tools/audit_all.py` audits each row of `ROWS` in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

SAME_STEP = AutoresetMode.SAME_STEP


def supersuit(copies: int, processes: int = 0) -> Any:
    import supersuit
    from mpe2 import simple_spread_v3

    agents = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(N=4 // copies))
    if copies == 1:
        return agents
    return supersuit.concat_vec_envs_v1(agents, copies, processes, base_class="gymnasium")


def mo_gymnasium(kind: str) -> Any:
    import mo_gymnasium
    from mo_gymnasium.wrappers import vector

    return getattr(vector, kind)([partial(mo_gymnasium.make, "minecart-v0")] * 4)


def envpool(name: str, **options: Any) -> Any:
    import envpool

    return envpool.make_gymnasium(name, num_envs=4, seed=1, **options)


def gymnax() -> Any:
    import gymnax
    from gymnax.wrappers.gym import GymnaxToVectorGymWrapper

    env, params = gymnax.make("CartPole-v1")
    return GymnaxToVectorGymWrapper(env, 4, params)


def ale(**options: Any) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv("breakout", num_envs=4, **options)


def tabular(module: str, name: str) -> Any:
    from importlib import import_module

    from gymnasium.envs.functional_jax_env import FunctionalJaxVectorEnv

    env = getattr(import_module(f"gymnasium.envs.tabular.{module}"), name)
    return FunctionalJaxVectorEnv(env(), 4)


def crazyflow() -> Any:
    import crazyflow  # noqa: F401  (registers its ids)

    return gym.make_vec("DroneReachPos-v0", num_envs=4)


def agilerl() -> Any:
    from agilerl.vector.dummy_vec_env import DummyVecEnv

    return DummyVecEnv(gym.make("CartPole-v1"))


class Row(NamedTuple):
    """An implementation: the package that has it, how to make it, its mode if it states none, and the id for `make_vec`."""

    package: str
    make: Callable[[], Any]
    mode: AutoresetMode | None = None
    ours: str | None = None


def by_gymnasium(name: str) -> Callable[[], Any]:
    return partial(gym.make_vec, name, 4, vectorization_mode="vector_entry_point")


CARTS = [partial(gym.make, "CartPole-v1")] * 4
ROWS = {
    "SyncVectorEnv": Row("gymnasium", partial(SyncVectorEnv, CARTS)),
    "SyncVectorEnv (SAME_STEP)": Row("gymnasium", partial(SyncVectorEnv, CARTS, autoreset_mode=SAME_STEP)),
    "AsyncVectorEnv": Row("gymnasium", partial(AsyncVectorEnv, CARTS)),
    "CartPoleVectorEnv": Row("gymnasium", by_gymnasium("CartPole-v1"), ours="gymnasium/CartPole-v1"),
    "CartPoleJaxVectorEnv": Row("gymnasium", by_gymnasium("phys2d/CartPole-v1"), ours="gymnasium/phys2d/CartPole-v1"),
    "PendulumJaxVectorEnv": Row("gymnasium", by_gymnasium("phys2d/Pendulum-v0"), ours="gymnasium/phys2d/Pendulum-v0"),
    "FunctionalJaxVectorEnv, Blackjack": Row("gymnasium", partial(tabular, "blackjack", "BlackjackFunctional"), ours="gymnasium/tabular/Blackjack-v0"),
    "AtariVectorEnv": Row("ale-py", ale, ours="ale/breakout"),
    "AtariVectorEnv (SAME_STEP)": Row("ale-py", partial(ale, autoreset_mode=SAME_STEP)),
    "MarkovVectorEnv": Row("supersuit", partial(supersuit, 1), SAME_STEP),
    "ConcatVecEnv": Row("supersuit", partial(supersuit, 2), SAME_STEP),
    "ProcConcatVec": Row("supersuit", partial(supersuit, 2, 2), SAME_STEP),
    "MOSyncVectorEnv": Row("mo-gymnasium", partial(mo_gymnasium, "MOSyncVectorEnv"), ours="gymnasium/mo_gymnasium:minecart-v0"),
    "MOAsyncVectorEnv": Row("mo-gymnasium", partial(mo_gymnasium, "MOAsyncVectorEnv")),
    "GymnaxToVectorGymWrapper": Row("gymnax", gymnax, SAME_STEP, "gymnax/CartPole-v1"),
    "DroneEnv": Row("crazyflow", crazyflow),
    "DummyVecEnv": Row("agilerl", agilerl),
    **{
        f"EnvPool {family}": Row("envpool", partial(envpool, name), ours=f"envpool/{name}")
        for family, name in {
            "classic control": "CartPole-v1", "toy text": "FrozenLake-v1", "Box2D": "LunarLander-v3",
            "MuJoCo": "HalfCheetah-v4", "Atari": "Breakout-v5", "dm_control": "CheetahRun-v1",
            "MiniGrid": "MiniGrid-Empty-5x5-v0",
        }.items()
    },
}  # fmt: skip


def made(row: Row) -> Any:
    """Make the environments of a row. A mode that they do not state is taken from their code."""
    envs = row.make()
    stated = (envs.metadata or {}).get("autoreset_mode")
    if row.mode is not None and stated is None:
        envs.metadata = {**(envs.metadata or {}), "autoreset_mode": row.mode}
    return envs
