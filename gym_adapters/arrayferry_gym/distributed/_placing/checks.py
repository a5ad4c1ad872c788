"""Checks of what users pass to a `DistributedVectorEnv`."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

import arrayferry as af
from arrayferry_gym._options.env_options import options_of, reset_mask_of, seed_of
from arrayferry_gym.distributed._workers.messages import Description

from .errors import SpaceMismatchError


def pickled(env_fns: Any) -> list[bytes]:
    """Pickle functions that make environments, each once."""
    if isinstance(env_fns, (str, bytes)) or not isinstance(env_fns, Sequence) or not env_fns:
        raise af.OptionError(
            f"env_fns={env_fns!r:.80} is not a sequence of functions",
            remedy="Pass a list of functions that make one environment each.",
        )
    pickled: dict[int, bytes] = {}
    for index, function in enumerate(env_fns):
        if not callable(function) or isinstance(function, Env):
            raise af.OptionError(
                f"env_fns[{index}] is {function!r:.80}, which is not a function",
                remedy="Pass functions that make the environments: lambda: gym.make(...).",
            )
        if id(function) not in pickled:
            try:
                pickled[id(function)] = cloudpickle.dumps(function, protocol=5)
            except Exception as error:
                raise af.OptionError(
                    f"env_fns[{index}] cannot be pickled: {type(error).__name__}: {error}",
                    remedy="Create the objects that it uses inside the function.",
                ) from error
    return [pickled[id(function)] for function in env_fns]


def check_seconds(timeout: Any) -> None:
    """Check a timeout."""
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real) or not float(timeout) > 0:
        raise af.OptionError(f"timeout={timeout!r:.80} is not valid", remedy="Pass seconds.")


def check_workers(workers: Any, resources: Any) -> None:
    """Check the workers that may run environments."""
    if workers is not None and (
        isinstance(workers, str)
        or not isinstance(workers, Collection)
        or not workers
        or not all(isinstance(name, str) for name in workers)
    ):
        raise af.OptionError(
            f"workers={workers!r:.80} is not valid",
            remedy="Pass a list of addresses or names, as client.scheduler_info() shows them.",
        )
    if resources is not None and (
        not isinstance(resources, Mapping)
        or not all(
            isinstance(name, str) and isinstance(amount, numbers.Real)
            for name, amount in resources.items()
        )
    ):
        raise af.OptionError(
            f"resources={resources!r:.80} is not valid",
            remedy="Pass a dict of numbers, like those that workers are started with, such as {'GPU': 1}.",
        )


class Spaces(NamedTuple):
    """The spaces of a vector environment."""

    single_observation_space: Any
    observation_space: Any
    single_action_space: Any
    action_space: Any


def common_spaces(
    descriptions: Sequence[Description], mode: str | tuple[Space[Any], Space[Any]]
) -> Spaces:
    """Return the spaces of a vector environment, as `SyncVectorEnv` has them, if all environments fit them."""
    first, count = descriptions[0], len(descriptions)
    single: Any = first.observation_space
    if isinstance(mode, tuple) and len(mode) == 2 and all(isinstance(x, Space) for x in mode):
        batched, single = mode
    elif mode == "same":
        batched = batch_space(single, count)
    elif mode == "different":
        batched = batch_differing_spaces(
            [description.observation_space for description in descriptions]
        )
    else:
        raise af.OptionError(
            f"observation_mode={mode!r:.80} is not valid",
            remedy="Pass 'same', 'different', or the batched space and the single one.",
        )
    for index, description in enumerate(descriptions):
        if mode == "same":
            fits = description.observation_space == single
        else:
            fits = is_space_dtype_shape_equiv(description.observation_space, single)
        if not fits or description.action_space != first.action_space:
            raise SpaceMismatchError(
                f"environment {index} has the spaces {description.observation_space} and "
                f"{description.action_space}, but {single} and {first.action_space} are expected",
                remedy="Pass observation_mode='different' if only the bounds of observations differ.",
                indices=(index,),
            )
    return Spaces(single, batched, first.action_space, batch_space(first.action_space, count))


def checked_seeds(seed: Any, count: int) -> list[int | None]:
    """Return a seed for each environment. A number counts up from environment to environment."""
    checked = seed_of(seed, count)
    if isinstance(checked, list):
        return checked
    return [None if checked is None else checked + index for index in range(count)]


def checked_mask(
    options: dict[str, Any] | None, count: int
) -> tuple[dict[str, Any] | None, np.ndarray]:
    """Return the options without "reset_mask", and the mask of the environments to reset."""
    others = options_of(options)
    mask = reset_mask_of(others.pop("reset_mask", None), count)
    return options and others, np.ones(count, dtype=np.bool_) if mask is None else mask
