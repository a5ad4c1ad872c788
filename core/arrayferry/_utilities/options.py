"""Checks of options, so that all packages check the same option by the same rule.

The value of an option may be a Python number, or an integer or array of any library.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any

import arrayferry as af
from arrayferry._types import AnyTree


class Unset:
    """The class of `UNSET`, the default of options for which None has a meaning of its own."""

    def __repr__(self) -> str:
        return "that of the environment"


UNSET = Unset()


def count_of(
    name: str, number: Any, wanted: str = "an integer of 1 or more", least: int = 1
) -> int:
    """Return the value of an option as an `int`. It must be an integer, or a 0-d integer array, of `least` or more.

    Raises:
        arrayferry.OptionError: the value is not an integer of `least` or more.
    """
    try:
        dtype_name = str(getattr(number, "dtype", type(number).__name__))
        count = -1 if dtype_name[-4:] == "bool" else index(number)
    except Exception:  # the library of the number may raise any error
        count = -1
    if count < least:
        is_traced = "Tracer" in type(number).__name__
        hint = ": it is traced, but shapes are fixed in traced functions" if is_traced else ""
        raise af.OptionError(f"{name}={number!r:.80} is not valid{hint}", remedy=f"Pass {wanted}.")
    return count


def limit_of(requested: Any, default: int | None) -> int | None:
    """Return the `max_episode_steps` to use: `requested`, or `default` if that is `UNSET`. None means no limit."""
    limit = default if isinstance(requested, Unset) else requested
    if limit is None:
        return None
    return count_of("max_episode_steps", limit, "an integer of 1 or more, or None for no limit")


def is_whole(limit: Any) -> bool:
    """Return whether a step limit that another library set is a whole number or a 0-d array with a whole number."""
    try:
        return not isinstance(limit, (str, bytes)) and float(limit).is_integer()
    except Exception:  # the limit is not a number, or is an array of several numbers, or is traced
        return False


def check_flag(name: str, flag: Any) -> None:
    """Check that an option is True or False.

    Raises:
        arrayferry.OptionError: the option is neither True nor False.
    """
    if type(flag) is not bool:
        raise af.OptionError(f"{name}={flag!r:.80} is not valid", remedy="Pass True or False.")


def check_keywords(function: str, misplaced: tuple[Any, ...], keywords: str) -> None:
    """Check that `misplaced` is empty: the arguments passed by position that a function accepts only by keyword.

    Raises:
        TypeError: an argument was passed by position.
    """
    if misplaced:
        raise TypeError(
            f"{function} accepts an environment, a policy, its parameters and a key by position, and all other "
            f"arguments by keyword, but got {misplaced[0]!r:.80} after the key. Write {keywords}"
        )


def check_actions_of(check_actions: Any) -> str:
    """Return the option `check_actions` if it is valid.

    Raises:
        arrayferry.OptionError: the option is not the name of a check.
    """
    if isinstance(check_actions, str) and check_actions in _ACTION_CHECKS:
        return str(check_actions)
    raise af.OptionError(
        f"check_actions={check_actions!r:.80} is not valid",
        remedy=f"Pass one of {', '.join(map(repr, _ACTION_CHECKS))}.",
    )


_ACTION_CHECKS = ("fit", "strict", "off")


def check_render_mode(
    render_mode: str | None, metadata: Mapping[str, Any], name: str, remedy: str = ""
) -> None:
    """Check that an environment has a render mode. Errors call the environment `name`. The mode None is always valid.

    Raises:
        arrayferry.OptionError: the environment does not have this mode.
    """
    modes = metadata.get("render_modes") or []
    if render_mode is not None and render_mode not in modes:
        modes_text = ", ".join(map(repr, modes)) or "none"
        raise af.OptionError(
            f"render_mode={render_mode!r} is not one of the render modes of {name} ({modes_text})",
            remedy=remedy,
        )


def factor_of(name: str, factor: Any, *, scalar: bool = False) -> Any:
    """Check a discount factor, and return it as a float or an array.

    Args:
        name: the name of the option, for errors.
        factor: the value of the option.
        scalar: whether the factor must be one number. If True, a 0-d array of any library is returned as a float.

    Raises:
        arrayferry.OptionError: the factor is neither a number nor an array, or is not between 0 and 1. This range is
            checked only for numbers and for arrays of NumPy.
    """
    import numpy as np

    converted = factor
    if isinstance(factor, Real) or (scalar and getattr(factor, "shape", None) == ()):
        with contextlib.suppress(Exception):  # float() fails for a complex number, for example
            converted = float(factor)
    is_valid = not scalar and hasattr(converted, "dtype") and hasattr(converted, "shape")
    if isinstance(converted, float) or (is_valid and isinstance(converted, np.ndarray)):
        x = np.asarray(converted)
        is_valid = x.dtype.kind in "biuf" and bool(((x >= 0) & (x <= 1)).all())
    if not is_valid:
        raise af.OptionError(
            f"{name}={factor!r:.80} is not valid", remedy="Pass a number from 0 to 1."
        )
    return converted


def seed_of(seed: Any, count: int) -> int | list[int | None] | None:
    """Return a seed as an `int` of 0 or more, as a list with an `int` or None for each environment, or as None.

    Args:
        seed: an integer of any library, None, an array of integers, or a sequence of integers and None.
        count: how many environments there are.

    Raises:
        arrayferry.OptionError: `seed` is not valid, or does not have one seed for each environment.
    """
    if seed is None:
        return None
    try:
        if getattr(seed, "ndim", 0) == 0 and hasattr(seed, "__index__"):
            return _one_seed(seed)
        seeds = [None if element is None else _one_seed(element) for element in seed]
    except (TypeError, ValueError):
        raise af.OptionError(
            f"seed={seed!r:.80} is not valid",
            remedy="Pass an integer of 0 or more, or a list with an integer or None for each environment.",
        ) from None
    if len(seeds) != count:
        raise af.OptionError(
            f"{len(seeds)} seeds were passed to {count} environments",
            remedy="Pass one seed for each environment, or one number for all.",
        )
    return seeds


def stream_seed(purpose: str, *numbers: Any) -> int:
    """Return a seed for one purpose. Seeds differ for different purposes and for different numbers.

    `numpy.random.SeedSequence` is not used, since it does not distinguish `(1, 0)` from 1.

    Args:
        purpose: what the random numbers are for.
        numbers: integers of 0 or more, such as the seed of the user and the index of an environment.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is negative.
    """
    seed_text = repr((purpose, *map(_one_seed, numbers)))
    return int.from_bytes(hashlib.blake2b(seed_text.encode(), digest_size=16).digest(), "little")


def mixed_seed(purpose: str, seeds: Sequence[Any], *numbers: int) -> int | None:
    """Return one `stream_seed` for the seeds of all environments. A seed may be None. If all are None, return None."""
    if all(seed is None for seed in seeds):
        return None
    seed_numbers = (0 if seed is None else int(seed) + 1 for seed in seeds)
    return stream_seed(purpose, *numbers, *seed_numbers)


def combined_seed(seed: Any, count: int) -> int | None:
    """Return one seed for a library that accepts only one for all environments.

    Args:
        seed: a valid `seed` of `seed_of`. Several seeds are combined into an integer below 2**31.
        count: how many environments there are.
    """
    seeds = seed_of(seed, count)
    if not isinstance(seeds, list):
        return seeds
    mixed = mixed_seed("environments", seeds)
    if mixed is None:
        return None
    import numpy as np

    return int(np.random.SeedSequence(mixed).generate_state(1)[0] >> 1)


def _one_seed(value: AnyTree) -> int:
    """Return an integer of any library as an `int`.

    Raises:
        TypeError: the value is not an integer.
        ValueError: the value is negative.
    """
    if getattr(value, "ndim", 0) != 0:  # `index` would accept a tensor of shape (1,)
        raise TypeError
    number = index(value)
    if number < 0:
        raise ValueError
    return number


def forwarded_seed(seed: Any, count: int) -> Any:
    """Return a seed as `seed_of` does. Return an invalid seed unchanged, since the wrapped environment checks it."""
    try:
        return seed_of(seed, count)
    except af.OptionError:
        return seed


def options_of(options: Any) -> dict[str, Any]:
    """Return a copy of the options of a reset, or an empty dict for None.

    Raises:
        arrayferry.OptionError: the options are not a dict.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise af.OptionError(
            f"options={options!r:.80} is not valid", remedy="Pass a dict, or None."
        )
    return dict(options)


def known_options(what: str, options: Any, *names: str) -> list[Any]:
    """Return the values of the options of a reset, in the order of `names`. The value of a missing option is None.

    Args:
        what: the call that the options were passed to, for errors, such as "reset() of EnvPool".
        options: a dict of options, or None for no options.
        names: the names of all valid options.

    Raises:
        arrayferry.OptionError: the options are not a dict, or have a name that is not in `names`.
    """
    given_options = options_of(options)
    values = [given_options.pop(name, None) for name in names]
    if given_options:
        unknown_name, known_names = next(iter(given_options)), ", ".join(map(repr, names))
        raise af.OptionError(
            f"{what} has no option {unknown_name!r}", remedy=f"Valid options are: {known_names}."
        )
    return values


def missing_package(module: str, package: str, error: ImportError) -> af.BackendUnavailableError:
    """Return the error for a module that needs a package which cannot be imported.

    Args:
        module: the module, such as "arrayferry_gym.sb3".
        package: the package, as an argument of `pip install`.
        error: the error of the import.
    """
    return af.BackendUnavailableError(
        f"{module} needs {package}, which cannot be imported ({error})",
        remedy=f"Run: pip install {package}",
        backend=package,
    )
