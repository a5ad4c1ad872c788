"""Actions in the form that the action space of an environment asks for.

An environment in NumPy gets what its space samples: a hashable scalar for Discrete, arrays of the
space's dtype for the others. An environment of another library gets its own arrays, 0-d for Discrete.
An action that cannot be one of the space is an error that names the space and the place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

__all__ = ["fit_array", "fit_numpy", "range_test"]

_ARRAYS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


def fit_numpy(value: Any, space: Space[Any], *, bounds: bool = False, path: str = "") -> Any:
    """Bring an action of NumPy arrays into the form that `space.sample()` has.

    Args:
        value: an action, of the structure of the space. Numbers, and lists of numbers, are taken as arrays.
        space: the action space. An action for a space that is not Gymnasium's own is not changed.
        bounds: whether NaN, and what is out of the bounds of any space, are errors too.
        path: the place in the whole action, for errors.

    Raises:
        arrayferry.ConversionError: its structure, its shape, its kind or its dtype does not fit, or it is
            out of the range of a Discrete or MultiDiscrete.
    """
    if isinstance(space, spaces.Discrete):
        return _fit_discrete(value, space, path)
    if isinstance(space, _ARRAYS):
        return _fit_shaped(value, space, bounds, path)
    if isinstance(space, spaces.Dict):
        return _fit_dict(value, space, bounds, path)
    if isinstance(space, spaces.Tuple):
        if not _is_as_long(value, len(space.spaces)):
            raise _unfit(value, space, path, f"it takes a tuple of {len(space.spaces)}")
        parts = zip(value, space.spaces, strict=True)
        return tuple(
            fit_numpy(part, inner, bounds=bounds, path=f"{path}[{index}]")
            for index, (part, inner) in enumerate(parts)
        )
    if isinstance(space, spaces.OneOf):
        if not _is_as_long(value, 2):
            raise _unfit(
                value, space, path, "it takes a pair: the index of a space, and an action for it"
            )
        chosen = _fit_discrete(value[0], spaces.Discrete(len(space.spaces)), f"{path}[0]")
        inner = space.spaces[chosen]
        return np.int64(chosen), fit_numpy(value[1], inner, bounds=bounds, path=f"{path}[1]")
    if isinstance(space, spaces.Sequence) and isinstance(value, (tuple, list)):
        inner = space.feature_space
        return tuple(
            fit_numpy(part, inner, bounds=bounds, path=f"{path}[{index}]")
            for index, part in enumerate(value)
        )
    if isinstance(space, spaces.Graph) and isinstance(value, spaces.GraphInstance):
        value = _fit_graph(value, space, path)
    if isinstance(space, spaces.Text) and not isinstance(value, str):
        raise _unfit(value, space, path, "it takes a text")
    if bounds and not space.contains(value):
        raise _unfit(value, space, path, "its contains() is false")
    return value


def _fit_discrete(value: Any, space: spaces.Discrete, path: str) -> Any:
    found = value
    if isinstance(value, (np.ndarray, np.generic)) and value.size == 1:
        found = _cast(value, space, path).item()
    elif isinstance(value, float) and value.is_integer():
        found = int(value)
    if not isinstance(found, (int, np.integer)):
        raise _unfit(value, space, path, "it takes one whole number")
    first, last = int(space.start), int(space.start + space.n) - 1
    if not first <= found <= last:
        raise _unfit(value, space, path, f"it takes {first} to {last}")
    return value if found is value else space.dtype.type(found)


def _fit_shaped(value: Any, space: Any, bounds: bool, path: str) -> Any:
    x = value
    if isinstance(x, (bool, int, float, list, tuple)):
        try:
            x = np.asarray(x)
        except ValueError:  # parts of different shapes
            raise _unfit(value, space, path, "its parts have different shapes") from None
    if not isinstance(x, (np.ndarray, np.generic)):
        raise _unfit(value, space, path, "it takes an array")
    if x.shape != space.shape:
        raise _unfit(value, space, path, f"it takes the shape {space.shape}, not {x.shape}")
    x = np.asarray(_cast(x, space, path))
    if isinstance(space, spaces.MultiDiscrete):
        inside = (x >= space.start) & (x < space.start + space.nvec)
        if not inside.all():
            raise _unfit(value, space, path, f"{_culprit(x, ~inside)} is out of its range")
    elif bounds:
        low, high = (0, 1) if isinstance(space, spaces.MultiBinary) else (space.low, space.high)
        inside = (x >= low) & (x <= high)  # false for NaN
        if not inside.all():
            raise _unfit(value, space, path, f"{_culprit(x, ~inside)} is out of its bounds")
    return x


def _culprit(x: Any, wrong: Any) -> str:
    """Describe the first wrong number of an array: its value and its place."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f", at {list(index)}," if index else ""
    return f"{x[index]}{place}"


