"""Rollouts in JAX: many steps of many environments in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.options import UNSET, check_flag, count_of
from arrayferry.typing import AnyTree, JaxArray
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_envs._contract.policies import Policy, Run, check_arguments
from arrayferry_gym.extending import summed
from arrayferry_gym.typing import ArrT

from .arguments import Call, Program, Values
from .functions import Functions, as_returned
from .policies import acted, began_anew, checked_extras
from .program import check_constants

_LEFT_OUT: Any = None


class Trajectory(NamedTuple, Generic[ArrT]):
    """The steps of a rollout: trees of arrays (time, environment, ...).

    Attributes:
        observation: the observation that the policy received.
        action: the action that the policy chose, before clipping to the action space.
        reward: the rewards of the steps.
        terminated: whether the episode has terminated.
        truncated: whether the episode is truncated, by the step limit or by the environment.
        final_observation: the observation after the step and before any reset, or None if `rollout` was called with
            `final_observation=False`. At the end of an episode, it shows the last state of that episode.
        extras: the policy's other results, such as log-probabilities and values.
        began: whether the step is the first of its episode, bool. At the first step, a policy with a state received
            its initial state.
        episode_return: the sum of the rewards of the episode up to this step. Its dtype is float32, or the dtype of the
            rewards if that is wider. At the last step of an episode, the sum is the return of the episode.
        episode_length: the number of steps of the episode up to this one, int32.
        info: the result of `FunctionalEnv.info` for the state after the step, before any reset, or None if infos are
            not collected.
        state: the state that `observation` shows, or None if states are not collected.
    """

    observation: Any
    action: Any
    reward: ArrT
    terminated: ArrT
    truncated: ArrT
    final_observation: Any
    extras: Any
    began: ArrT = _LEFT_OUT
    episode_return: ArrT = _LEFT_OUT
    episode_length: ArrT = _LEFT_OUT
    info: Any = None
    state: Any = None


class Carry(NamedTuple):
    """The state in which a rollout stopped, for another rollout to continue.

    Attributes:
        env_state: the environments.
        observation: the observations, (n, ...).
        began: whether the next step of each environment is the first of an episode, bool (n,).
        episode_return: the sums of rewards of the current episodes, (n, *reward_shape).
        episode_length: the numbers of steps of the current episodes, int32 (n,).
        policy_state: the state of the policy after the last step, not yet reset where an episode has ended. None for a
            policy without a state.
        first_policy_state: the initial state of the policy, which replaces `policy_state` where an episode begins.
    """

    env_state: Any
    observation: Any
    began: Any = None
    episode_return: Any = None
    episode_length: Any = None
    policy_state: Any = None
    first_policy_state: Any = None


def rollout(
    env: FunctionalEnv,
    policy: Policy,
    policy_params: AnyTree,
    key: Any,
    num_steps: int,
    num_envs: int,
    *,
    env_params: AnyTree = None,
    carry: Carry | None = None,
    max_episode_steps: Any = UNSET,
    policy_state: AnyTree = None,
    wrapper_state: AnyTree = None,
    collect: Sequence[str] = (),
    final_observation: bool = True,
    sharding: Any = None,
) -> tuple[Carry, Trajectory[JaxArray]]:
    """Take steps in many environments with a policy, in one compiled `lax.scan`.

    Episodes that end are reset in the same step. `rollout` may be called inside `jit`, `vmap` and `grad`.

    It compiles once for each environment, policy and shape. Environments of one class with equal attributes count as
    the same. Functions count as the same only if they are the same object. A policy must not contain arrays in a
    closure, or in attributes of an object that is not a pytree, since they would be constants in the compiled code.

    Args:
        env: the `FunctionalEnv` to step.
        policy: `policy(policy_params, observation, key) -> (action, extras)`, for a batch of observations. With
            `policy_state` it is `policy(policy_params, observation, key, policy_state) -> (action, extras, policy_state)`.
        policy_params: the first argument of the policy: any pytree. Its arrays and floats may change without a new
            compilation. Other leaves, such as the functions in an Equinox module, are static and must be hashable.
        key: a JAX key, or an integer as its seed. Pass a different key in each call.
        num_steps: the number of steps to take in each environment.
        num_envs: the number of environments.
        env_params: the parameters of the environment, or a dict of the parameters that differ from the defaults. With a
            carry, they apply from the next step on, or from the next episode on if the environment draws them.
        carry: the carry of another rollout, to continue from. None starts new episodes in all environments.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        policy_state: the state of the policy at the first step of each episode, for example of a recurrent policy: a
            pytree of arrays (num_envs, ...). Do not pass it with a carry, which already contains it.
        wrapper_state: the initial statistics of the wrappers of `wrap`: `carry.env_state.wrappers` of another rollout,
            or the result of `env.state_dict(carry.env_state)`. Steps update the statistics, unless `freeze` was called
            on them.
        collect: additional fields of the transitions: "info", "state" or both.
        final_observation: whether transitions include `final_observation`, the observations before resets, which need
            as much memory as `observation`.
        sharding: `NamedSharding(mesh, PartitionSpec("envs"))` spreads the environments over the devices of `mesh`. The
            number of environments must be divisible by the number of devices. Results are the same as on one device,
            up to rounding.

    Returns:
        The `Carry`, from which another rollout can continue, and the `Trajectory` of all steps.

    Raises:
        arrayferry.OptionError: an argument is invalid, or the policy contains an array.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, rollout
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> env = CartPole()
        >>> carry, transitions = rollout(env, policy, None, jax.random.key(0), 10, 4)
        >>> transitions.reward.shape
        (10, 4)
        >>> carry, more = rollout(env, policy, None, jax.random.key(1), 10, 4, carry=carry)

        A policy that remembers how many steps it has taken:

        >>> def counting(params, observation, key, steps):
        ...     return (steps % 2).astype(int), None, steps + 1
        >>> carry, transitions = rollout(
        ...     env, counting, None, jax.random.key(0), 10, 4, policy_state=jax.numpy.zeros(4, int)
        ... )
        >>> transitions.action[:4, 0]
        Array([0, 1, 0, 1], dtype=int32)
    """
    num_steps = count_of("num_steps", num_steps)
    check_flag("final_observation", final_observation)
    run = Run(
        "rollout", env, policy, policy_params, key, num_envs, env_params, max_episode_steps, policy_state,
        wrapper_state, sharding,
    )  # fmt: skip
    call = Call(run, num_steps, _collected(collect), final_observation)
    if carry is not None:
        _check_carry(carry, call)
    return call(_rollout, carry)  # type: ignore[no-any-return]


def first_carry(
    env: FunctionalEnv,
    policy: Policy,
    policy_params: AnyTree,
    key: Any,
    num_envs: int,
    **options: Any,
) -> Carry:
    """Return the initial carry of a rollout.

    A rollout with this carry shares compiled code with the rollouts that continue it. Its results are the same as
    without this carry. The arguments are those of the rollout. The options are `env_params`, `max_episode_steps`,
    `policy_state`, `wrapper_state` and `sharding`.

    Raises:
        arrayferry.OptionError: an argument is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, rollout
        >>> from arrayferry_envs.extending import first_carry
        >>> def policy(params, observation, key):
        ...     return jax.random.randint(key, observation.shape[:1], 0, 2), None
        >>> arguments = CartPole(), policy, None, jax.random.key(0)
        >>> carry = first_carry(*arguments, 4)
        >>> same = rollout(*arguments, 10, 4)[1].reward == rollout(*arguments, 10, 4, carry=carry)[1].reward
        >>> bool(same.all())
        True
    """
    run = Run("rollout", env, policy, policy_params, key, num_envs, **options)
    return Call(run)(_first_carry)  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _first_carry(program: Program, values: Values) -> Any:
    steps = Steps(program, values)
    # a step with any valid action shows the dtype of rewards, so the policy need not be called
    action = batch_space(steps.action_space, program.call.num_envs).sample()
    return steps.start(jax.random.split(values.key)[0], jax.tree.map(jnp.asarray, action))


def _check_carry(carry: Any, call: Call) -> None:
    """Check the type and the number of environments of a carry, and that no policy or wrapper state is also passed."""
    if not isinstance(carry, Carry):
        raise af.OptionError(
            f"carry={carry!r:.80} is not a Carry", remedy="Pass the first result of rollout."
        )
    for name, option, owner in (
        ("policy_state", call.run.policy_state, "the policy"),
        ("wrapper_state", call.run.wrapper_state, "the wrappers"),
    ):
        if option is not None:
            raise af.OptionError(
                f"carry and {name} were both passed, but the carry already has the state of {owner}",
                remedy=f"Pass {name} to the first rollout only, and then the carry that it returned.",
            )
    elapsed = getattr(carry.env_state, "elapsed", None)
    if elapsed is not None and elapsed.shape != (call.num_envs,):
        raise af.OptionError(
            f"num_envs is {call.num_envs}, but carry has {elapsed.shape[0]} environments",
            remedy="Pass the number of environments with which the first rollout began.",
        )


@functools.partial(jax.jit, static_argnums=0)
def _rollout(program: Program, values: Values, carry: Carry | None) -> Any:
    num_steps, collect, keeps_final = program.call.options
    steps = Steps(program, values)
    reset_key, key = jax.random.split(values.key)
    carry = steps.start(reset_key) if carry is None else steps.resumed(carry, reset_key)

    def scan_step(carry: Carry, key: Any) -> tuple[Carry, Trajectory]:
        next_carry, transition, outcome = steps.take(carry, key)
        if not keeps_final:
            transition = transition._replace(final_observation=None)
        if "state" in collect:
            transition = transition._replace(state=as_returned(carry.env_state.state))
        if "info" in collect:
            info = outcome.info if outcome.final_info is None else outcome.final_info
            transition = transition._replace(info=info)
        return next_carry, transition

    return jax.lax.scan(scan_step, carry, jax.random.split(key, num_steps))


class Steps:
    """Takes steps in a batch of environments with a policy, in code that JAX compiles.

    Args:
        program: the static part of the call.
        values: the arguments that are not static.
        extras: whether transitions contain the extras of the policy.
    """

    def __init__(self, program: Program, values: Values, *, extras: bool = True) -> None:
        call = program.call
        env, self._policy, policy_params = call.static_part.join(values.leaves)
        params = call.env_params.with_values(values.env_params)
        self._num_envs = call.num_envs
        self._policy_state = values.policy_state
        functions = Functions(
            env, autoreset_mode=AutoresetMode.SAME_STEP, max_episode_steps=call.max_episode_steps,
            sharding=call.sharding,
        )  # fmt: skip
        self._name, self.action_space = type(env).__name__, functions._chain.outside.action
        self._reset = functools.partial(
            functions.reset, num_envs=call.num_envs, params=params,
            wrapper_state=values.wrapper_state,
        )  # fmt: skip
        self._advance = functools.partial(functions.step, params=params)
        self._first_returns = functions.first_returns

        def act(observation: AnyTree, key: Any, state: AnyTree) -> tuple[Any, Any, Any]:
            action, raw_extras, state = acted(self._policy, policy_params, observation, key, state)
            return action, checked_extras(raw_extras) if extras else None, state

        self._act = jax.jit(act, inline=True)
        # the step is jitted, so that `start` and `take` trace it only once
        self._step = jax.jit(self._taken, inline=True)

    def _taken(
        self, acting: Any, stepping: Any, env_state: AnyTree, observation: AnyTree, state: AnyTree
    ) -> Any:
        """Call the policy and take a step. Return the action, extras, policy state, environments and outcome."""
        check_arguments("compiled code", self._policy, state)
        if not jax.config.jax_disable_jit:
            check_constants(self._policy, self._act, observation, acting, state)
        action, extras, state = self._act(observation, acting, state)
        env_state, outcome = self._advance(stepping, env_state, action)
        return action, extras, state, env_state, outcome

    def start(self, key: Any, action: AnyTree = None) -> Carry:
        """Begin episodes. A step may be traced to find the dtype of rewards, with `action` or the policy's action."""
        env_state, observation = self._reset(key)
        state, n = self._policy_state, self._num_envs
        returns = self._first_returns(
            n,
            lambda: (
                self._step(key, key, env_state, observation, state)[-1]
                if action is None
                else self._advance(key, env_state, action)[1]
            ),
        )
        length = jnp.zeros(n, jnp.int32)
        return Carry(env_state, observation, jnp.ones(n, bool), returns, length, state, state)

    def resumed(self, carry: Carry, key: Any) -> Carry:
        """Check the carry of another rollout. Return it with values for the fields that a user left out.

        Raises:
            arrayferry.OptionError: the arrays of the carry do not match this environment and policy.
        """
        carry_forms = _forms((carry.env_state, carry.observation))
        fresh_forms = _forms(jax.eval_shape(lambda: self._reset(key)))
        if carry_forms != fresh_forms:
            raise af.OptionError(
                f"carry does not match {self._name}: its arrays are {', '.join(carry_forms)}, but those of {self._name} are {', '.join(fresh_forms)}",
                remedy="Pass the first result of rollout for this environment and these options, or no carry.",
            )
        if carry.began is None:  # the user called Carry(env_state, observation)
            elapsed = carry.env_state.elapsed
            total = jax.eval_shape(lambda: self.start(key)).episode_return
            carry = carry._replace(
                began=elapsed == 0,
                episode_return=jnp.zeros(total.shape, total.dtype),
                episode_length=elapsed,
            )
        return carry

    def take(self, carry: Carry, key: Any) -> tuple[Carry, Trajectory, Any]:
        """Take a step in all environments. Return the next carry, the transition, and the outcome of the step."""
        policy_key, step_key = jax.random.split(key)
        policy_state = began_anew(carry.began, carry.first_policy_state, carry.policy_state)
        action, extras, policy_state, env_state, outcome = self._step(
            policy_key, step_key, carry.env_state, carry.observation, policy_state
        )
        reward = outcome.reward.astype(carry.episode_return.dtype)
        total = summed(jnp, carry.began, carry.episode_return, reward)
        length = summed(jnp, carry.began, carry.episode_length, 1)
        transition = Trajectory(
            carry.observation, action, outcome.reward, outcome.terminated, outcome.truncated,
            outcome.final_observation, extras, carry.began, total, length,
        )  # fmt: skip
        first_state = carry.first_policy_state
        next_carry = Carry(
            env_state, outcome.observation, outcome.ended, total, length, policy_state, first_state
        )
        return next_carry, transition, outcome


def _forms(tree: AnyTree) -> list[str]:
    return [f"{jnp.result_type(x)}{list(jnp.shape(x))}" for x in jax.tree.leaves(tree)]


def _collected(collect: Any) -> tuple[str, ...]:
    """Check the option `collect`, and return its names, sorted and without duplicates."""
    names = (collect,) if isinstance(collect, str) else tuple(collect)
    for name in names:
        if name not in ("info", "state"):
            raise af.OptionError(
                f"collect={collect!r:.80}: a rollout cannot collect {name!r}",
                remedy="Pass 'info', 'state' or both.",
            )
    return tuple(sorted(set(names)))
