"""Print the highest version of each library, drawn by a seed between the oldest supported and the newest, for `make drawn`.

pip takes the newest versions up to these that fit together.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = ("array-api-compat", "dask", "gymnasium", "jax", "numpy", "pluggy")
OLDEST = Path(__file__).parents[1] / "constraints-oldest.txt"


def versions(library: str, oldest: str) -> list[str]:
    """Return the versions that pip finds for this Python, from the oldest that is supported on."""
    command = [sys.executable, "-m", "pip", "index", "versions", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Available versions: (.*)", listed)
    if found is None:
        raise SystemExit(f"pip lists no versions of {library}")
    return [each for each in found[1].split(", ") if _numbers(each) >= _numbers(oldest)]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main(seed: str) -> None:
    """Print the lines of a file of constraints."""
    rng, oldest = random.Random(seed), dict(re.findall(r"([\w-]+)==(.*)", OLDEST.read_text()))
    for library in LIBRARIES:
        print(f"{library}<={rng.choice(versions(library, oldest[library]))}")


if __name__ == "__main__":
    main(sys.argv[1])
