"""Actions in the form that the action space of an environment asks for.

An environment in NumPy gets what its space samples: a hashable scalar for Discrete, arrays of the
space's dtype for the others. An environment of another library gets its own arrays, 0-d for Discrete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

__all__ = ["fit_array", "fit_numpy"]


def fit_numpy(value: Any, space: Space[Any]) -> Any:
    """Bring an action of NumPy arrays into the form that `space.sample()` has.

    Args:
        value: an action, of the structure of the space.
        space: the action space. An action for a space that is not Gymnasium's own is not changed.

    Raises:
        arrayferry.ConversionError: its numbers do not fit the dtype of the space.
    """
    if isinstance(space, spaces.Discrete):
        if isinstance(value, (np.ndarray, np.generic)) and value.size == 1:
            return space.dtype.type(_cast(value, space).item())
        return value
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return _cast(value, space) if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(space, spaces.Dict) and isinstance(value, dict):
        inner = space.spaces
        return {key: fit_numpy(x, inner[key]) if key in inner else x for key, x in value.items()}
    if isinstance(space, spaces.Tuple) and _is_as_long(value, space.spaces):
        return tuple(map(fit_numpy, value, space.spaces))
    if isinstance(space, spaces.OneOf) and _is_as_long(value, "iv"):
        chosen = int(value[0])
        if 0 <= chosen < len(space.spaces):
            return np.int64(chosen), fit_numpy(value[1], space.spaces[chosen])
    if isinstance(space, spaces.Sequence) and isinstance(value, (tuple, list)):
        return tuple(fit_numpy(x, space.feature_space) for x in value)
    if isinstance(space, spaces.Graph):
        return _fit_graph(value, space)
    return value


def _fit_graph(graph: Any, space: spaces.Graph) -> Any:
    if not isinstance(graph, spaces.GraphInstance):
        return graph
    edges = graph.edges
    if edges is not None and space.edge_space is not None:
        edges = _cast(edges, space.edge_space)
    return graph._replace(nodes=_cast(graph.nodes, space.node_space), edges=edges)


def _cast(x: Any, space: Space[Any]) -> Any:
    """Cast an array to the dtype of its space, if no number changes."""
    dtype = space.dtype
    if dtype is None or x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        try:
            cast = np.asarray(x).astype(dtype)
        except (TypeError, ValueError):
            raise _unfit(x, space) from None
        if x.dtype.kind == dtype.kind == "f" or (
            dtype.kind == "f" and x.dtype.type.__module__ == "ml_dtypes"
        ):
            fits = np.isfinite(cast) | ~np.isfinite(x)
        else:
            fits = cast == x
    if not fits.all():
        raise _unfit(x, space)
    return cast


def _unfit(x: Any, space: Space[Any]) -> af.ConversionError:
    return af.ConversionError(
        f"an action of dtype {x.dtype} with the values {np.array2string(np.asarray(x).ravel(), threshold=6)} "
        f"cannot be one of the space {space}",
        remedy="Round or scale the numbers so that they fit the dtype of the space.",
    )


def fit_array(value: Any, space: Space[Any], backend: af.Backend) -> Any:
    """Do the same for an environment of another library: keep the dtype of Boxes, make arrays of numbers."""
    if isinstance(space, (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        if isinstance(value, (bool, int, float)):
            value = af.convert(value, backend, scalars="convert")
        return _astype(value, space, backend) if isinstance(space, spaces.Box) else value
    if isinstance(space, spaces.Dict) and isinstance(value, dict):
        inner = space.spaces
        return {k: fit_array(x, inner[k], backend) if k in inner else x for k, x in value.items()}
    if isinstance(space, spaces.Tuple) and _is_as_long(value, space.spaces):
        return tuple(fit_array(x, s, backend) for x, s in zip(value, space.spaces, strict=True))
    return value


def _is_as_long(value: Any, parts: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == len(parts)


def _astype(x: Any, space: Space[Any], backend: af.Backend) -> Any:
    """Cast an array to the dtype of the space, if both are of one kind and the library has it."""
    held = backend.dtypes()
    name = str(getattr(x, "dtype", "")).rpartition(".")[2]
    wanted = "" if space.dtype is None else space.dtype.name
    if not wanted or name == wanted or (held is not None and wanted not in held):
        return x
    if name.startswith(("float", "bfloat")) and wanted.startswith("float"):
        xp = af.namespace_of(x)
        return xp.astype(x, getattr(xp, wanted))
    return x
