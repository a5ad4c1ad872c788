"""The names that the shell offers for arguments. They are read from metadata: no plugin is imported."""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points

GROUP = "arrayferry"
HOME = "arrayferry_plugins."
CONTAINERS = ("tensordict", "tianshou", "torch_geometric")
"""Built-in plugins that bring structures only, and no arrays."""

SOURCES = ("awkward", "h5py", "pandas", "polars", "pyarrow", "scipy", "xarray", "zarr")
"""Built-in plugins for what arrays are only read from."""


def sources(incomplete: str) -> list[str]:
    """Return the names of what arrays can come from."""
    return _offered([p.name for p in _installed() if p.name not in CONTAINERS], incomplete)


def targets(incomplete: str) -> list[str]:
    """Return the names of libraries that arrays can be converted to."""
    return _offered([p.name for p in _targets()], incomplete)


def plugins(incomplete: str) -> list[str]:
    """Return the names of what the contract kit can test: libraries, and distributions of other authors."""
    points = _targets()
    homes = [p.dist.name for p in points if p.dist is not None and not _is_built_in(p)]
    return _offered([*(p.name for p in points), *homes], incomplete)


def _offered(names: list[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _targets() -> list[EntryPoint]:
    return [p for p in _installed() if p.name not in (*CONTAINERS, *SOURCES)]


def _installed() -> list[EntryPoint]:
    """Return the plugins, without built-in ones whose library is not installed: these have its name."""
    points = entry_points(group=GROUP)
    return [p for p in points if not _is_built_in(p) or importlib.util.find_spec(p.name)]


def _is_built_in(point: EntryPoint) -> bool:
    return point.module.startswith(HOME)
