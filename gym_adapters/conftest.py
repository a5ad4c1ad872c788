"""Modules without doctests here: those that only raise, and bridges to what is not installed, which `make bridges` runs."""

from importlib.util import find_spec

_ABSENT = [name for name in ("rsl_rl", "tianshou") if find_spec(name) is None]
collect_ignore = [
    f"arrayferry_gym/{name}.py" for name in ("distributed", "functional", "testing", *_ABSENT)
]
