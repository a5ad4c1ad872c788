"""The rules of episodes: what a step does in each environment, in each autoreset mode.

An episode ends with the step that terminates or truncates it. When the next one begins depends on the mode:

- NEXT_STEP: in the next step, whose action is ignored. Its reward is 0, and it ends no episode.
- SAME_STEP: in the step that ended the episode. Its observation and infos are those of the reset; the last ones of the
  episode are `final_obs` and `final_info` in the infos.
- DISABLED: with `reset`. Until then, steps do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

import arrayferry as af

from ._arrays import as_flags, copied, mapped, select
from ._spaces.batches import join

LOST = "final_obs_lost"
"""The key in the metadata of environments that reset in the same step, and do not return the last observations of episodes."""


class Turn(NamedTuple):
    """What a step does in each environment: masks (n,) of any library, or one value for one environment.

    Attributes:
        valid: where the step belongs to an episode; None for everywhere.
        reset: where another episode begins in this call; None for nowhere.
        done: where the step has ended an episode.
        over: where no episode is in progress after the call; None for nowhere.
    """

    valid: Any
    reset: Any
    done: Any
    over: Any


class Step(NamedTuple):
    """The result of a step of `n` environments.

    Attributes:
        observation: the observations after the step: a tree of arrays (n, *shape). For a kernel they are those before
            any reset, for an agent those after.
        reward: the rewards, (n, *reward_shape).
        terminated: which episodes have terminated, bool (n,).
        truncated: which episodes have been truncated, bool (n,).
        info: further information on the states, as a dict of arrays (n, ...). A kernel adds keys by making a new dict.
        valid: where the step belongs to an episode, bool (n,); None for everywhere. Where the episode had already ended
            it does not: with NEXT_STEP another one begins, with DISABLED the environment waits for `reset`.
        final_observation: in SAME_STEP mode the observations before the reset, for all environments; otherwise None.
        final_info: in SAME_STEP mode the infos before the reset; otherwise None.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]
    valid: Any = None
    final_observation: Any = None
    final_info: dict[str, Any] | None = None

    @property
    def ended(self) -> Any:
        """Which episodes have ended with this step, bool (n,)."""
        ended = self.terminated | self.truncated
        return ended if self.valid is None else ended & self.valid


def turn(mode: AutoresetMode, over: Any, terminated: Any, truncated: Any) -> Turn:
    """Return what a step does in each environment. `reset` is None where it is known to be false everywhere.

    Args:
        mode: when episodes that have ended are reset.
        over: where an episode had ended before the step, bool (n,); None for nowhere.
        terminated: which episodes have terminated, bool (n,), as reported by the environment. Ignored where the step is
            not valid.
        truncated: which have been truncated, likewise.
    """
    done = terminated | truncated
    if mode is AutoresetMode.SAME_STEP:
        return Turn(None, None if _nowhere(done) else done, done, None)
    if over is None or _nowhere(over):
        return Turn(None, None, done, done)
    valid = False if over is True else ~over
    done = done & valid
    if mode is AutoresetMode.NEXT_STEP:
        return Turn(valid, over, done, done)
    return Turn(valid, None, done, done | over)


def _nowhere(mask: Any) -> bool:
    """Tell whether a mask is false everywhere. Only those of NumPy are read: others might wait for a device."""
    return mask is False or (type(mask) is np.ndarray and 1 not in mask.tobytes())


def summed(xp: Any, began: Any, before: Any, more: Any) -> Any:
    """Return sums over the steps of the current episodes. They start from 0 where an episode began with this step."""
    return select(xp, began, xp.zeros_like(before), before) + more


def loses_final(envs: Any) -> bool:
    """Return whether environments do not return the last observations of episodes."""
    return bool((envs.metadata or {}).get(LOST))


def serves_functional(env: Any) -> bool:
    """Tell whether an environment is what serves a `FunctionalEnv`, without a wrapper."""
    return hasattr(env, "functional") and env is env.unwrapped


def checked_infos(envs: Any, infos: Any) -> Any:
    """Return the infos of vector environments.

    Raises:
        TypeError: they are a list.
    """
    if isinstance(infos, Mapping):
        return infos
    raise TypeError(
        f"{envs!r:.80} returns a {type(infos).__name__} as infos, but a dict is needed. Put DictInfoToList outside of all others"
    )


def final_observations(
    envs: Any, infos: Any, ended: Any, observations: Any, to_library: Callable[[Any], Any]
) -> Any:
    """Return the observations of a step in SAME_STEP mode from before any reset, in memory of their own.

    Args:
        envs: the environments.
        infos: the infos of the step.
        ended: where an episode has ended, bool (n,) of any library.
        observations: the observations that the step has returned, in the library of the result.
        to_library: converts a value to this library.

    Raises:
        arrayferry.OptionError: they are not in the infos. Without them, first observations would be mistaken for last ones.
    """
    final: Any = checked_infos(envs, infos).get("final_obs")
    if final is not None and serves_functional(envs):
        return to_library(final)  # which has those of the step in the other rows
    where = missing = to_library(ended)
    if final is not None:
        missing = where & ~as_flags(to_library(infos.get("_final_obs", where)))
    if af.convert(missing, "numpy").any():
        raise af.OptionError(
            f"{envs!r:.80} resets in the same step, but its infos have no 'final_obs' where an episode has ended",
            remedy='Make it with autoreset_mode="Disabled", or return the observations before the reset.',
        )
    if final is None:
        return mapped(lambda x: copied(x) if hasattr(x, "shape") else x, observations)
    if isinstance(final, np.ndarray) and final.dtype == object:
        rows: list[Any] = [(slice(None), observations), *enumerate(final)]
        pieces = [(i, af.convert(row, "numpy")) for i, row in rows if row is not None]
        space = envs.single_observation_space
        return to_library(join(getattr(space, "original", space), pieces, len(final)))
    return before_resets(af.namespace_of(where), where, to_library(final), observations)


def before_resets(xp: Any, ended: Any, final: Any, observations: Any) -> Any:
    """Return the observations after a step, before any reset in it.

    Args:
        xp: the namespace of the observations.
        ended: where an episode has ended, bool (n,).
        final: the last observations there: a batch, whose other rows are ignored.
        observations: the observations that the step has returned, a batch.
    """
    return mapped(lambda last, other: select(xp, ended, last, other), final, observations)
