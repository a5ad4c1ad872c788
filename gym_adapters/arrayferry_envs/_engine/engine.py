"""`Engine`: resets and advances a batch of environments, with arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_gym.extending import RULES, Chain, Episodes, select
from arrayferry_gym.wrappers.kernels import State, Step

LAST = 2**31 - 1
"""The largest step limit, which is the largest int32. Higher limits are replaced by it."""


class EnvState(NamedTuple):
    """A batch of environments between two steps.

    Attributes:
        state: the states, a tree of arrays (n, ...).
        elapsed: the number of steps of each episode so far, int32 of shape (n,).
        ended: which environments have ended an episode and were not reset yet, bool of shape (n,).
        wrappers: the states of the kernels around the environment, innermost first.
    """

    state: Any
    elapsed: Any
    ended: Any
    wrappers: Any = ()


Renew = Callable[[Any, Any, Any], tuple[Any, Any]]
"""A function (mask, states, observations or None) that resets environments where the mask is true.

It returns the states and the observations of all environments.
"""


class Engine:
    """Resets and advances a batch of environments and the kernels around them, by functions without side effects.

    Shapes do not depend on values, so that JAX can compile the functions. All code that runs a `FunctionalEnv` uses
    the engine.

    Args:
        env: the environments without their kernels.
        mode: the autoreset mode: when environments are reset after an episode.
        chain: the kernels.
        tells_masks: whether infos include the "action_mask" of observations.
    """

    def __init__(
        self, env: CheckedEnv, mode: AutoresetMode, chain: Chain, *, tells_masks: bool = False
    ) -> None:
        self.env, self.mode, self.chain = env, mode, chain
        self._tells_masks = tells_masks and env.masks_actions
        self._informs = env.has_info or self._tells_masks
        self._of_one: Any = None

    def kernel_states(self) -> tuple[State, ...]:
        """Return the states of the kernels before the first episodes."""
        return self.chain.init(self.env.xp, self.env.n, None)

    def _fresh(self) -> Any:
        """Return initial states of the kernels for one environment. They are cached, unless JAX may trace them."""
        if self._of_one is not None:
            return self._of_one
        states = self.chain.init(self.env.xp, 1, None)
        self._of_one = None if self.env.traces else states
        return states

    def _info(self, state: AnyTree, params: AnyTree, observation: AnyTree) -> dict[str, Any]:
        if not self._informs:
            return {}
        info = self.env.inform(state, params)
        if self._tells_masks and "action_mask" not in info:
            info = {**info, "action_mask": observation["action_mask"]}
        return info

    def reset(
        self,
        state: AnyTree,
        params: AnyTree,
        kernels: Any,
        before: EnvState | None = None,
        mask: AnyArray = None,
    ) -> tuple[EnvState, Any, dict[str, Any]]:
        """Begin episodes in all environments or those of a mask. Return the `EnvState`, all observations and all infos.

        Args:
            state: the states of all environments, which are fresh where episodes begin.
            params: the parameters.
            kernels: the states of the kernels, whose statistics continue.
            before: the environments before the reset, or None if an episode begins in each of them.
            mask: which environments begin an episode, bool (n,).
        """
        env, xp = self.env, self.env.xp
        elapsed = xp.zeros((env.n,), dtype=xp.int32)
        ended = xp.zeros((env.n,), dtype=xp.bool)
        if before is not None:
            elapsed = xp.where(mask, elapsed, before.elapsed)
            ended = before.ended & ~mask
        observation = env.observe(state, params)
        info = self._info(state, params, observation)
        if kernels:
            row_mask = None if before is None else mask
            kernels, observation = self.chain.begin(
                xp, kernels, self._fresh(), row_mask, observation
            )
        return EnvState(state, elapsed, ended, kernels), observation, info

    def step(
        self,
        rng: Any,
        env_state: EnvState,
        action: AnyTree,
        params: AnyTree,
        renew: Renew,
        acting: Any,
    ) -> tuple[EnvState, Step, dict[str, Any]]:
        """Take a step in all environments.

        Args:
            rng: random numbers for the step.
            env_state: the environments before the step.
            action: the actions of the agent.
            params: the parameters.
            renew: a function that resets the environments in a mask.
            acting: random numbers for kernels that change actions.

        Returns:
            The environments after the step, the outcome of the step, and the infos that kernels added.
        """
        env, xp, kernels = self.env, self.env.xp, env_state.wrappers
        rule = RULES[self.mode]
        if self.chain.acts:
            kernels, action = self.chain.action(xp, acting, kernels, action)
        state, reward, terminated, truncated = env.step(
            rng, env_state.state, env.clip(action), params
        )
        elapsed = env_state.elapsed + 1
        if env.limit is not None:
            at_limit = elapsed >= min(env.limit, LAST)
            truncated = at_limit if truncated is None else truncated | at_limit
        elif truncated is None:
            truncated = elapsed < 0  # all false, since elapsed > 0
        masks = rule.masks(env_state.ended, terminated, truncated)
        final = final_info = None
        if rule.same_step:
            final = env.observe(state, params)
            final_info = self._info(state, params, final)
        elif masks.reset is not None:
            reward = select(xp, masks.reset, 0.0, reward)
            terminated, truncated = terminated & masks.valid, truncated & masks.valid
        if masks.reset is not None:
            state, observation = renew(masks.reset, state, final)
            continues = ~masks.reset if masks.valid is None else masks.valid
            elapsed = elapsed * xp.astype(continues, xp.int32)  # a product is faster than `where`
        else:
            observation = env.observe(state, params) if final is None else final
        info = self._info(state, params, observation)
        outcome = Step(
            observation, reward, terminated, truncated, info, masks.valid, final, final_info
        )
        added: dict[str, Any] = {}
        if kernels:
            kernels, outcome, added = self._through(kernels, outcome, masks.reset)
        ended = env_state.ended if masks.over is None else masks.over
        return EnvState(state, elapsed, ended, kernels), outcome, added

    def _through(
        self, kernels: Any, outcome: Step, begins: AnyArray
    ) -> tuple[Any, Step, dict[str, Any]]:
        """Apply the kernels to the outcome of a step."""
        is_same_step = RULES[self.mode].same_step
        last_observation = outcome.final_observation if is_same_step else outcome.observation
        info: Any = outcome.final_info if is_same_step else outcome.info
        result = outcome._replace(observation=last_observation, info=info)
        # the states of kernels where an episode begins. They are unused if no episode begins
        fresh_states = kernels if begins is None else self._fresh()
        kernels, result, observation = self.chain.take(
            self.env.xp, kernels, fresh_states, result, begins, outcome.observation, is_same_step
        )
        added = {key: value for key, value in result.info.items() if key not in info}
        outcome = outcome._replace(observation=observation, reward=result.reward)
        if outcome.final_observation is not None:
            outcome = outcome._replace(final_observation=result.observation)
        return kernels, outcome, added

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_of_one": None}


def with_masks(env: CheckedEnv, info: dict[str, Any]) -> dict[str, Any]:
    """Return infos with a mask for each key, as in Gymnasium's vector environments."""
    masks = {f"_{key}": env.xp.ones((env.n,), dtype=env.xp.bool) for key in info}
    return {**info, **masks}


def with_added(outcome: Step, added: dict[str, Any]) -> Step:
    """Return the outcome of a step with the infos that kernels added."""
    if not added:
        return outcome
    final = outcome.final_info
    return outcome._replace(
        info={**outcome.info, **added}, final_info=None if final is None else {**final, **added}
    )


def as_step_result(env: CheckedEnv, outcome: Step) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Return the outcome of a step as the tuple that `VectorEnv.step` returns."""
    infos = with_masks(env, outcome.info) if outcome.info else {}
    if outcome.final_observation is not None:
        final_info = with_masks(env, outcome.final_info) if outcome.final_info else {}
        ended = outcome.terminated | outcome.truncated
        final_infos = Episodes.final_infos(outcome.final_observation, final_info, ended)
        infos = {**infos, **final_infos} if infos else final_infos
    return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, infos
