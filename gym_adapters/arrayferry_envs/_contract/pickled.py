"""`PickledArrays`: pickles objects that store arrays of any library."""

from __future__ import annotations

from typing import Any

import arrayferry as af


class PickledArrays:
    """A base class whose instances pickle their arrays as NumPy arrays, since PyTorch cannot pickle uint32."""

    _held: tuple[str, ...]
    """The names of the attributes with arrays."""
    _entered: Any
    """The converter to the library of the arrays."""

    def __getstate__(self) -> dict[str, Any]:
        arrays = {name: vars(self)[name] for name in self._held if name in vars(self)}
        state: Any = super().__getstate__()
        return {**state, **af.convert(arrays, "numpy", copy=True)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        getattr(super(), "__setstate__", self.__dict__.update)(state)
        arrays = {name: state[name] for name in self._held if name in state}
        self.__dict__.update(self._entered(arrays))
