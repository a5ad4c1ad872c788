"""What a host is doing, for errors and for those who wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from .messages import GroupPlace, SetupError, from_bytes


class Progress:
    """What a host is doing. Other threads may read it.

    Attributes:
        env: the environment in use, None if there is none.
        steps: how many steps were taken.
        place: the place of the group that is collecting, None if none is.
    """

    def __init__(self) -> None:
        self.env: int | None = None
        self.steps = 0
        self.place: GroupPlace | None = None


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Turn errors into `SetupError` that say what this process lacks."""
    try:
        yield
    except ImportError as error:
        raise SetupError from error
    except AttributeError as error:
        if "Can't get attribute" in str(error):  # an older version of a module
            raise SetupError from error
        raise


def make_env(progress: Progress, index: int, factory: bytes) -> Any:
    """Make an environment. `progress` says which, for the error."""
    progress.env = index
    with setting_up():
        return from_bytes(factory)()


def close_all(progress: Progress, envs: Iterable[tuple[int, Any]]) -> None:
    """Close numbered environments. `progress` says which, for the error. If closing one fails, the others are closed too."""
    failed: Exception | None = None
    for index, env in envs:
        progress.env = index
        try:
            env.close()
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
