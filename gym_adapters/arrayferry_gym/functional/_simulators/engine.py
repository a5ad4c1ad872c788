"""The engine: pure functions that restart and advance a batch of environments, for arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from arrayferry_gym._arrays import select
from arrayferry_gym._episodes import turn as turn_of
from arrayferry_gym.functional._contract.checked import CheckedEnv


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
"""Takes a mask, states and their observations; returns both, restarted where the mask is true."""


def restart(
    env: CheckedEnv, rng: Any, running: Running | None, mask: Any, params: Any, given: Any = None
) -> tuple[Running, Any, dict[str, Any]]:
    """Restart all environments, or only those in a mask if `running` is passed; in the states `given`, if any."""
    xp, n = env.xp, env.n
    state = env.reset(rng, n, params) if given is None else given
    elapsed = xp.zeros((n,), dtype=xp.int32)
    ended = xp.zeros((n,), dtype=xp.bool)
    if running is not None:
        state = env.select(mask, state, running.state)
        elapsed = xp.where(mask, elapsed, running.elapsed)
        ended = running.ended & ~mask
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
) -> tuple[Running, Outcome]:
    """Take a step in all environments. All shapes are fixed.

    Args:
        env: the environments.
        mode: when episodes that have ended are reset.
        rng: random numbers for the step.
        running: the environments.
        action: their actions.
        params: the parameters.
        renew: resets those in a mask.
    """
    xp, n = env.xp, env.n
    state, reward, terminated, truncated = env.step(rng, running.state, env.clip(action), params)
    elapsed = running.elapsed + 1
    if env.limit is not None:
        late = elapsed >= env.limit
        truncated = late if truncated is None else truncated | late
    elif truncated is None:
        truncated = xp.zeros((n,), dtype=xp.bool)
    observation = env.observe(state, params)
    turn = turn_of(mode, running.ended, terminated, truncated)
    final = final_info = None
    if mode is AutoresetMode.SAME_STEP:
        final, final_info = observation, env.inform(state, params)
    elif mode is AutoresetMode.NEXT_STEP:
        reward = select(xp, turn.begins, xp.zeros_like(reward), reward)
        terminated, truncated = terminated & turn.counts, truncated & turn.counts
    if turn.begins is not None:
        state, observation = renew(turn.begins, state, observation)
        elapsed = xp.where(turn.begins, xp.zeros_like(elapsed), elapsed)
    ended = running.ended if turn.ended is None else turn.ended
    info = env.inform(state, params)
    outcome = Outcome(observation, reward, terminated, truncated, final, info, final_info)
    return Running(state, elapsed, ended), outcome


def with_masks(env: CheckedEnv, info: dict[str, Any], observation: Any = None) -> dict[str, Any]:
    """Return infos as vector environments do, with a mask for each key.

    If observations have an "action_mask", it is in the infos, too.
    """
    if env.masks_actions and observation is not None and "action_mask" not in info:
        mask = observation["action_mask"]
        shared = env.backend.memory == "immutable"
        info = {**info, "action_mask": mask if shared else env.backend.copy(mask)}
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
