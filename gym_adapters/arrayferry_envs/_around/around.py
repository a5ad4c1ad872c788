"""`AroundEnv`: the base class of environments that contain another environment."""

from __future__ import annotations

import dataclasses
from typing import Any

from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._contract.functional_env import FunctionalEnv


@dataclasses.dataclass(eq=False, repr=False)
class AroundEnv(FunctionalEnv):
    """A `FunctionalEnv` that contains an inner environment. Its parameters, metadata and library are the inner ones.

    Attributes:
        env: the inner environment.
    """

    # `==` ignores the fields below `env`, whose values follow from `env` and fields of subclasses
    env: FunctionalEnv
    observation_space: Any = dataclasses.field(init=False, compare=False)
    action_space: Any = dataclasses.field(init=False, compare=False)
    default_params: Any = dataclasses.field(init=False, compare=False)
    metadata: dict[str, Any] = dataclasses.field(init=False, compare=False)
    library: str | None = dataclasses.field(init=False, compare=False)
    max_episode_steps: int | None = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("default_params", "metadata", "library", "max_episode_steps", "_shared"):
            setattr(self, name, getattr(self.env, name))
        self._set_spaces()

    def _set_spaces(self) -> None:
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space

    def _limited(self, limit: int | None) -> int | None:
        return self.env._limited(limit)

    @property
    def reward_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the reward of one environment."""
        return self._rewards()[0]

    @property
    def reward_dtype(self) -> str | None:  # type: ignore[override]
        """The name of the dtype of rewards, or None if the environment does not state it."""
        return self._rewards()[1]

    def _rewards(self) -> tuple[tuple[int, ...], str | None]:
        return self.env.reward_shape, self.env.reward_dtype

    @property
    def _draws_params(self) -> bool:
        return self.env._draws_params

    def _random(self, xp: Namespace, rng: Any, n: int) -> Any:
        return self.env._random(xp, rng, n)

    def render(self, state: AnyTree, index: int) -> Any:
        """Draw environment `index` with `render` of the inner environment, whose states are `state.state`."""
        return self.env.render(state.state, index)
