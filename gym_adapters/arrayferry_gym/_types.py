"""What type checkers know of the adapters. At run time there is only what classes are generic in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import TypeVar

    from arrayferry.typing import Narrowing, Scalars, Sparse, Unknown

    from ._libraries import Target

    class Common(TypedDict, total=False):
        """The options of all adapters."""

        info_xp: Target | None
        convert_info: bool
        copy: bool | None
        narrowing: Narrowing
        scalars: Scalars
        unknown: Unknown
        sparse: Sparse | None
        check_actions: bool

    class Given(Common, total=False):
        """The options of an adapter to which the libraries are given."""

        env_device: Any
        target_device: Any
        like: None

    class VectorCommon(Common, total=False):
        """The options of all adapters for vector environments."""

        stack_final: bool
        reward_dtype: Any

    class VectorGiven(Given, VectorCommon, total=False):
        """The options of an adapter for vector environments to which the libraries are given."""

    ObsT = TypeVar("ObsT", default=Any)
    ActT = TypeVar("ActT", default=Any)
    ArrT = TypeVar("ArrT", default=Any)
else:
    from typing import TypeVar

    ObsT = TypeVar("ObsT")
    ActT = TypeVar("ActT")
    ArrT = TypeVar("ArrT")

__all__ = ["ActT", "ArrT", "ObsT"]