def _fit_dict(value: Any, space: spaces.Dict, bounds: bool, path: str) -> dict[str, Any]:
    inner = space.spaces
    if not isinstance(value, Mapping) or value.keys() != inner.keys():
        raise _unfit(value, space, path, f"it takes a dict with the keys {list(inner)}")
    return {
        key: fit_numpy(part, inner[key], bounds=bounds, path=f"{path}[{key!r}]")
        for key, part in value.items()
    }


def _fit_graph(graph: Any, space: spaces.Graph, path: str) -> Any:
    edges = graph.edges
    if edges is not None and space.edge_space is not None:
        edges = _cast(edges, space.edge_space, f"{path}.edges")
    return graph._replace(nodes=_cast(graph.nodes, space.node_space, f"{path}.nodes"), edges=edges)


def _cast(x: Any, space: Space[Any], path: str) -> Any:
    """Cast an array to the dtype of its space, if no number changes."""
    dtype = space.dtype
    if dtype is None or x.dtype == dtype:
        return x
    extended = x.dtype.type.__module__ == "ml_dtypes"
    if x.dtype.kind not in "biuf" and not extended:
        raise _unfit(x, space, path, "its dtype is of another kind")
    with np.errstate(all="ignore"):
        cast = np.asarray(x).astype(dtype)
        if dtype.kind == "f" and (x.dtype.kind == "f" or extended):
            fits = np.isfinite(cast) | ~np.isfinite(x)
        else:
            fits = cast == x
    if not fits.all():
        raise _unfit(x, space, path, f"{_culprit(np.asarray(x), ~fits)} is no {dtype}")
    return cast


def _unfit(value: Any, space: Space[Any], path: str, reason: str) -> af.ConversionError:
    if isinstance(value, (np.ndarray, np.generic)):
        numbers = np.array2string(np.asarray(value).ravel(), threshold=6)
        given = f"of shape {value.shape} and dtype {value.dtype} with the values {numbers}"
    else:
        given = f"of type {type(value).__name__}: {value!r:.60}"
    return af.ConversionError(
        f"an action {given} cannot be one of the space {space}, since {reason}",
        remedy="Pass an action as the action space of the environment samples it.",
        path=path,
    )


def fit_array(value: Any, space: Space[Any], backend: af.Backend) -> Any:
    """Bring an action into the form for an environment of another library, after `fit_numpy` has checked it.

    Args:
        value: the action, as arrays of the library, on its device.
        space: the action space.
        backend: the library.

    Returns:
        The action, with arrays for numbers: 0-d ones for Discrete, of the dtype of the space for a Box,
        or of the nearest that the library has.
    """
    if isinstance(space, (spaces.Discrete, *_ARRAYS)):
        if isinstance(value, (bool, int, float)) or (
            isinstance(value, (list, tuple)) and isinstance(space, _ARRAYS)
        ):
            value = af.convert(np.asarray(value), backend)
        return _formed(value, space, backend)
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        inner = space.spaces
        return {key: fit_array(part, inner[key], backend) for key, part in value.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(fit_array(x, s, backend) for x, s in zip(value, space.spaces, strict=True))
    return value


def _formed(x: Any, space: Space[Any], backend: af.Backend) -> Any:
    """Give an array the shape and the kind of dtype of its space."""
    name = str(x.dtype).rpartition(".")[2]
    wanted = af.fit_dtype(np.zeros((), space.dtype), backend, "allow").dtype.name
    whole = name.startswith(("int", "uint", "bool"))
    if name != wanted and (isinstance(space, spaces.Box) or not whole):
        xp = af.namespace_of(x)
        x = xp.astype(x, getattr(xp, wanted))
    if isinstance(space, spaces.Discrete) and tuple(x.shape) != ():
        x = af.namespace_of(x).reshape(x, ())
    return x


def range_test(space: spaces.MultiDiscrete, dtype: np.dtype[Any]) -> Callable[[Any], bool] | None:
    """Return a quick test of NumPy arrays of one dtype of whole numbers, with the shape of the space.

    Read as unsigned numbers, those below the range are larger than any count, so that one comparison is
    enough. None if the counts do not fit the dtype.
    """
    if dtype.kind not in "iu" or space.nvec.max() > np.iinfo(f"u{dtype.itemsize}").max:
        return None
    unsigned = np.dtype(f"u{dtype.itemsize}")
    start, count = space.start.astype(dtype), space.nvec.astype(unsigned)
    less, shifted = np.less, bool(np.any(space.start))

    def test(x: Any) -> bool:
        x = x - start if shifted else x
        return b"\0" not in less(x.view(unsigned), count).tobytes()

    return test


def _is_as_long(value: Any, length: int) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == length
