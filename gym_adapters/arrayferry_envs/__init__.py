"""Environments for all array libraries: written once, served in each library, compiled in JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import arrayferry_gym  # noqa: F401  # first, since it says how to install Gymnasium

# isort: split
from ._around.repeated import RepeatedEnv, repeat_action
from ._around.seeded import SeededEnv, with_seeds
from ._around.wrapped import WrappedEnv, freeze, wrap
from ._contract.check import check_functional_env
from ._contract.errors import EnvResultError, ImpureError, UnknownEnvError, usable
from ._contract.functional_env import FunctionalEnv
from ._contract.mistakes import Problem
from ._engine.engine import EnvState
from ._evaluate import evaluate
from ._evaluation import Evaluation
from ._export import check_export, export
from ._ids import register_all
from ._minari import Stored, to_minari
from ._served.single import FunctionalSingleEnv
from ._served.vector import FunctionalVectorEnv
from ._suites.door import make, make_functional, make_vec, suites
from ._suites.from_env import from_env
from ._suites.suite import Suite
from ._video import record
from .classic.cart_pole import CartPole, CartPoleParams
from .classic.pendulum import Pendulum, PendulumParams
from .registration import register

if TYPE_CHECKING:
    from ._compiled.functions import Functions
    from ._compiled.gymnax_form import GymnaxForm, GymnaxParams, to_gymnax
    from ._compiled.rollout import Carry, Trajectory, rollout
    from ._suites.jax_env import JaxEnv

__all__ = [
    "Carry",
    "CartPole",
    "CartPoleParams",
    "EnvResultError",
    "EnvState",
    "Evaluation",
    "FunctionalEnv",
    "FunctionalSingleEnv",
    "FunctionalVectorEnv",
    "Functions",
    "GymnaxForm",
    "GymnaxParams",
    "ImpureError",
    "JaxEnv",
    "Pendulum",
    "PendulumParams",
    "Problem",
    "RepeatedEnv",
    "SeededEnv",
    "Stored",
    "Suite",
    "Trajectory",
    "UnknownEnvError",
    "WrappedEnv",
    "check_export",
    "check_functional_env",
    "evaluate",
    "export",
    "freeze",
    "from_env",
    "make",
    "make_functional",
    "make_vec",
    "record",
    "register",
    "repeat_action",
    "rollout",
    "suites",
    "to_gymnax",
    "to_minari",
    "with_seeds",
    "wrap",
]

register_all()

_JAX = {
    "Functions": "_compiled.functions",
    "GymnaxForm": "_compiled.gymnax_form",
    "GymnaxParams": "_compiled.gymnax_form",
    "Carry": "_compiled.rollout",
    "Trajectory": "_compiled.rollout",
    "rollout": "_compiled.rollout",
    "to_gymnax": "_compiled.gymnax_form",
    "JaxEnv": "_suites.jax_env",
}


if not TYPE_CHECKING:  # a visible __getattr__ would make type checkers accept any name

    def __getattr__(name: str) -> Any:
        if name not in _JAX:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        import arrayferry as af

        usable(af.registry.backend("jax"))
        from importlib import import_module

        return getattr(import_module(f".{_JAX[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
