"""Kernels around vector environments, in each autoreset mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from arrayferry_gym._adapters.spaces import original_space
from arrayferry_gym._arrays import as_flags, as_rewards
from arrayferry_gym._episodes import (
    RULES,
    Turn,
    checked_infos,
    declared_mode,
    final_observations,
    loses_final,
)
from arrayferry_gym._options.env_options import reset_mask_of
from arrayferry_gym._spaces.trees import build, split

from ._attributes import TO_NUMPY, HasStatistics, add_infos, masks_of
from ._driver import Driver, space_like, step_limit
from ._kernels.kernel import Kernel, Spaces, Step

if TYPE_CHECKING:
    _Wrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:  # it takes no parameters in Gymnasium 1.3 and older
    _Wrapper = VectorWrapper


class KernelVectorWrapper(HasStatistics, _Wrapper):
    """A kernel around a vector environment, in the library of its arrays.

    Which rows count in a step depends on the environment's autoreset mode:

    - NEXT_STEP: those whose episode had not ended before. The others only begin a new episode.
    - SAME_STEP: all, with the final observations where an episode has ended. Then new episodes begin there. If the
      environment loses final observations, kernels of observations alone do not count these rows.
    - DISABLED: those whose episode had not ended before. Episodes begin with `reset`, for all or those in `reset_mask`.

    Args:
        env: the vector environment, or an adapter of this package around one.
        kernel: the kernel.

    Raises:
        TypeError: `env` has no spaces of one environment, as those of SuperSuit.
        arrayferry.OptionError: raised by `step` if the kernel reads observations, and infos have no "final_obs" where
            an episode has ended in SAME_STEP mode.
    """

    _driver: Driver
    _turn: Turn
    """What the last step did."""

    def __init__(self, env: VectorEnv[Any, Any, Any], kernel: Kernel) -> None:
        if not hasattr(env, "single_observation_space"):
            raise TypeError(
                f"{type(self).__name__} was given {env!r:.80}, which has no single_observation_space and "
                "single_action_space. Set them to the spaces of one environment, and let its infos be a dict"
            )
        VectorWrapper.__init__(self, env)
        inside = Spaces(
            original_space(env.single_observation_space),
            original_space(env.single_action_space),
            step_limit(env),
        )
        self._rule = rule = RULES[declared_mode(env)]
        self._driver = Driver(kernel, inside, self.num_envs, same_step=rule.same_step)
        self._kernel = kernel = self._driver.kernel
        self._loses_final = loses_final(env)
        self._over: Any = None
        outside = kernel.outside
        if outside.observation is not inside.observation:
            self._show(outside.observation, observed=True)
        if outside.action is not inside.action:
            self._show(outside.action, observed=False)

    def _show(self, space: Space[Any], *, observed: bool) -> None:
        name = "observation_space" if observed else "action_space"
        env, many = self.env, batch_space(space, self.num_envs)
        single = space_like(space, getattr(env, f"single_{name}"), observed=observed)
        setattr(self, f"single_{name}", single)
        setattr(self, name, space_like(many, getattr(env, name), observed=observed))

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`, and begin episodes there."""
        mask = options.get("reset_mask") if isinstance(options, dict) else None
        # a copy, since Gymnasium's environments remove the mask from it
        given = {**options} if isinstance(options, dict) else options
        observations, infos = self.env.reset(seed=seed, options=given)
        driver = self._driver
        driver.seed(seed)
        driver.use(observations)
        rows = reset_mask_of(mask, self.num_envs)
        self._over = None if rows is None or self._over is None else self._over & ~rows
        rows = None if rows is None else driver.own(rows)
        if not driver.observes:
            driver.begin(None, rows)
            return observations, infos
        return driver.begin(driver.own(observations), rows), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        driver = self._driver
        if driver.acts:
            actions = driver.act(actions)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        driver.follow(observations if driver.observes else rewards)
        terminated, truncated = as_flags(terminated), as_flags(truncated)
        ended = TO_NUMPY(terminated), TO_NUMPY(truncated)
        self._turn = turn = self._rule.turn(self._over, *ended)
        self._over, valid = turn.over, turn.valid
        seen = given = driver.own(observations) if driver.observes else None
        if self._rule.same_step and turn.reset is not None:
            if self._loses_final and not (driver.rewarded or driver.flagged):
                valid = ~turn.reset  # the others have no observation
            elif driver.observes:
                seen = final_observations(self.env, infos, turn.reset, given, driver.own)
        reward = rewards if driver.rewarded else None
        if isinstance(reward, (list, tuple)):
            reward = as_rewards(reward)
        flags = (terminated, truncated) if driver.flagged else None
        result, shown = driver.take(seen, reward, flags, valid, turn.reset, given)
        if result.info or (self._rule.tells_final and driver.observes):
            infos = self._informed(checked_infos(self.env, infos), result, turn.done)
        if driver.observes:
            observations = shown
        if driver.rewarded:
            rewards = result.reward
        return observations, rewards, terminated, truncated, infos

    def _informed(self, infos: dict[str, Any], result: Step, ended: Any) -> dict[str, Any]:
        """Return infos with the final observations for the agent, and the entries that the kernel has added."""
        final = infos.get("final_obs") if self._rule.tells_final and self._driver.observes else None
        if final is not None:
            shown = result.observation
            if isinstance(final, np.ndarray) and final.dtype == object:
                space, final = self._kernel.outside.observation, final.copy()
                parts = split(space, shown)
                for i in np.flatnonzero(ended):
                    final[i] = build(space, (_row(x, int(i)) for x in parts))
                shown = final
            infos = {**infos, "final_obs": shown}
        if result.info:
            infos = {**infos}
            add_infos(infos, result.info, masks_of(result.info))
        return infos


def _row(x: Any, index: int) -> Any:
    if isinstance(x, np.ndarray):
        return np.array(x[index])
    return x[index, ...] if hasattr(x, "shape") else x[index]
