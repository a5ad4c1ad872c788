"""What type checkers know of the results of `convert` and `converter`, target by target.

The functions themselves are in `_api`. They take what is here, which a test checks.
"""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, overload

if TYPE_CHECKING:
    from typing import Unpack

    from ._conversion.conversion import Conversion
    from ._options import Narrowing, Scalars, Sparse, Unknown, Unsupported
    from ._plugin.backend import Target
    from ._registry.registry import Registry
    from ._types import (
        K2,
        X2,
        X3,
        AnyModule,
        Arrays,
        CupyArray,
        DaskArray,
        Every,
        JaxArray,
        K,
        Keeping,
        Leaf,
        NumpyArray,
        Plain,
        ToCupy,
        ToDask,
        ToJax,
        ToNumpy,
        TorchArray,
        ToTorch,
        Unclear,
        V,
        Wrong,
        X,
    )

    class Made(Plain, total=False):
        """The same, for what is made once."""

        registry: Registry | Wrong | None

    class EveryMade(Every, total=False):
        """All options, for what is made once."""

        registry: Registry | None


__all__ = ["Convert", "Converter", "typed_convert", "typed_converter"]


class Convert(Protocol):
    """The function `convert`."""

    @overload
    def __call__(self, value: Unclear, to: Target, **options: Unpack[Every]) -> Any: ...
    @overload
    def __call__(self, value: V, to: AnyModule, **options: Unpack[Every]) -> Any: ...
    @overload
    def __call__(self, value: X, to: ToNumpy, **options: Unpack[Plain]) -> NumpyArray: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToNumpy, **options: Unpack[Plain]
    ) -> dict[K, NumpyArray]: ...
    @overload
    def __call__(
        self, value: dict[K, dict[K2, X]], to: ToNumpy, **options: Unpack[Plain]
    ) -> dict[K, dict[K2, NumpyArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, list[X]], to: ToNumpy, **options: Unpack[Plain]
    ) -> dict[K, list[NumpyArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, Arrays], to: ToNumpy, **options: Unpack[Plain]
    ) -> dict[K, tuple[NumpyArray, ...]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToNumpy, **options: Unpack[Plain]
    ) -> list[NumpyArray]: ...
    @overload
    def __call__(
        self, value: list[dict[K, X]], to: ToNumpy, **options: Unpack[Plain]
    ) -> list[dict[K, NumpyArray]]: ...
    @overload
    def __call__(
        self, value: list[list[X]], to: ToNumpy, **options: Unpack[Plain]
    ) -> list[list[NumpyArray]]: ...
    @overload
    def __call__(
        self, value: list[Arrays], to: ToNumpy, **options: Unpack[Plain]
    ) -> list[tuple[NumpyArray, ...]]: ...
    @overload
    def __call__(
        self, value: tuple[X], to: ToNumpy, **options: Unpack[Plain]
    ) -> tuple[NumpyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToNumpy, **options: Unpack[Plain]
    ) -> tuple[NumpyArray, NumpyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToNumpy, **options: Unpack[Plain]
    ) -> tuple[NumpyArray, NumpyArray, NumpyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, ...], to: ToNumpy, **options: Unpack[Plain]
    ) -> tuple[NumpyArray, ...]: ...
    @overload
    def __call__(self, value: X, to: ToTorch, **options: Unpack[Plain]) -> TorchArray: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToTorch, **options: Unpack[Plain]
    ) -> dict[K, TorchArray]: ...
    @overload
    def __call__(
        self, value: dict[K, dict[K2, X]], to: ToTorch, **options: Unpack[Plain]
    ) -> dict[K, dict[K2, TorchArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, list[X]], to: ToTorch, **options: Unpack[Plain]
    ) -> dict[K, list[TorchArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, Arrays], to: ToTorch, **options: Unpack[Plain]
    ) -> dict[K, tuple[TorchArray, ...]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToTorch, **options: Unpack[Plain]
    ) -> list[TorchArray]: ...
    @overload
    def __call__(
        self, value: list[dict[K, X]], to: ToTorch, **options: Unpack[Plain]
    ) -> list[dict[K, TorchArray]]: ...
    @overload
    def __call__(
        self, value: list[list[X]], to: ToTorch, **options: Unpack[Plain]
    ) -> list[list[TorchArray]]: ...
    @overload
    def __call__(
        self, value: list[Arrays], to: ToTorch, **options: Unpack[Plain]
    ) -> list[tuple[TorchArray, ...]]: ...
    @overload
    def __call__(
        self, value: tuple[X], to: ToTorch, **options: Unpack[Plain]
    ) -> tuple[TorchArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToTorch, **options: Unpack[Plain]
    ) -> tuple[TorchArray, TorchArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToTorch, **options: Unpack[Plain]
    ) -> tuple[TorchArray, TorchArray, TorchArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, ...], to: ToTorch, **options: Unpack[Plain]
    ) -> tuple[TorchArray, ...]: ...
    @overload
    def __call__(self, value: X, to: ToJax, **options: Unpack[Plain]) -> JaxArray: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToJax, **options: Unpack[Plain]
    ) -> dict[K, JaxArray]: ...
    @overload
    def __call__(
        self, value: dict[K, dict[K2, X]], to: ToJax, **options: Unpack[Plain]
    ) -> dict[K, dict[K2, JaxArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, list[X]], to: ToJax, **options: Unpack[Plain]
    ) -> dict[K, list[JaxArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, Arrays], to: ToJax, **options: Unpack[Plain]
    ) -> dict[K, tuple[JaxArray, ...]]: ...
    @overload
    def __call__(self, value: list[X], to: ToJax, **options: Unpack[Plain]) -> list[JaxArray]: ...
    @overload
    def __call__(
        self, value: list[dict[K, X]], to: ToJax, **options: Unpack[Plain]
    ) -> list[dict[K, JaxArray]]: ...
    @overload
    def __call__(
        self, value: list[list[X]], to: ToJax, **options: Unpack[Plain]
    ) -> list[list[JaxArray]]: ...
    @overload
    def __call__(
        self, value: list[Arrays], to: ToJax, **options: Unpack[Plain]
    ) -> list[tuple[JaxArray, ...]]: ...
    @overload
    def __call__(self, value: tuple[X], to: ToJax, **options: Unpack[Plain]) -> tuple[JaxArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToJax, **options: Unpack[Plain]
    ) -> tuple[JaxArray, JaxArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToJax, **options: Unpack[Plain]
    ) -> tuple[JaxArray, JaxArray, JaxArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, ...], to: ToJax, **options: Unpack[Plain]
    ) -> tuple[JaxArray, ...]: ...
    @overload
    def __call__(self, value: X, to: ToCupy, **options: Unpack[Plain]) -> CupyArray: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToCupy, **options: Unpack[Plain]
    ) -> dict[K, CupyArray]: ...
    @overload
    def __call__(
        self, value: dict[K, dict[K2, X]], to: ToCupy, **options: Unpack[Plain]
    ) -> dict[K, dict[K2, CupyArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, list[X]], to: ToCupy, **options: Unpack[Plain]
    ) -> dict[K, list[CupyArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, Arrays], to: ToCupy, **options: Unpack[Plain]
    ) -> dict[K, tuple[CupyArray, ...]]: ...
    @overload
    def __call__(self, value: list[X], to: ToCupy, **options: Unpack[Plain]) -> list[CupyArray]: ...
    @overload
    def __call__(
        self, value: list[dict[K, X]], to: ToCupy, **options: Unpack[Plain]
    ) -> list[dict[K, CupyArray]]: ...
    @overload
    def __call__(
        self, value: list[list[X]], to: ToCupy, **options: Unpack[Plain]
    ) -> list[list[CupyArray]]: ...
    @overload
    def __call__(
        self, value: list[Arrays], to: ToCupy, **options: Unpack[Plain]
    ) -> list[tuple[CupyArray, ...]]: ...
    @overload
    def __call__(
        self, value: tuple[X], to: ToCupy, **options: Unpack[Plain]
    ) -> tuple[CupyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToCupy, **options: Unpack[Plain]
    ) -> tuple[CupyArray, CupyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToCupy, **options: Unpack[Plain]
    ) -> tuple[CupyArray, CupyArray, CupyArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, ...], to: ToCupy, **options: Unpack[Plain]
    ) -> tuple[CupyArray, ...]: ...
    @overload
    def __call__(self, value: X, to: ToDask, **options: Unpack[Plain]) -> DaskArray: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToDask, **options: Unpack[Plain]
    ) -> dict[K, DaskArray]: ...
    @overload
    def __call__(
        self, value: dict[K, dict[K2, X]], to: ToDask, **options: Unpack[Plain]
    ) -> dict[K, dict[K2, DaskArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, list[X]], to: ToDask, **options: Unpack[Plain]
    ) -> dict[K, list[DaskArray]]: ...
    @overload
    def __call__(
        self, value: dict[K, Arrays], to: ToDask, **options: Unpack[Plain]
    ) -> dict[K, tuple[DaskArray, ...]]: ...
    @overload
    def __call__(self, value: list[X], to: ToDask, **options: Unpack[Plain]) -> list[DaskArray]: ...
    @overload
    def __call__(
        self, value: list[dict[K, X]], to: ToDask, **options: Unpack[Plain]
    ) -> list[dict[K, DaskArray]]: ...
    @overload
    def __call__(
        self, value: list[list[X]], to: ToDask, **options: Unpack[Plain]
    ) -> list[list[DaskArray]]: ...
    @overload
    def __call__(
        self, value: list[Arrays], to: ToDask, **options: Unpack[Plain]
    ) -> list[tuple[DaskArray, ...]]: ...
    @overload
    def __call__(
        self, value: tuple[X], to: ToDask, **options: Unpack[Plain]
    ) -> tuple[DaskArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToDask, **options: Unpack[Plain]
    ) -> tuple[DaskArray, DaskArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToDask, **options: Unpack[Plain]
    ) -> tuple[DaskArray, DaskArray, DaskArray]: ...
    @overload
    def __call__(
        self, value: tuple[X, ...], to: ToDask, **options: Unpack[Plain]
    ) -> tuple[DaskArray, ...]: ...
    @overload
    def __call__(self, value: Leaf, to: Target, **options: Unpack[Keeping]) -> Leaf: ...
    @overload
    def __call__(
        self, value: V, to: Target, *, like: Any = None, device: Any = None,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked", scalars: Scalars | Wrong = "keep",
        unsupported: Unsupported | Wrong = "raise", unknown: Unknown | Wrong = "keep", sparse: Sparse | Wrong = "raise",
        **others: Wrong,
    ) -> Any: ...  # fmt: skip
    @overload
    def __call__(
        self, value: V, to: Target | None = None, *, like: Any, device: Any = None,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked", scalars: Scalars | Wrong = "keep",
        unsupported: Unsupported | Wrong = "raise", unknown: Unknown | Wrong = "keep", sparse: Sparse | Wrong = "raise",
        **others: Wrong,
    ) -> Any: ...  # fmt: skip


