"""Types of the adapters for type checkers. At run time, only the type variables exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Literal, Protocol, TypedDict, final

    from gymnasium.vector import AutoresetMode
    from typing_extensions import TypeVar

    from arrayferry.typing import Array

    @final
    class Nothing:
        """A type that no value has, so that only Any fits it."""

    CheckActions = Literal["fit", "strict", "off"]

    class Served(TypedDict, total=False):
        """The options of a `FunctionalEnv` that is served."""

        device: Any
        max_episode_steps: int | None
        params: Any
        render_mode: str | None
        check_actions: CheckActions
        differentiable: bool

    class VectorServed(Served, total=False):
        """The options of a batch of a `FunctionalEnv`."""

        autoreset_mode: AutoresetMode | str

    class Module(Protocol):
        """A module of PyTorch, which may not be installed."""

        def state_dict(self, *args: Any, **options: Any) -> Any: ...

    ObsT = TypeVar("ObsT", default=Any)
    ActT = TypeVar("ActT", default=Any)
    ArrT = TypeVar("ArrT", default=Any)

    K = TypeVar("K")
    V = TypeVar("V")
    W = TypeVar("W")
    X = TypeVar("X", bound=Array)
else:
    from typing import TypeVar

    ObsT = TypeVar("ObsT")
    ActT = TypeVar("ActT")
    ArrT = TypeVar("ArrT")
