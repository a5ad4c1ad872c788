"""Rollouts in JAX: many steps of many environments in one compiled call."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import arrayferry as af

from ._base import FunctionalEnv, check_functional
from ._bound import select
from ._host import HostFunctions
from ._jax import Functions, checked_key
from ._limits import UNSET, count_of, limit_of
from ._params import Params, prepare
from ._program import divided, noted

__all__ = ["Carry", "Episode", "Transition", "episode", "rollout"]

Policy = Callable[[Any, Any, Any], tuple[Any, Any]]


class Transition(NamedTuple):
    """The steps of a rollout: trees of arrays (time, environment, ...).

    Attributes:
        observation: what the policy saw.
        action: what it chose, before it was clipped to the action space.
        reward: the rewards.
        terminated: whether the episode has terminated.
        truncated: whether it has reached the limit of steps.
        final_observation: the observation after the step, before any reset: that of the next state of this
            episode, also at its end.
        extras: what the policy returned besides, such as log-probabilities and values.
    """

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any
    extras: Any


class Carry(NamedTuple):
    """Where a rollout has stopped, to go on from there.

    Attributes:
        running: the environments; of an ordinary one, its state.
        observation: their observations, (n, ...).
    """

    running: Any
    observation: Any


class Episode(NamedTuple):
    """One episode in each of `n` environments.

    Attributes:
        total: the sum of the rewards of each, (n,), added up in float32, or in the dtype of the rewards if
            that is wider.
        length: the number of steps of each, int32 (n,).
        terminated: whether it has terminated, rather than reached a limit of steps, bool (n,).
        final_observation: its last observation, (n, ...).
    """

    total: Any
    length: Any
    terminated: Any
    final_observation: Any


def rollout(
    env: FunctionalEnv | HostFunctions,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_steps: int,
    num_envs: int | None = None,
    *,
    env_params: Any = None,
    carry: Carry | None = None,
    max_episode_steps: Any = UNSET,
) -> tuple[Carry, Transition]:
    """Take steps in many environments with a policy, by one compiled `lax.scan`.

    Episodes that end are reset in the same step. It may be called inside `jit`, `vmap` and `grad`.

    It compiles once for each environment, policy and shape. Environments of one class with equal attributes
    are the same, and so are functions of the same code that refer to equal values. A policy must not hold arrays
    that compiled code would not see change: in a closure, or in the attributes of an object that is no pytree.

    Args:
        env: the environment; or the functions of an ordinary vector environment that resets in the same step.
        policy: `policy(policy_params, observation, key) -> (action, extras)`, for a batch of observations.
        policy_params: the first argument of the policy: any pytree. Arrays and floats in it are values, anything
            else, such as the functions in an Equinox module, is static. A warning names a leaf that is why it
            is compiled for the third time.
        key: a key of JAX, another one for each call.
        num_steps: how many steps to take in each environment.
        num_envs: how many environments. An ordinary vector environment has its own number.
        env_params: the parameters of the environment, or a dict of those that differ from the defaults.
        carry: where another rollout has stopped. None starts all environments anew.
        max_episode_steps: after how many steps an episode is truncated, None for never. The default is
            that of the environment.

    Returns:
        Where it has stopped, and the transitions.

    Raises:
        arrayferry.OptionError: an argument is wrong, or the policy holds an array.

    Example:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, rollout
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> env = CartPole()
        >>> carry, transitions = rollout(env, policy, None, jax.random.key(0), 10, 4)
        >>> transitions.reward.shape
        (10, 4)
        >>> carry, more = rollout(env, policy, None, jax.random.key(1), 10, 4, carry=carry)
    """
    num_steps = count_of("num_steps", num_steps)
    if isinstance(env, HostFunctions):
        num_envs = _check_host(env, num_envs, env_params, max_episode_steps)
    elif num_envs is not None:
        num_envs = count_of("num_envs", num_envs)
    static, values = _prepared(
        "rollout", env, policy, policy_params, env_params, num_envs, max_episode_steps
    )
    if carry is not None and not isinstance(carry, Carry):
        raise af.OptionError(
            f"carry={carry!r:.80} is no Carry", remedy="Pass what rollout returned first."
        )
    elapsed = getattr(getattr(carry, "running", None), "elapsed", None)
    if elapsed is not None and elapsed.shape != (num_envs,):
        raise af.OptionError(
            f"num_envs={num_envs}, but carry has {elapsed.shape[0]} environments",
            remedy="Pass the number of environments with which the first rollout began.",
        )
    return _rollout((*static, num_steps), values, checked_key(key), carry)  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _rollout(static: tuple[Any, ...], values: Any, key: Any, carry: Any) -> Any:
    *parts, limit, num_envs, num_steps = static
    env, policy, policy_params, env_params = _united(*parts, *values)
    hosted = isinstance(env, HostFunctions)
    functions: Any = _Hosted(env) if hosted else Functions(env, max_episode_steps=limit)
    start, key = jax.random.split(key)
    if carry is None:
        carry = Carry(*functions.reset(start, num_envs, env_params))
    else:
        _check_carry(carry, lambda: functions.reset(start, num_envs, env_params), env)

    def one(carry: Carry, key: Any) -> tuple[Carry, Transition]:
        acting, stepping = jax.random.split(key)
        action, extras = _acted(policy, policy_params, carry.observation, acting)
        running, outcome = functions.step(stepping, carry.running, action, env_params)
        transition = Transition(
            carry.observation, action, outcome.reward, outcome.terminated, outcome.truncated,
            outcome.final_observation, extras,
        )  # fmt: skip
        return Carry(running, outcome.observation), transition

    return jax.lax.scan(one, carry, jax.random.split(key, num_steps))


def _check_carry(carry: Carry, reset: Callable[[], Any], env: Any) -> None:
    """Check that a carry is of this environment.

    Raises:
        arrayferry.OptionError: its arrays are not.
    """

    def forms(tree: Any) -> Any:
        return [f"{jnp.result_type(x)}{list(jnp.shape(x))}" for x in jax.tree.leaves(tree)]

    fresh = Carry(*jax.eval_shape(reset))
    if forms(carry) == forms(fresh):
        return
    name = env.name if isinstance(env, HostFunctions) else type(env).__name__
    raise af.OptionError(
        f"carry is of another environment than {name}: it has {', '.join(forms(carry))}, but {name} {', '.join(forms(fresh))}",
        remedy="Pass what rollout returned first for this environment and these options, or leave it out.",
    )


def episode(
    env: FunctionalEnv,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_envs: int = 1,
    *,
    env_params: Any = None,
    max_episode_steps: Any = UNSET,
) -> Episode:
    """Run one episode in each of many environments to its end, by one compiled `lax.while_loop`.

    The number of steps is not known in advance, so there is no reverse gradient through it, and the
    environments, also those of a `vmap`, wait for the one whose episode is the longest. For
    gradients, and for equal amounts of work, use `rollout`.

    Args:
        env: the environment.
        policy: as in `rollout`. What it returns besides the action is not used.
        policy_params: as in `rollout`.
        key: a key of JAX.
        num_envs: how many environments.
        env_params: as in `rollout`.
        max_episode_steps: as in `rollout`. If it is None, episodes must terminate by themselves.

    Returns:
        The sums of rewards, and how the episodes ended.

    Raises:
        arrayferry.OptionError: an argument is wrong.

    Example:
        >>> import jax
        >>> from arrayferry_gym.functional import CartPole, episode
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> found = episode(CartPole(), policy, None, jax.random.key(0), 4)
        >>> bool((found.total == found.length).all())
        True
    """
    if isinstance(env, HostFunctions):
        raise af.OptionError(
            f"{env.name} is an ordinary environment, which episode() cannot run",
            remedy="Use rollout(), or a jax.lax.while_loop with its reset and step.",
        )
    num_envs = count_of("num_envs", num_envs)
    static, values = _prepared(
        "episode", env, policy, policy_params, env_params, num_envs, max_episode_steps
    )
    return _episode(static, values, checked_key(key))  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _episode(static: tuple[Any, ...], values: Any, key: Any) -> Any:
    *parts, limit, num_envs = static
    env, policy, policy_params, env_params = _united(*parts, *values)
    functions = Functions(env, autoreset_mode="Disabled", max_episode_steps=limit)
    start, key = jax.random.split(key)
    running, observation = functions.reset(start, num_envs, env_params)

    def step(loop: Any) -> Any:
        running, found, key = loop
        key, acting, stepping = jax.random.split(key, 3)
        action, _ = _acted(policy, policy_params, found.final_observation, acting)
        over = running.ended
        running, outcome = functions.step(stepping, running, action, env_params)

        def kept(old: Any, new: Any) -> Any:
            return select(jnp, over, old, new)

        found = Episode(
            kept(found.total, found.total + outcome.reward.astype(found.total.dtype)),
            kept(found.length, found.length + 1),
            kept(found.terminated, outcome.terminated),
            jax.tree.map(kept, found.final_observation, outcome.observation),
        )
        return running, found, key

    shapes = jax.eval_shape(
        lambda: functions.step(
            key, running, _acted(policy, policy_params, observation, key)[0],
            env_params,
        )[1].reward
    )  # fmt: skip
    found = Episode(
        jnp.zeros(shapes.shape, jnp.promote_types(shapes.dtype, jnp.float32)),
        jnp.zeros(num_envs, jnp.int32),
        jnp.zeros(num_envs, bool),
        observation,
    )
    loop = (running, found, key)
    return jax.lax.while_loop(lambda loop: ~loop[0].ended.all(), step, loop)[1]


def _prepared(
    what: str,
    env: Any,
    policy: Any,
    policy_params: Any,
    env_params: Any,
    num_envs: Any,
    limit: Any,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Check arguments, and divide them into what is static and what are values."""
    held: Any
    if isinstance(env, HostFunctions):
        held, defaults, limit = _Weak(env), {}, None
    else:
        held = env = check_functional(env)
        defaults, limit = env.default_params, limit_of(env, limit)
        num_envs = count_of("num_envs", num_envs)
    if not callable(policy):
        raise af.OptionError(
            f"policy={policy!r:.80} cannot be called",
            remedy="Pass policy(policy_params, observation, key) -> (action, extras).",
        )
    values, frame = divided(held, policy, policy_params)
    params = prepare(env_params, defaults, num_envs, af.registry.backend("jax"), None)
    static = frame, params.frame, params.batched, limit, num_envs
    noted(what, (held, policy, policy_params), frame, static[1:])
    return static, (values, params.values)


