"""The rules of episodes: what a step does in each environment, in each autoreset mode.

An episode ends with the step that terminates or truncates it. When the next episode begins depends on the mode:

- NEXT_STEP: in the next step, which ignores its action. The reward of this step is 0, and it ends no episode.
- SAME_STEP: in the step that ended the episode. This step returns the observation and infos of the reset. In its infos,
  `final_obs` and `final_info` are the last observation and info of the episode that ended.
- DISABLED: when the caller calls `reset`. Until then, steps do not belong to an episode.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace

from ._arrays import as_flags, as_rewards, copied, mapped, select
from ._spaces.batches import with_rows

LOST = "final_obs_lost"
"""The metadata key of environments that reset in the same step without returning the last observations of episodes."""


class StepMasks(NamedTuple):
    """Masks of environments, bool (n,), of any library. They tell what a step does in each environment.

    Attributes:
        valid: where the step belongs to an episode, or None for everywhere.
        reset: where the step begins a new episode, or None for nowhere.
        done: where the step has ended an episode.
        over: where no episode is in progress after the step, or None for nowhere.
    """

    valid: Any
    reset: Any
    done: Any
    over: Any


class Rule(NamedTuple):
    """What an autoreset mode does at the end of an episode.

    Attributes:
        same_step: whether the step that ends an episode also begins the next, and returns its first observation.
        by_itself: whether the next episode begins without a call of `reset`, in the same step or in the next step.
        tells_final: whether the step that ends an episode returns its last observation in infos, as `final_obs`.
    """

    same_step: bool
    by_itself: bool
    tells_final: bool

    def masks(self, over: Any, terminated: AnyArray, truncated: AnyArray) -> StepMasks:
        """Return the masks of a step.

        The mask `reset` is None if it is known that no environment resets. This is known only for NumPy masks, since
        reading other masks might block.

        Args:
            over: where an episode had already ended before the step, bool (n,), or None for nowhere.
            terminated: which episodes have terminated, bool (n,), as reported by the environment. Ignored where the
                step is not valid.
            truncated: which episodes have been truncated, bool (n,), as reported by the environment. Ignored where the
                step is not valid.
        """
        done = terminated | truncated
        if self.same_step:
            return StepMasks(None, None if nowhere(done) else done, done, None)
        if over is None or nowhere(over):
            return StepMasks(None, None, done, done)
        valid = ~over
        done = done & valid
        if self.by_itself:
            return StepMasks(valid, over, done, done)
        return StepMasks(valid, None, done, done | over)


RULES: dict[Any, Rule] = {
    AutoresetMode.NEXT_STEP: Rule(same_step=False, by_itself=True, tells_final=False),
    AutoresetMode.SAME_STEP: Rule(same_step=True, by_itself=True, tells_final=True),
    AutoresetMode.DISABLED: Rule(same_step=False, by_itself=False, tells_final=False),
}
"""The rule of each autoreset mode."""


def autoreset_mode_of(given: Any, modes: Iterable[Any] = RULES, of: str = "") -> AutoresetMode:
    """Return the autoreset mode for a mode, a value such as "SameStep", or a name such as "SAME_STEP".

    Args:
        given: the mode, its value or its name.
        modes: the supported modes.
        of: the name, in the error, of the object that supports only these modes.

    Raises:
        arrayferry.OptionError: `given` is none of the supported modes.
    """
    for mode in modes:
        if given is mode or str(given).upper().replace("-", "_") in (mode.name, mode.value.upper()):
            return mode  # type: ignore[no-any-return]
    owner_text = f" for {of}" if of else ""
    raise af.OptionError(
        f"autoreset_mode={given!r:.80} is not valid{owner_text}",
        remedy=f"Pass one of {', '.join(map(str, modes))}.",
    )


def declared_mode(env: Any) -> AutoresetMode:
    """Return the autoreset mode in the metadata of a vector environment. If it is missing, warn and assume NEXT_STEP."""
    mode = (env.metadata or {}).get("autoreset_mode", getattr(env, "autoreset_mode", None))
    if mode is None:
        gym.logger.warn(
            f"{env} is missing `autoreset_mode` data, so that NEXT_STEP is assumed. Set metadata['autoreset_mode']."
        )
        return AutoresetMode.NEXT_STEP
    if not isinstance(mode, (str, *map(type, RULES))):
        raise TypeError(
            f"Expected env.metadata['autoreset_mode'] to be an AutoresetMode or its name, got {type(mode)}"
        )
    return autoreset_mode_of(mode)


class Step(NamedTuple):
    """The result of a step of `n` environments.

    Attributes:
        observation: the observations after the step, a tree of arrays (n, *shape). If the step also resets, kernels
            receive the observations before the reset, and agents those after it.
        reward: the rewards, (n, *reward_shape).
        terminated: which episodes have terminated, bool (n,).
        truncated: which episodes have been truncated, bool (n,).
        info: further information on the states, as a dict of arrays (n, ...). To add keys, a kernel creates a new dict.
        valid: where the step belongs to an episode, bool (n,), or None for everywhere. False where the episode had
            already ended. In NEXT_STEP mode, the step resets these environments. In DISABLED mode, they wait for a call
            of `reset`.
        final_observation: the observations of all environments before any reset, in SAME_STEP mode. Otherwise None.
        final_info: the infos before any reset, in SAME_STEP mode. Otherwise None.
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
        """A mask of the environments whose episode has ended with this step, bool (n,)."""
        ended = self.terminated | self.truncated
        return ended if self.valid is None else ended & self.valid


