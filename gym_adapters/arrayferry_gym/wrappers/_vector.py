"""`KernelVectorWrapper`, which applies a kernel to a vector environment, in any autoreset mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._adapters.spaces import original_space
from arrayferry_gym._episodes import Episodes, checked_infos, checked_reset
from arrayferry_gym._options.env_options import reset_mask_of
from arrayferry_gym._options.refusals import refuse_other
from arrayferry_gym._spaces.trees import build, split

from ._attributes import TO_NUMPY, HasStatistics, add_infos, kernels_in, masks_of
from ._driver import Driver, space_like, step_limit
from ._kernels.kernel import Kernel, Spaces, Step

_OWN = __name__, f"{__name__}_only"
"""The modules of wrappers whose `step` returns flags unchanged. The `step` of a user's class may change flags."""

if TYPE_CHECKING:
    _Wrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:  # in Gymnasium 1.3 and older, VectorWrapper is not generic
    _Wrapper = VectorWrapper


@uncompiled
class KernelVectorWrapper(HasStatistics, _Wrapper):
    """A wrapper that applies a kernel to a vector environment, in the library of the environment's arrays.

    The environment's autoreset mode determines which rows of a step's results update the kernel's state:

    - NEXT_STEP: rows whose episode had not ended before the step. Other rows only begin a new episode.
    - SAME_STEP: all rows. Where an episode has ended, its final observation updates the state, and then a new episode
        begins. If the environment loses final observations, kernels that use only observations skip the rows where an
        episode has ended.
    - DISABLED: rows whose episode had not ended before the step. `reset` begins episodes in all rows, or in the rows of
        `reset_mask`.

    Args:
        env: the vector environment to wrap. It may be an adapter of this package.
        kernel: the kernel to apply.

    Raises:
        TypeError: `env` lacks the spaces of one environment, as environments of SuperSuit do.
        arrayferry.OptionError: a step in SAME_STEP mode ends an episode, and its infos lack the "final_obs" that the
            kernel reads.
    """

    _driver: Driver
    _episodes: Episodes

    def __init__(self, env: VectorEnv[Any, Any, Any], kernel: Kernel) -> None:
        if not hasattr(env, "single_observation_space"):
            refuse_other(type(self).__name__, env, Env, "arrayferry_gym.wrappers")
            raise TypeError(
                f"{type(self).__name__} was given {env!r:.80}, which has no single_observation_space and "
                "single_action_space. Set them to the spaces of one environment, and return infos as a dict"
            )
        VectorWrapper.__init__(self, env)
        inside_spaces = Spaces(
            original_space(env.single_observation_space),
            original_space(env.single_action_space),
            step_limit(env),
        )
        self._episodes = episodes = Episodes(env, masks=TO_NUMPY, inside=self._inside())
        rule = episodes.rule
        self._driver = driver = Driver(
            kernel, inside_spaces, self.num_envs, kernels_in(env), same_step=rule.same_step
        )
        self._kernel = kernel = driver.kernel
        self._shows_final = rule.tells_final and driver.observes
        # if final observations are lost, kernels that use only observations skip the rows of ended episodes
        self._lost = episodes.loses_final and not (driver.rewarded or driver.flagged)
        for field in ("observation", "action"):
            space = getattr(kernel.outside, field)
            if space is not getattr(inside_spaces, field):
                spaces = {"single_": space, "": batch_space(space, self.num_envs)}
                for prefix, shown in spaces.items():
                    name = f"{prefix}{field}_space"
                    setattr(self, name, space_like(shown, getattr(env, name)))

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`, and the rows of the kernel's state for them."""
        mask = options.get("reset_mask") if isinstance(options, dict) else None
        # a copy, since Gymnasium's environments would remove the mask from the caller's options
        forwarded = {**options} if isinstance(options, dict) else options
        observations, infos = checked_reset(self.env, self.env.reset(seed=seed, options=forwarded))
        driver = self._driver
        driver.seed(seed)
        driver.use(observations)
        rows = reset_mask_of(mask, self.num_envs)
        self._note_reset(rows)
        rows = None if rows is None else driver.own(rows)
        if not driver.observes:
            driver.begin(None, rows)
            return observations, infos
        return driver.begin(driver.own(observations), rows), infos

    def _note_reset(self, rows: AnyArray) -> None:
        """Record that episodes begin in the rows of a NumPy mask (n,), or in all rows if the mask is None."""
        self._episodes.begin(rows)

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        driver = self._driver
        if driver.acts:
            actions = driver.act(actions)
        observations, rewards, *flags, infos = self.env.step(actions)
        driver.follow(observations if driver.observes else rewards)
        observed = driver.own(observations) if driver.observes else None
        reward = rewards if driver.rewarded else None
        to_library = driver.own if driver.observes and not self._lost else None
        step = self._episodes.step((observed, reward, *flags, infos), to_library, self._inside())
        valid, begin_mask = self._episodes.masks_in(driver.own, driver.device)
        if self._lost and begin_mask is not None:
            valid = ~begin_mask
        seen_obs = observed if step.final_observation is None else step.final_observation
        flag_pair = (step.terminated, step.truncated) if driver.flagged else None
        result, shown = driver.take(seen_obs, step.reward, flag_pair, valid, begin_mask, observed)
        if result.info or self._shows_final:
            infos = self._informed(checked_infos(self.env, infos), result)
        if driver.observes:
            observations = shown
        if driver.rewarded:
            rewards = result.reward
        return observations, rewards, step.terminated, step.truncated, infos

    def _inside(self) -> Episodes | None:
        """Return the `Episodes` of `env` if `env` is a wrapper that returns flags unchanged, or else None."""
        if not isinstance(env := self.env, KernelVectorWrapper):
            return None
        return env._episodes if type(env).step.__module__ in _OWN else None

    def _informed(self, infos: dict[str, Any], result: Step) -> dict[str, Any]:
        """Return infos with final observations that the kernel has changed, and with the infos of the kernel."""
        final_obs = infos.get("final_obs") if self._shows_final else None
        if final_obs is not None:
            shown = result.observation
            if isinstance(final_obs, np.ndarray) and final_obs.dtype == object:
                space, final_obs = self._kernel.outside.observation, final_obs.copy()
                parts = split(space, shown)
                for i in np.flatnonzero(self._episodes.masks.done):
                    final_obs[i] = build(space, (_row(x, int(i)) for x in parts))
                shown = final_obs
            infos = {**infos, "final_obs": shown}
        if result.info:
            infos = {**infos}
            add_infos(infos, result.info, masks_of(result.info))
        return infos


def _row(x: AnyArray, index: int) -> Any:
    if isinstance(x, np.ndarray):
        return np.array(x[index])
    return x[index, ...] if hasattr(x, "shape") else x[index]