def _check_host(env: HostFunctions, num_envs: Any, env_params: Any, limit: Any) -> int:
    """Check the arguments for an ordinary environment, and return how many there are."""
    if env.num_envs is None or not env.resets_in_same_step:
        raise af.OptionError(
            f"{env.name} is no vector environment that resets in the same step",
            remedy="Make one: gymnasium.make_vec(id, num_envs=n, vectorization_mode='sync', "
            "vector_kwargs={'autoreset_mode': 'SameStep'}).",
        )
    if num_envs not in (None, env.num_envs):
        raise af.OptionError(
            f"num_envs={num_envs!r}, but {env.name} has {env.num_envs}", remedy="Leave it out."
        )
    if env_params is not None or limit is not UNSET:
        raise af.OptionError(
            f"{env.name} is an ordinary environment, whose parameters and limit of steps are its own",
            remedy="Leave out env_params and max_episode_steps.",
        )
    return env.num_envs


class _Weak:
    """A reference to the functions of an ordinary environment, which compiled code does not keep alive."""

    def __init__(self, functions: HostFunctions) -> None:
        self._hash = hash(functions)
        self._functions = weakref.ref(functions)

    @property
    def env(self) -> HostFunctions | None:
        return self._functions()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Weak) and self._functions == other._functions

    def __hash__(self) -> int:
        return self._hash


