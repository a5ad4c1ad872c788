"""`evaluate`: runs episodes of an agent of any library, in environments of any kind."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Never, overload

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import UNSET, check_flag, check_keywords, count_of, factor_of
from arrayferry.typing import AnyTree, JaxArray, NumpyArray, Target, ToJax
from arrayferry_gym.extending import select, summed

from ._contract.functional_env import FunctionalEnv, is_functional
from ._contract.policies import Run
from ._evaluation import Evaluation
from ._progress import shown

if TYPE_CHECKING:
    from typing import Protocol, Unpack

    from arrayferry_gym.wrappers.kernels import Step

    from ._evaluate_options import EvaluateOptions

    class Module(Protocol):
        """A protocol for modules of PyTorch, since PyTorch may not be installed."""

        def state_dict(self, *args: Any, **options: Any) -> Any: ...


# fmt: off
# pyright: reportOverlappingOverload=false
@overload
def evaluate(env: Env[Any, Any] | VectorEnv[Any, Any, Any], policy: Any, policy_params: AnyTree = None, key: Any = 0, *, policy_xp: Target | None = None, **options: Unpack[EvaluateOptions]) -> Evaluation[NumpyArray]: ...
@overload
def evaluate(env: FunctionalEnv | type[FunctionalEnv], policy: Module, policy_params: AnyTree = None, key: Any = 0, *, policy_xp: Target | None = None, **options: Unpack[EvaluateOptions]) -> Evaluation[NumpyArray]: ...
@overload
def evaluate(env: FunctionalEnv | type[FunctionalEnv], policy: Any, policy_params: AnyTree = None, key: Any = 0, *, policy_xp: ToJax | None = None, **options: Unpack[EvaluateOptions]) -> Evaluation[JaxArray]: ...
@overload
def evaluate(env: FunctionalEnv | type[FunctionalEnv], policy: Any, policy_params: AnyTree = None, key: Any = 0, *, policy_xp: Target, **options: Unpack[EvaluateOptions]) -> Evaluation[NumpyArray]: ...
# fmt: on


@uncompiled
def evaluate(
    env: FunctionalEnv | Env[Any, Any] | VectorEnv[Any, Any, Any] | type[FunctionalEnv],
    policy: Any,
    policy_params: AnyTree = None,
    key: Any = 0,
    *_misplaced: Never,
    num_envs: int | None = None,
    episodes: int = 1,
    gamma: Any = 0.99,
    env_params: AnyTree = None,
    max_episode_steps: Any = UNSET,
    policy_state: AnyTree = None,
    wrapper_state: AnyTree = None,
    sharding: Any = None,
    policy_xp: Target | None = None,
    progress: bool = False,
) -> Evaluation[Any]:
    """Run several episodes in each of many environments, with a policy of any library.

    Only the first `episodes` episodes of each environment count, so that short episodes do not count more often than
    long ones. The run ends when each environment has finished `episodes` episodes.

    A policy in JAX and a `FunctionalEnv` run in one compiled `lax.while_loop`, which has no reverse-mode gradients. For
    gradients, or for a fixed number of steps, use `rollout`. All other combinations are stepped from Python. A
    `FunctionalEnv` then becomes a vector environment in the policy's library. Environments of Gymnasium may have any
    autoreset mode. They are first reset, with the key as the seed, and remain open in the state after the last step.
    Wrappers around environments of Gymnasium, such as `NormalizeObservation`, do not update their statistics.

    Args:
        env: a `FunctionalEnv`, a vector environment of Gymnasium, an adapter around a vector environment, or a single
            environment of Gymnasium, which counts as a batch of one.
        policy: a function as in `rollout`: `policy(policy_params, observation, key) -> (action, extras)`, for a batch
            of observations. With `policy_state` it is
            `policy(policy_params, observation, key, policy_state) -> (action, extras, policy_state)`.
            The key is a JAX key for a policy in JAX, and otherwise an `arrayferry_gym.Random`. The policy may also be a
            PyTorch module, which maps observations to actions. With `policy_state`, it maps
            `(observation, policy_state)` to `(action, policy_state)`. The module is copied, and runs in evaluation
            mode. State inside a module is not reset between episodes: use `policy_state`. If the policy is a
            function that calls a module, the mode of this module is not changed: call its `eval()` first.
        policy_params: the first argument of the policy: a tree of arrays of any library. For a module, its
            `state_dict`, or None for its current weights.
        key: the seed of the environments and of the policy's key: an integer, or a JAX key. It also seeds the numbers that
            PyTorch draws by itself in the policy, as in `Categorical.sample`; PyTorch's generators are restored afterwards.
        num_envs: the number of environments of a `FunctionalEnv`. Other environments have a fixed number.
        episodes: the number of episodes in each environment.
        gamma: the discount factor per step, from 0 to 1.
        env_params: as in `rollout`, for a `FunctionalEnv`.
        max_episode_steps: as in `rollout`, for a `FunctionalEnv`. If it is None, episodes must terminate by themselves.
        policy_state: as in `rollout`: arrays (num_envs, ...).
        wrapper_state: the statistics of an environment made by `wrap`: `carry.env_state.wrappers` of a rollout, or the
            result of `env.state_dict(carry.env_state)`. They are used but not updated. If `wrapper_state` is None, the
            environment begins with new statistics, and a warning is issued.
        sharding: as in `rollout`.
        policy_xp: the library of the policy, as a name or namespace. None means PyTorch for a module; JAX with a
            `FunctionalEnv` or a JAX key; and otherwise the library of the observations.
        progress: whether to show progress in a terminal, with rich.

    Returns:
        The results of each episode, as JAX arrays from compiled code and otherwise as NumPy arrays.

    Raises:
        TypeError: `env` is not an environment, or an argument after the key was passed without a keyword.
        arrayferry.OptionError: an argument is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, evaluate
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> results = evaluate(CartPole(), policy, key=jax.random.key(0), num_envs=4, episodes=3)
        >>> results.returns.shape
        (4, 3)
        >>> bool((results.returns == results.lengths).all())
        True

        A module of PyTorch, in environments of Gymnasium:

        >>> import gymnasium as gym
        >>> import torch
        >>> class Agent(torch.nn.Linear):
        ...     def forward(self, observation):
        ...         return super().forward(observation).argmax(-1)
        >>> envs = gym.make_vec("CartPole-v1", num_envs=4)
        >>> evaluate(envs, Agent(4, 2), episodes=3).lengths.shape
        (4, 3)
        >>> envs.close()
    """
    # imported here, since importing `stepping` makes converters, which loads the plugins
    from ._policies.stepping import Stepping, library_of

    check_keywords("evaluate", _misplaced, "num_envs= or episodes=")
    episodes = count_of("episodes", episodes)
    check_flag("progress", progress)
    backend = af.first_array(gamma)[1]
    if backend is None or not backend.is_traced(gamma):
        gamma = factor_of("gamma", gamma, scalar=True)
    run = Run(
        "evaluate", env, policy, policy_params, key, num_envs, env_params, max_episode_steps, policy_state,
        wrapper_state, sharding,
    )  # fmt: skip
    env_is_functional = is_functional(env)
    library = library_of(
        "evaluate", policy, policy_xp, key, policy_state, functional=env_is_functional
    )
    if env_is_functional and library is not None and library.name == "jax":
        from ._compiled.arguments import Call
        from ._compiled.evaluation import evaluate_compiled

        call = Call(run, episodes, progress)
        with shown(progress, "evaluating", call.num_envs * episodes) as show:
            result: Evaluation[Any] = evaluate_compiled(call, gamma, show)
            return result
    stepping = Stepping(run, library, AutoresetMode.SAME_STEP)
    n = stepping.envs.num_envs
    with (
        shown(progress, "evaluating", n * episodes) as show,
        contextlib.closing(iter(stepping)) as steps,
    ):
        return _counted(steps, n, episodes, float(gamma), show)


def _counted(
    steps: Iterable[Step | None], n: int, episodes: int, gamma: float, show: Callable[[int], None]
) -> Evaluation[NumpyArray]:  # fmt: skip
    """Return the results of the first `episodes` episodes of each of `n` environments."""
    taken_steps = (step for step in steps if step is not None)  # None stands for a reset
    first_step = next(taken_steps)
    num_finished, length, began = np.zeros(n, np.int32), np.zeros(n, np.int32), np.ones(n, np.bool_)
    total, discounted = np.zeros_like(first_step.reward), np.zeros_like(first_step.reward)
    factor = np.ones_like(total)
    results = Evaluation(
        *(np.zeros((n, episodes, *x.shape[1:]), x.dtype) for x in (total, total, length)),
        *(np.zeros((n, episodes), np.bool_) for _ in range(2)),
    )
    for step in itertools.chain([first_step], taken_steps):
        valid = np.ones(n, np.bool_) if step.valid is None else step.valid
        reward = select(np, valid, step.reward, np.zeros_like(total))
        factor = select(np, began, np.ones_like(factor), factor)
        total = summed(np, began, total, reward)
        discounted = summed(np, began, discounted, factor * reward)
        length = summed(np, began, length, valid)
        factor, began = select(np, valid, factor * gamma, factor), step.ended
        rows = np.flatnonzero(began & (num_finished < episodes))
        latest_results = (total, discounted, length, step.terminated, step.truncated)
        for stored, new_values in zip(results, latest_results, strict=True):
            stored[rows, num_finished[rows]] = new_values[rows]
        if rows.size:
            num_finished[rows] += 1
            show(int(num_finished.sum()))
            if (num_finished == episodes).all():
                break
    return results
