"""The engine: pure functions that restart and advance a batch of environments, for arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_gym._arrays import select
from arrayferry_gym._episodes import Turn
from arrayferry_gym._episodes import turn as turn_of
from arrayferry_gym.wrappers._kernels.kernel import Chain, StepResult

LAST = 2**31 - 1
"""The largest number of steps that an episode counts. A higher limit is never reached."""


class Running(NamedTuple):
    """A batch of environments between two steps.

    Attributes:
        state: the states, a tree of arrays (n, ...).
        elapsed: the number of steps of each episode so far, int32 of shape (n,).
        ended: which episodes have ended and have not been reset yet, bool of shape (n,).
        wrappers: the states of the kernels around the environment, innermost first.
    """

    state: Any
    elapsed: Any
    ended: Any
    wrappers: Any = ()


class Outcome(NamedTuple):
    """The result of a step, for `n` environments.

    Attributes:
        observation: the observations, a tree of arrays (n, *shape).
        reward: the rewards, (n,).
        terminated: which episodes have terminated, bool (n,).
        truncated: which episodes the environment has truncated or have reached the step limit, bool (n,).
        final_observation: in SAME_STEP mode the observations before the reset, for all environments; otherwise None.
        info: further information on the states.
        final_info: in SAME_STEP mode the same before the reset; otherwise None.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any
    info: dict[str, Any]
    final_info: dict[str, Any] | None


Renew = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Takes a mask, states, and their observations or None; returns states that are restarted in the mask, and observations."""


def restart(
    env: CheckedEnv, state: Any, params: Any, before: Running | None = None, mask: Any = None
) -> tuple[Running, Any, dict[str, Any]]:
    """Return environments that begin with these states, their observations and infos.

    Args:
        env: the environments.
        state: the states.
        params: the parameters.
        before: the environments so far, None if all begin.
        mask: which of them begin, bool (n,).
    """
    xp, n = env.xp, env.n
    elapsed = xp.zeros((n,), dtype=xp.int32)
    ended = xp.zeros((n,), dtype=xp.bool)
    if before is not None:
        elapsed = xp.where(mask, elapsed, before.elapsed)
        ended = before.ended & ~mask
    observation = env.observe(state, params)
    return Running(state, elapsed, ended), observation, env.inform(state, params)


def advance(
    env: CheckedEnv,
    mode: AutoresetMode,
    rng: Any,
    running: Running,
    action: Any,
    params: Any,
    renew: Renew,
    chain: Chain | None = None,
    acting: Any = None,
) -> tuple[Running, Outcome]:
    """Take a step in all environments, with the kernels around them. All shapes are fixed.

    Args:
        env: the environments.
        mode: when episodes that have ended are reset.
        rng: random numbers for the step.
        running: the environments.
        action: their actions.
        params: the parameters.
        renew: resets those in a mask.
        chain: the kernels around the environments, None if there are none.
        acting: random numbers for kernels that change actions.
    """
    xp, kernels = env.xp, running.wrappers
    if chain is not None and chain.acts:
        kernels, action = chain.action(xp, acting, kernels, action)
    state, reward, terminated, truncated = env.step(rng, running.state, env.clip(action), params)
    elapsed = running.elapsed + 1
    if env.limit is not None:
        late = elapsed >= min(env.limit, LAST)
        truncated = late if truncated is None else truncated | late
    elif truncated is None:
        truncated = elapsed < 0  # nowhere
    turn = turn_of(mode, running.ended, terminated, truncated)
    final = final_info = None
    if mode is AutoresetMode.SAME_STEP:
        final, final_info = env.observe(state, params), env.inform(state, params)
    elif turn.reset is not None:
        reward = select(xp, turn.reset, 0.0, reward)
        terminated, truncated = terminated & turn.valid, truncated & turn.valid
    if turn.reset is not None:
        state, observation = renew(turn.reset, state, final)
        goes_on = ~turn.reset if turn.valid is None else turn.valid
        elapsed = elapsed * xp.astype(goes_on, xp.int32)  # quicker than where
    else:
        observation = env.observe(state, params) if final is None else final
    info = env.inform(state, params)
    outcome = Outcome(observation, reward, terminated, truncated, final, info, final_info)
    if chain is not None:
        kernels, outcome = _through(chain, xp, kernels, outcome, turn)
    ended = running.ended if turn.over is None else turn.over
    return Running(state, elapsed, ended, kernels), outcome


def _through(
    chain: Chain, xp: Any, kernels: Any, outcome: Outcome, turn: Turn
) -> tuple[Any, Outcome]:
    """Pass a step through kernels. Return their states, and the outcome for the agent."""
    same = outcome.final_info is not None
    seen = outcome.final_observation if same else outcome.observation
    info: Any = outcome.final_info if same else outcome.info
    result = StepResult(seen, *outcome[1:4], info, turn.valid)
    kernels, result, observation = chain.take(
        xp, kernels, result, turn.reset, outcome.observation, same_step=same
    )
    added = {key: value for key, value in result.info.items() if key not in info}
    return kernels, outcome._replace(
        observation=observation,
        reward=result.reward,
        final_observation=result.observation if same else None,
        info={**outcome.info, **added},
        final_info=result.info if same else None,
    )


def with_masks(env: CheckedEnv, info: dict[str, Any], observation: Any) -> dict[str, Any]:
    """Return infos as vector environments do, with a mask for each key.

    If observations have an "action_mask", it is in the infos, too.
    """
    if env.masks_actions and "action_mask" not in info:
        info = {**info, "action_mask": observation["action_mask"]}
    infos: dict[str, Any] = {}
    for key, value in info.items():
        infos[key] = value
        infos[f"_{key}"] = env.xp.ones((env.n,), dtype=env.xp.bool)
    return infos


def as_step_result(env: CheckedEnv, outcome: Outcome) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Return the outcome of a step in the form of `VectorEnv.step`."""
    infos = {}
    if outcome.info or env.masks_actions:
        infos = with_masks(env, outcome.info, outcome.observation)
    if outcome.final_observation is not None:
        infos["final_obs"] = outcome.final_observation
        infos["_final_obs"] = outcome.terminated | outcome.truncated
        if outcome.final_info or env.masks_actions:
            infos["final_info"] = with_masks(
                env, outcome.final_info or {}, outcome.final_observation
            )
            infos["_final_info"] = outcome.terminated | outcome.truncated
    return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, infos
