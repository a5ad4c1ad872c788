"""What can be wrong with an environment."""

from __future__ import annotations

from arrayferry import ArrayFerryError, TracedValueError

__all__ = ["EnvResultError", "ImpureError", "StaleStateError", "traced_env"]


class ImpureError(ArrayFerryError, AttributeError):
    """An environment was changed after it was made, as by an assignment to `self` in one of its methods."""


class EnvResultError(ArrayFerryError, TypeError):
    """A method of an environment returned what it must not return."""


class StaleStateError(ArrayFerryError, ValueError):
    """A step was taken from a state that is not the newest of an ordinary environment."""


def traced_env(name: str, what: str) -> TracedValueError:
    """Return the error for a served environment that JAX traces.

    Args:
        name: of the environment.
        what: what was called.
    """
    return TracedValueError(
        f"{what} of the served {name} was called in a function that JAX traces, as by jit, scan, vmap or "
        "grad. It changes the environment, which is no part of the traced function and would keep its traced values",
        remedy="Use rollout, or reset and step of Functions, both of arrayferry_gym.functional: they take the "
        "environment itself (envs.functional), and are made for traced functions.",
    )
