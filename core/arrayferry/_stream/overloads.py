"""What type checkers know of the results of `stream`, target by target."""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, overload

if TYPE_CHECKING:
    from typing import Literal, TypedDict, Unpack

    from arrayferry._options import Narrowing, Sparse, Unsupported
    from arrayferry._plugin.backend import Target
    from arrayferry._types import (
        X2,
        X3,
        AnyModule,
        CupyArray,
        DaskArray,
        JaxArray,
        K,
        NumpyArray,
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

    from .stream import Stream

    class Streamed(TypedDict, total=False):
        """Options with which every array becomes one of the target."""

        like: None
        device: Any
        axis: int | Wrong
        prefetch: int | Wrong
        block: int | Wrong | None
        client: Any
        timeout: float | Wrong | None
        shuffle: bool | Wrong
        seed: int | Wrong | None
        buffer_size: int | Wrong | None
        batch_size: int | Wrong | None
        drop_last: bool | Wrong
        copy: bool | Wrong | None
        narrowing: Narrowing | Wrong
        unsupported: Literal["raise"]
        sparse: Sparse | Wrong

    class EveryStreamed(TypedDict, total=False):
        """All options."""

        like: Any
        device: Any
        axis: int
        prefetch: int
        block: int | None
        client: Any
        timeout: float | None
        shuffle: bool
        seed: int | None
        buffer_size: int | None
        batch_size: int | None
        drop_last: bool
        copy: bool | None
        narrowing: Narrowing
        unsupported: Unsupported
        sparse: Sparse


__all__ = ["MakeStream", "typed_stream"]


class MakeStream(Protocol):
    """The function `stream`."""

    @overload
    def __call__(
        self, value: Unclear, to: Target, **options: Unpack[EveryStreamed]
    ) -> Stream[Any]: ...
    @overload
    def __call__(
        self, value: V, to: AnyModule, **options: Unpack[EveryStreamed]
    ) -> Stream[Any]: ...
    @overload
    def __call__(
        self, value: X, to: ToNumpy, **options: Unpack[Streamed]
    ) -> Stream[NumpyArray]: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToNumpy, **options: Unpack[Streamed]
    ) -> Stream[dict[K, NumpyArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToNumpy, **options: Unpack[Streamed]
    ) -> Stream[tuple[NumpyArray, NumpyArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToNumpy, **options: Unpack[Streamed]
    ) -> Stream[tuple[NumpyArray, NumpyArray, NumpyArray]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToNumpy, **options: Unpack[Streamed]
    ) -> Stream[list[NumpyArray]]: ...
    @overload
    def __call__(
        self, value: X, to: ToTorch, **options: Unpack[Streamed]
    ) -> Stream[TorchArray]: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToTorch, **options: Unpack[Streamed]
    ) -> Stream[dict[K, TorchArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToTorch, **options: Unpack[Streamed]
    ) -> Stream[tuple[TorchArray, TorchArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToTorch, **options: Unpack[Streamed]
    ) -> Stream[tuple[TorchArray, TorchArray, TorchArray]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToTorch, **options: Unpack[Streamed]
    ) -> Stream[list[TorchArray]]: ...
    @overload
    def __call__(self, value: X, to: ToJax, **options: Unpack[Streamed]) -> Stream[JaxArray]: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToJax, **options: Unpack[Streamed]
    ) -> Stream[dict[K, JaxArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToJax, **options: Unpack[Streamed]
    ) -> Stream[tuple[JaxArray, JaxArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToJax, **options: Unpack[Streamed]
    ) -> Stream[tuple[JaxArray, JaxArray, JaxArray]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToJax, **options: Unpack[Streamed]
    ) -> Stream[list[JaxArray]]: ...
    @overload
    def __call__(self, value: X, to: ToCupy, **options: Unpack[Streamed]) -> Stream[CupyArray]: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToCupy, **options: Unpack[Streamed]
    ) -> Stream[dict[K, CupyArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToCupy, **options: Unpack[Streamed]
    ) -> Stream[tuple[CupyArray, CupyArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToCupy, **options: Unpack[Streamed]
    ) -> Stream[tuple[CupyArray, CupyArray, CupyArray]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToCupy, **options: Unpack[Streamed]
    ) -> Stream[list[CupyArray]]: ...
    @overload
    def __call__(self, value: X, to: ToDask, **options: Unpack[Streamed]) -> Stream[DaskArray]: ...
    @overload
    def __call__(
        self, value: dict[K, X], to: ToDask, **options: Unpack[Streamed]
    ) -> Stream[dict[K, DaskArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2], to: ToDask, **options: Unpack[Streamed]
    ) -> Stream[tuple[DaskArray, DaskArray]]: ...
    @overload
    def __call__(
        self, value: tuple[X, X2, X3], to: ToDask, **options: Unpack[Streamed]
    ) -> Stream[tuple[DaskArray, DaskArray, DaskArray]]: ...
    @overload
    def __call__(
        self, value: list[X], to: ToDask, **options: Unpack[Streamed]
    ) -> Stream[list[DaskArray]]: ...
    @overload
    def __call__(
        self, value: V, to: Target, *, like: Any = None, device: Any = None,
        axis: int | Wrong = 0, prefetch: int | Wrong = 2, block: int | Wrong | None = None, client: Any = None,
        timeout: float | Wrong | None = None, shuffle: bool | Wrong = False, seed: int | Wrong | None = None,
        buffer_size: int | Wrong | None = None, batch_size: int | Wrong | None = None, drop_last: bool | Wrong = False,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked",
        unsupported: Unsupported | Wrong = "raise", sparse: Sparse | Wrong = "raise", **others: Wrong,
    ) -> Stream[Any]: ...  # fmt: skip
    @overload
    def __call__(
        self, value: V, to: Target | None = None, *, like: Any, device: Any = None,
        axis: int | Wrong = 0, prefetch: int | Wrong = 2, block: int | Wrong | None = None, client: Any = None,
        timeout: float | Wrong | None = None, shuffle: bool | Wrong = False, seed: int | Wrong | None = None,
        buffer_size: int | Wrong | None = None, batch_size: int | Wrong | None = None, drop_last: bool | Wrong = False,
        copy: bool | Wrong | None = None, narrowing: Narrowing | Wrong = "checked",
        unsupported: Unsupported | Wrong = "raise", sparse: Sparse | Wrong = "raise", **others: Wrong,
    ) -> Stream[Any]: ...  # fmt: skip


def typed_stream(function: Callable[..., Any]) -> MakeStream:
    """Give a function these types."""
    return function
