"""Environments of Gymnasium, written for every array library: tables, Acrobot and both mountain cars.

Importing this registers their ids, and imports none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arrayferry_envs import register

if TYPE_CHECKING:
    from .acrobot import Acrobot, AcrobotParams
    from .blackjack import Blackjack, BlackjackParams
    from .cliff_walking import CliffWalking
    from .frozen_lake import FrozenLake
    from .mountain_car import MountainCar, MountainCarContinuous, MountainCarParams
    from .table import TabularEnv, Transitions
    from .taxi import Taxi

__all__ = [
    "Acrobot",
    "AcrobotParams",
    "Blackjack",
    "BlackjackParams",
    "CliffWalking",
    "FrozenLake",
    "MountainCar",
    "MountainCarContinuous",
    "MountainCarParams",
    "TabularEnv",
    "Taxi",
    "Transitions",
]

_MODULES = {
    "Acrobot": "acrobot",
    "AcrobotParams": "acrobot",
    "Blackjack": "blackjack",
    "BlackjackParams": "blackjack",
    "CliffWalking": "cliff_walking",
    "FrozenLake": "frozen_lake",
    "MountainCar": "mountain_car",
    "MountainCarContinuous": "mountain_car",
    "MountainCarParams": "mountain_car",
    "TabularEnv": "table",
    "Taxi": "taxi",
    "Transitions": "table",
}

_LIMITS = {
    "acrobot:Acrobot": 500,
    "blackjack:Blackjack": None,
    "cliff_walking:CliffWalking": None,
    "cliff_walking:CliffWalkingSlippery": None,
    "frozen_lake:FrozenLake": 100,
    "frozen_lake:FrozenLake8x8": 200,
    "mountain_car:MountainCar": 200,
    "mountain_car:MountainCarContinuous": 999,
    "taxi:Taxi": 200,
}
"""The paths of the registered classes in this package, and their limits of steps."""
PATHS = {path.partition(":")[2]: f"{__name__}.{path}" for path in _LIMITS}
"""The path of each registered class, by its name."""

for _path, _limit in _LIMITS.items():
    register(
        f"arrayferry/{_path.partition(':')[2]}-v0",
        f"{__name__}.{_path}",
        **({} if _limit is None else {"max_episode_steps": _limit}),
    )


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
