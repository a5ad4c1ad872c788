"""Array libraries as environments need them."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af


def namespace(backend: af.Backend) -> Any:
    """Return the namespace of a library, as the methods of an environment get it."""
    return af.namespace_of(backend.from_numpy(np.zeros((), np.float32)))


def portable(backend: af.Backend) -> str | af.Backend:
    """Return a backend in a form that can be pickled: its name if it is registered."""
    return backend.name if af.registry.backends().get(backend.name) is backend else backend


def select(xp: Any, mask: Any, new: Any, old: Any) -> Any:
    """Return the rows of `new` where the mask is true, and those of `old` elsewhere."""
    if tuple(old.shape) == tuple(mask.shape):
        return xp.where(mask, new, old)
    return xp.where(xp.reshape(mask, (mask.shape[0],) + (1,) * (len(old.shape) - 1)), new, old)
