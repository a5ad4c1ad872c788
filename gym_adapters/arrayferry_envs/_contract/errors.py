"""The errors of environments."""

from __future__ import annotations

from arrayferry import ArrayFerryError, Backend, TracedValueError


class ImpureError(ArrayFerryError, AttributeError):
    """An environment was changed after its construction, for example by an assignment to `self` in a method."""


class EnvResultError(ArrayFerryError, TypeError):
    """A method of an environment returned an invalid result."""


class UnknownEnvError(ArrayFerryError, LookupError):
    """There is no suite or environment with this id.

    Attributes:
        name: the id.
        nearest: similar ids that exist.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", name: str = "", nearest: tuple[str, ...] = ()
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.name = name
        self.nearest = nearest


def usable(backend: Backend) -> Backend:
    """Check that the library of a backend is usable here, and return the backend.

    Raises:
        arrayferry.ArrayFerryError: the library is not usable here.
    """
    problem = backend.problem()
    if problem is not None:
        raise problem
    return backend


def traced_env(name: str, what: str) -> TracedValueError:
    """Return the error for a served environment that is called in a function that JAX traces.

    Args:
        name: the name of the environment.
        what: the method that was called.
    """
    return TracedValueError(
        f"{what} of the served {name} was called in a function that JAX traces (jit, scan, vmap, grad). The call "
        "would store traced values in the environment, which is not part of the traced function",
        remedy="In traced functions, use rollout or Functions of arrayferry_envs, with the FunctionalEnv, "
        "envs.functional.",
    )
