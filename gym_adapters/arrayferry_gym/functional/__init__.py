"""Environments that belong to no array library: written once, served in each, compiled in JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._base import FunctionalEnv
from ._check import Problem, check
from ._engine import Outcome, Running
from ._errors import EnvResultError, ImpureError, StaleStateError
from ._others import from_env
from ._repeated import RepeatedEnv, repeat_action
from ._single import FunctionalSingleEnv
from ._vector import FunctionalVectorEnv
from ._video import video
from ._wrapped import WrappedEnv, freeze, wrap
from .classic import (
    Acrobot,
    AcrobotParams,
    CartPole,
    CartPoleParams,
    MountainCar,
    MountainCarContinuous,
    MountainCarParams,
    Pendulum,
    PendulumParams,
)
from .registration import register
from .tabular import (
    Blackjack,
    BlackjackParams,
    CliffWalking,
    FrozenLake,
    TabularEnv,
    Taxi,
    Transitions,
)

if TYPE_CHECKING:
    from ._episode import Episode, episode
    from ._evaluation import Evaluation, evaluate
    from ._host import HostFunctions
    from ._jax import Functions
    from ._rollout import Carry, Transition, rollout

__all__ = [
    "Acrobot",
    "AcrobotParams",
    "Blackjack",
    "BlackjackParams",
    "Carry",
    "CartPole",
    "CartPoleParams",
    "CliffWalking",
    "EnvResultError",
    "Episode",
    "Evaluation",
    "FrozenLake",
    "FunctionalEnv",
    "FunctionalSingleEnv",
    "FunctionalVectorEnv",
    "Functions",
    "HostFunctions",
    "ImpureError",
    "MountainCar",
    "MountainCarContinuous",
    "MountainCarParams",
    "Outcome",
    "Pendulum",
    "PendulumParams",
    "Problem",
    "RepeatedEnv",
    "Running",
    "StaleStateError",
    "TabularEnv",
    "Taxi",
    "Transition",
    "Transitions",
    "WrappedEnv",
    "check",
    "episode",
    "evaluate",
    "freeze",
    "from_env",
    "register",
    "repeat_action",
    "rollout",
    "video",
    "wrap",
]

_JAX = {
    "Functions": "_jax",
    "HostFunctions": "_host",
    "Carry": "_rollout",
    "Episode": "_episode",
    "Evaluation": "_evaluation",
    "Transition": "_rollout",
    "episode": "_episode",
    "evaluate": "_evaluation",
    "rollout": "_rollout",
}


if not TYPE_CHECKING:  # or checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        if name not in _JAX:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        import arrayferry as af

        problem = af.registry.backend("jax").problem()
        if problem is not None:
            raise problem
        from importlib import import_module

        return getattr(import_module(f".{_JAX[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
