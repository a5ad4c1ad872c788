"""Shared by the plugins with direct converters: a converter that is bound to options converts single arrays too."""

from __future__ import annotations

from typing import Any

from arrayferry import Converter, Options


class Bound(Converter):
    """A converter that is called as `bind` says."""

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        # the user's narrowing is not known here, so the general path handles other dtypes
        bound = self.bind(Options(device=device, copy=copy, narrowing="forbid"))
        return NotImplemented if bound is None else bound(x)
