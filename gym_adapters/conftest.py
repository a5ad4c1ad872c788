"""The doctests of bridges to trainers that are not installed are left out: `make bridges` runs them."""

from importlib.util import find_spec

collect_ignore = [
    f"arrayferry_gym/{name}.py" for name in ("rsl_rl", "tianshou") if find_spec(name) is None
]
