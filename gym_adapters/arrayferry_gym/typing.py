"""Types for annotations of code that uses the adapters, and of classes derived from the adapters.

- `ObsT`, `ActT` and `ArrT` are the type variables of the adapters. They stand for observations, for actions, and
  for rewards and flags of a vector environment. Type checkers assume `Any` for a variable that is not stated.
- `CheckActions` is the option `check_actions`.

Example:
    >>> import gymnasium as gym
    >>> from arrayferry_gym import ArrayConversion
    >>> from arrayferry_gym.typing import CheckActions
    >>> def adapted(env_id: str, check_actions: CheckActions = "fit"):
    ...     return ArrayConversion(gym.make(env_id), target_xp="torch", check_actions=check_actions)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ObsT = TypeVar("ObsT", default=Any)
    ActT = TypeVar("ActT", default=Any)
    ArrT = TypeVar("ArrT", default=Any)
else:
    from typing import TypeVar

    ObsT, ActT, ArrT = map(TypeVar, ("ObsT", "ActT", "ArrT"))

__all__ = ["ActT", "ArrT", "CheckActions", "ObsT"]

CheckActions = Literal["fit", "strict", "off"]