def nowhere(mask: AnyArray) -> bool:
    """Tell whether a NumPy mask is false everywhere. For other masks, return False, since reading them might block."""
    return type(mask) is np.ndarray and 1 not in mask.tobytes()


class EpisodeMasks:
    """Records in which environments episodes are in progress, and what each step does.

    Args:
        rule: the rule of the autoreset mode.

    Attributes:
        over: where no episode is in progress, bool (n,), or None for nowhere.
        masks: the `StepMasks` of the last step.
    """

    rule: Rule
    over: Any
    masks: StepMasks

    def __init__(self, rule: Rule) -> None:
        self.rule, self.over = rule, None

    def begin(self, rows: AnyArray = None) -> None:
        """Record that a reset began episodes in the rows of a mask, bool (n,), or in all rows if it is None."""
        self.over = None if rows is None or self.over is None else self.over & ~rows

    def take(self, terminated: AnyArray, truncated: AnyArray) -> StepMasks:
        """Record the flags of a step, bool (n,). Return the masks of the step."""
        return self._note(self.rule.masks(self.over, terminated, truncated))

    def _note(self, masks: StepMasks) -> StepMasks:
        self.masks, self.over = masks, masks.over
        return masks


class Episodes(EpisodeMasks):
    """Converts the results of vector environments to `Step`s, in any autoreset mode.

    Args:
        envs: the vector environment that returns the results.
        mode: the autoreset mode, or None for the mode in the metadata of `envs`.
        masks: a function that converts the pair of flags to the library of the masks. By default, flags stay unchanged.
        inside: the `Episodes` of `envs`, if `envs` is a wrapper with an `Episodes`. Otherwise None.

    Attributes:
        loses_final: whether the last observations of episodes are missing in the results.
    """

    _envs: Any
    _given: tuple[Any, ...] = ()
    _converted: dict[Any, tuple[Any, Any]]

    def __init__(
        self, envs: Any, mode: Any = None, masks: Any = tuple, inside: Episodes | None = None
    ) -> None:
        inner_envs = None if inside is None else inside._envs
        # use an inner `ServesFunctional`, since its wrapper returns the same `final_obs`
        self._envs = inner_envs if isinstance(inner_envs, ServesFunctional) else envs
        self._masks = masks
        super().__init__(RULES[declared_mode(envs) if mode is None else mode])
        self.loses_final: bool = loses_final(envs)

    @staticmethod
    def final_infos(observation: AnyTree, info: AnyTree, ended: AnyArray) -> dict[str, Any]:
        """Return the infos for the ends of episodes: the last observations and infos, before any reset.

        Args:
            observation: the observations before any reset.
            info: the infos before any reset, and their masks. If `info` is empty, `final_info` is left out.
            ended: where an episode has ended, bool (n,).
        """
        infos = {"final_obs": observation, "_final_obs": ended}
        return {**infos, "final_info": info, "_final_info": ended} if info else infos

    FINAL = final_infos(None, True, None).keys()
    """The keys of the result of `final_infos`."""

    def step(
        self, results: AnyTree, to_library: Callable[[Any], Any] | None = None, inside: Episodes | None = None
    ) -> Step:  # fmt: skip
        """Return the results of a step as a `Step`, with flags as bool arrays and rewards as an array.

        Args:
            results: observations, rewards, both flags and infos. All except the flags may be None if they are not
                needed.
            to_library: a function that converts a value to the library of the observations. None if `final_observation`
                is not needed.
            inside: the `Episodes` of the wrapper inside, or None. If that wrapper returned the same two arrays of
                flags, its masks are used, so that the flags are not read again.

        Raises:
            arrayferry.OptionError: last observations are needed, but missing in the infos.
        """
        observation, reward, terminated, truncated, infos = results
        terminated, truncated = as_flags(terminated), as_flags(truncated)
        if reward is not None and not hasattr(reward, "dtype"):
            reward = as_rewards(reward)
        mask_inputs: Any = self.over, terminated, truncated
        if inside is not None and all(map(operator.is_, mask_inputs, inside._given)):
            self._note(inside.masks)
            self._converted = inside._converted
        else:
            self.take(*self._masks(mask_inputs[1:]))
            self._converted = {}
        self._given, masks = mask_inputs, self.masks
        final = None if to_library is None else observation
        may_reset = self.rule.same_step and masks.reset is not None
        if (
            to_library is not None
            and may_reset
            and (type(masks.done) is np.ndarray or masks.done.any())
        ):
            final = final_observations(self._envs, infos, masks.done, observation, to_library)
        return Step(observation, reward, terminated, truncated, infos, masks.valid, final)

    def masks_in(self, own: af.Conversion, device: Device) -> tuple[Any, Any]:
        """Return the masks `valid` and `reset` of the last step, converted. Nested wrappers share the converted arrays.

        Args:
            own: the conversion to the library and device of the results.
            device: the device of the results, or None for the library's default device.
        """
        valid, reset = self.masks[:2]
        if valid is None is reset:
            return None, None
        cache_key = own.target, device
        if cache_key not in self._converted:
            self._converted[cache_key] = own((valid, reset))
        return self._converted[cache_key]