class Converter(Protocol):
    """The function `converter`."""

    @overload
    def __call__(self, to: AnyModule, **options: Unpack[EveryMade]) -> Conversion[Any]: ...
    @overload
    def __call__(self, to: ToNumpy, **options: Unpack[Made]) -> Conversion[NumpyArray]: ...
    @overload
    def __call__(self, to: ToTorch, **options: Unpack[Made]) -> Conversion[TorchArray]: ...
    @overload
    def __call__(self, to: ToJax, **options: Unpack[Made]) -> Conversion[JaxArray]: ...
    @overload
    def __call__(self, to: ToCupy, **options: Unpack[Made]) -> Conversion[CupyArray]: ...
    @overload
    def __call__(self, to: ToDask, **options: Unpack[Made]) -> Conversion[DaskArray]: ...
    @overload
    def __call__(
        self, to: Target, *, like: Any = None, device: Any = None,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked", scalars: Scalars | Wrong = "keep",
        unsupported: Unsupported | Wrong = "raise", unknown: Unknown | Wrong = "keep", sparse: Sparse | Wrong = "raise",
        registry: Registry | Wrong | None = None, **others: Wrong,
    ) -> Conversion[Any]: ...  # fmt: skip
    @overload
    def __call__(
        self, to: Target | None = None, *, like: Any, device: Any = None,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked", scalars: Scalars | Wrong = "keep",
        unsupported: Unsupported | Wrong = "raise", unknown: Unknown | Wrong = "keep", sparse: Sparse | Wrong = "raise",
        registry: Registry | Wrong | None = None, **others: Wrong,
    ) -> Conversion[Any]: ...  # fmt: skip


def typed_convert(function: Callable[..., Any]) -> Convert:
    """Give a function these types."""
    return function


def typed_converter(function: Callable[..., Any]) -> Converter:
    """Give a function these types."""
    return function
