"""Errors for what went wrong in hosts."""

from __future__ import annotations

from collections.abc import Iterable

from ._errors import DistributedEnvError, EnvFailedError, WorkerSetupError
from ._messages import Failure, Make, Request, from_bytes
from ._records import Group

__all__ = ["error_of", "named"]


def named(indices: Iterable[int]) -> str:
    """Return how messages name some environments."""
    numbers = sorted(indices)
    if len(numbers) == 1:
        return f"environment {numbers[0]}"
    return f"environments {', '.join(map(str, numbers))}"


def error_of(failure: Failure, request: Request, group: Group) -> DistributedEnvError:
    """Return the error for an answer that is a failure.

    Args:
        failure: the answer.
        request: what the host was asked for.
        group: the host and its environments.
    """
    indices = group.indices if failure.index is None else (failure.index,)
    error: DistributedEnvError
    if failure.setup:
        missing = (
            f"cannot import {failure.module}" if failure.module else "cannot load its function"
        )
        error = WorkerSetupError(
            f"the worker {group.worker} {missing}, to make {named(indices)}: "
            f"{failure.type}: {failure.text}",
            remedy="Install it on the workers, send it with client.upload_file, or have it pickled by "
            "cloudpickle.register_pickle_by_value(module).",
            indices=indices,
            worker=group.worker,
            module=failure.module,
        )
    else:
        making = isinstance(request, Make)
        error = EnvFailedError(
            f"{named(indices)} raised {failure.type}: {failure.text}, in {request.name} on the worker "
            f"{group.worker}",
            remedy="Correct the environment." if making else "Call reset to go on.",
            indices=indices,
            worker=group.worker,
            original=failure.type,
        )
    try:
        error.__cause__ = None if failure.error is None else from_bytes(failure.error)
    except Exception:  # this process lacks the class
        pass
    error.add_note(f"On the worker:\n{failure.traceback}")
    return error
