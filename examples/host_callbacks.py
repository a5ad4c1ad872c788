"""An agent inside `jit` steps an ordinary vector environment of Gymnasium, by callbacks.

Run it with `python examples/host_callbacks.py`. It saves no time over a loop in Python: the environment steps as fast as
there, and each callback takes time of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import VectorEnv
from jax.experimental import io_callback

from arrayferry_envs import Trajectory
from arrayferry_gym.vector import ArrayConversion

__all__ = ["collector", "main", "policy"]


def collector(envs: VectorEnv, act: Callable[[Any, Any, Any], Any], num_steps: int) -> Any:
    """Return a compiled function that resets environments and takes steps in them.

    Args:
        envs: the environments, which reset in the step that ends an episode, and do not compute in JAX.
        act: a policy in JAX: `act(params, observation, key) -> action`.
        num_steps: the number of steps to take in each environment.

    Returns:
        A function of the parameters of the policy, an integer to seed the environments, and a JAX key.
    """
    envs = ArrayConversion(envs, target_xp="numpy", stack_final=True, reward_dtype="float32")
    space = envs.observation_space
    observations = jax.ShapeDtypeStruct(space.shape, space.dtype)
    rewards, flags = (jax.ShapeDtypeStruct((envs.num_envs,), x) for x in ("float32", "bool"))
    results = observations, rewards, flags, flags, observations

    # JAX waits until these two have returned, so they must not call it.

    def reset(seed: Any) -> Any:
        return envs.reset(seed=int(seed))[0]

    def step(action: Any) -> Any:
        own = np.array(action)  # a copy, which the environment may keep and write to
        observation, reward, terminated, truncated, infos = envs.step(own)
        return observation, reward, terminated, truncated, infos["final_obs"]

    @jax.jit
    def collect(params: Any, seed: Any, key: Any) -> Trajectory:
        def one(observation: Any, key: Any) -> tuple[Any, Trajectory]:
            action = act(params, observation, key)
            following, *others = io_callback(step, results, action, ordered=True)
            return following, Trajectory(observation, action, *others, None)

        start = io_callback(reset, observations, seed, ordered=True)
        return jax.lax.scan(one, start, jax.random.split(key, num_steps))[1]

    return collect


def policy(params: Any, observation: Any, key: Any) -> Any:
    """Return actions of a linear policy, chosen at random."""
    return jax.random.categorical(key, observation @ params)


def main(num_envs: int = 8, num_steps: int = 500) -> Trajectory:
    """Take steps in CartPole. Return them as arrays (time, environment, ...)."""
    mode = {"autoreset_mode": "SameStep"}
    envs = gym.make_vec("CartPole-v1", num_envs, "sync", vector_kwargs=mode)
    collect = collector(envs, policy, num_steps)
    # JAX does not wait for results. This does, and raises the errors of the environments.
    steps = jax.block_until_ready(collect(jnp.zeros((4, 2)), 0, jax.random.key(0)))
    envs.close()
    ended = int((steps.terminated | steps.truncated).sum())
    print(f"{num_steps} steps in each of {num_envs} environments, in which {ended} episodes ended")
    return steps


if __name__ == "__main__":
    main()
