"""Finds the line where a user called one of our packages, for warnings, and the line where a user's code failed."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path
from traceback import walk_tb
from typing import Any

CORE = ("arrayferry", "arrayferry_functions", "arrayferry_streams", "arrayferry_translate")
"""Packages that convert with the options of their caller.

If only these packages are between the user's line and a conversion, the user chose the options of the conversion.
"""
OURS = frozenset(
    (
        *CORE, "arrayferry_audit", "arrayferry_cluster", "arrayferry_envs", "arrayferry_gym",
        "arrayferry_plugins", "arrayferry_suites",
    )
)  # fmt: skip
"""Packages that never count as the user's code."""
_BETWEEN = ("gymnasium", "pettingzoo", "supersuit", "jax._src", "contextlib")
"""Prefixes of the names of other modules that call our packages for the user."""


def caller_level() -> int:
    """Return the `stacklevel` that makes a warning name the first caller outside our packages and `_BETWEEN`."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None:
        module_name = str(frame.f_globals.get("__name__"))
        if module_name.partition(".")[0] not in OURS and not module_name.startswith(_BETWEEN):
            break
        frame, level = frame.f_back, level + 1
    return level


def authors_line(error: BaseException, codes: Collection[Any] = ()) -> str | None:
    """Return the last line of the user's code in a traceback, as "file.py:12". None if there is no such line.

    The user's code is all code outside libraries, and the files of `codes`. If code objects are passed as `codes`, only
    lines of these functions, and of functions that they call, are considered.
    """
    package_paths = (path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    library_paths = *map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), *package_paths, "<"
    files = {code.co_filename for code in codes}
    is_inside, found_line = not codes, None
    for frame, line in walk_tb(error.__traceback__):
        file_name = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        is_inside = is_inside or frame.f_code in codes
        is_ours = package in OURS or file_name.startswith(library_paths)
        if is_inside and (file_name in files or not is_ours):
            found_line = f"{Path(file_name).name}:{line}"
    return found_line
