"""Converts spaces and arrays to JSON values, and JSON values to spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arrayferry.extending import dtype_named
from arrayferry.typing import AnyArray

PARTS = {
    "Box": ("low", "high"), "Discrete": ("n", "start"), "MultiDiscrete": ("nvec", "start"), "MultiBinary": ("n",)
}  # fmt: skip
"""The arguments of each class of spaces, besides the shape and dtype."""


def plain(x: AnyArray) -> Any:
    """Return an array as nested lists. Numbers that are not finite, which JSON lacks, become strings."""
    x = np.asarray(x)
    texts = np.where(np.isnan(x), "NaN", np.where(x > 0, "Infinity", "-Infinity"))
    return np.where(np.isfinite(x), x.astype(object), texts).tolist()


def space_in_json(space: Any) -> dict[str, Any]:
    """Return a space as JSON values: its class and its arguments."""
    if isinstance(space, spaces.Dict):
        return {"class": "Dict", "spaces": {k: space_in_json(x) for k, x in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"class": "Tuple", "spaces": [space_in_json(x) for x in space.spaces]}
    class_name = next(name for name in PARTS if isinstance(space, getattr(spaces, name)))
    args = {name: plain(getattr(space, name)) for name in PARTS[class_name]}
    return {"class": class_name, **args, "shape": list(space.shape), "dtype": space.dtype.name}


def space_of_json(description: dict[str, Any]) -> Space[Any]:
    """Return the space that `space_in_json` described."""
    class_name = description["class"]
    if class_name == "Dict":
        return spaces.Dict({key: space_of_json(x) for key, x in description["spaces"].items()})
    if class_name == "Tuple":
        return spaces.Tuple([space_of_json(x) for x in description["spaces"]])
    dtype: Any = dtype_named(description["dtype"])
    args: dict[str, Any] = {name: description[name] for name in PARTS[class_name]}
    if class_name == "Box":
        args = {k: np.array(x, dtype).reshape(description["shape"]) for k, x in args.items()}
        return spaces.Box(**args, dtype=dtype.type)
    options: Any = {} if class_name == "MultiBinary" else {"dtype": dtype}
    space: Space[Any] = getattr(spaces, class_name)(**args, **options)
    return space