def summed(xp: Namespace, began: AnyArray, before: Any, more: Any) -> Any:
    """Return sums over the steps of the current episodes.

    Args:
        xp: the namespace of the arrays.
        began: where an episode began with this step, bool (n,). There, the sums start from 0.
        before: the sums before this step, (n, ...).
        more: the numbers of this step, (n, ...).
    """
    return select(xp, began, xp.zeros_like(before), before) + more


def checked_reset(env: Any, results: AnyTree) -> tuple[Any, Any]:
    """Check that `reset` has returned observations and infos, and return them.

    Raises:
        TypeError: the results are not observations and infos. In Gym before 0.26, `reset` returns only the observation.
            This error is also raised for an observation that is a tuple of two arrays.
    """
    infos = results[1] if isinstance(results, (tuple, list)) and len(results) == 2 else results
    if infos is results or hasattr(infos, "shape") or isinstance(infos, (str, Number)):
        raise TypeError(
            f"reset() of {env!r:.80} returned a {type(results).__name__}, but observations and infos are needed, "
            "(observation, info). For an environment of Gym before 0.26, use Shimmy: "
            "gymnasium.make('GymV21Environment-v0', env=env)"
        )
    observations, infos = results
    return observations, infos


def loses_final(envs: Any) -> bool:
    """Tell whether vector environments reset in the same step without returning the last observations of episodes."""
    return bool((envs.metadata or {}).get(LOST))


class ServesFunctional:
    """A vector environment around a `FunctionalEnv`. The `final_obs` in its infos has a row for each environment.

    Attributes:
        check_actions: "fit", "strict" or "off", as in adapters.
    """

    check_actions: str
    _limit: int | None
    """The number of steps after which an episode is truncated, or None for no limit."""


def checked_infos(envs: Any, infos: AnyTree) -> Any:
    """Check that the infos of vector environments are a dict, and return them.

    Raises:
        TypeError: the infos are not a dict.
    """
    if isinstance(infos, Mapping):
        return infos
    raise TypeError(
        f"{envs!r:.80} returns a {type(infos).__name__} as infos, but a dict is needed. Put DictInfoToList outside all other wrappers"
    )


def final_observations(
    envs: Any,
    infos: AnyTree,
    ended: AnyArray,
    observations: AnyTree,
    to_library: Callable[[Any], Any],
) -> Any:
    """Return the observations after a step and before its resets, in SAME_STEP mode, as new arrays.

    Args:
        envs: the vector environment that took the step.
        infos: the infos of the step.
        ended: where an episode has ended, bool (n,) of any library.
        observations: the observations that the step has returned, already in the library of the result.
        to_library: a function that converts a value to the library of the result.

    Raises:
        arrayferry.OptionError: an episode has ended, but its last observation is not in the infos.
    """
    final: Any = checked_infos(envs, infos).get("final_obs")
    if final is not None and isinstance(envs, ServesFunctional):
        return to_library(final)  # where no episode ended, `final` equals `observations`
    ended_mask = missing = to_library(ended)
    if final is not None:
        missing = ended_mask & ~as_flags(to_library(infos.get("_final_obs", ended_mask)))
    if af.convert(missing, "numpy").any():
        raise af.OptionError(
            f"{envs!r:.80} resets in the same step, but its infos have no 'final_obs' where an episode has ended",
            remedy='Make it with autoreset_mode="Disabled", or let it return infos["final_obs"].',
        )
    if final is None:
        return mapped(lambda x: copied(x) if hasattr(x, "shape") else x, observations)
    if isinstance(final, np.ndarray) and final.dtype == object:
        space, batch = envs.single_observation_space, af.convert(observations, "numpy")
        rows = (None if row is None else af.convert(row, "numpy") for row in final)
        return to_library(with_rows(getattr(space, "original", space), batch, rows))
    return before_resets(af.namespace_of(ended_mask), ended_mask, to_library(final), observations)


def before_resets(xp: Namespace, ended: AnyArray, final: AnyTree, observations: AnyTree) -> Any:
    """Return the observations after a step and before its resets.

    Args:
        xp: the namespace of the observations.
        ended: where an episode has ended, bool (n,).
        final: a batch with the last observations in the rows of ended episodes. Other rows are ignored.
        observations: a batch of the observations that the step has returned.
    """
    return mapped(lambda x, y: select(xp, ended, x, y), final, observations)
