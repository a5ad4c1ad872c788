"""Modules without doctests here: those that only raise errors, and bridges to absent packages (see `make bridges`)."""

from importlib.util import find_spec

_ABSENT = [name for name in ("rsl_rl", "tianshou") if find_spec(name) is None]
collect_ignore = [
    f"arrayferry_gym/{name}.py" for name in ("distributed", "functional", "testing", *_ABSENT)
]