class _Hosted:
    """The functions of an ordinary environment, with the signatures of `Functions`."""

    def __init__(self, functions: HostFunctions) -> None:
        self._functions = functions

    def reset(self, key: Any, num_envs: int, params: Any) -> tuple[Any, Any]:
        state, observation, _ = self._functions.reset(seed=key)
        return state, observation

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any]:
        return self._functions.step(state, action)


def _united(
    frame: Any, env_frame: Any, batched: Any, values: Any, env_values: Any
) -> tuple[Any, Any, Any, Any]:
    """Return the environment, the policy and the parameters of both."""
    env, policy, policy_params = frame.join(values)
    if isinstance(env, _Weak):
        env = env.env
    return env, policy, policy_params, Params(env_frame, env_values, batched)


def _acted(policy: Policy, params: Any, observation: Any, key: Any) -> tuple[Any, Any]:
    """Return the action of a policy and what it returns besides."""
    result = policy(params, observation, key)
    if not isinstance(result, tuple) or len(result) != 2:
        raise af.OptionError(
            f"the policy returned {type(result).__name__}, not an action and extras",
            remedy="Return (action, extras); extras may be None.",
        )
    for name, part in zip(("action", "extras"), result, strict=True):
        for leaf in af.flatten(part)[0]:
            library = af.backend_of(leaf).name
            if library not in ("jax", "numpy"):
                raise af.OptionError(
                    f"the policy returned an array of {library} in its {name}, but it is compiled by JAX",
                    remedy="Compute in JAX. Or step the environment in the library of the policy: "
                    f"env.make_vec(n, xp={library!r}).",
                )
    return result
