"""The oldest versions that are tested are the lower bounds that are declared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_oldest_versions_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"]]
    for name in ("torch", "jax", "dask", "gym", "cli"):
        required += [each for each in extras[name] if not each.startswith("pytest")]
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement in required:
        name, bound = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        oldest = tuple(map(int, tested[name].split(".")))
        stated = tuple(map(int, bound.split(".")))
        assert oldest == stated + (0,) * (len(oldest) - len(stated)), name
