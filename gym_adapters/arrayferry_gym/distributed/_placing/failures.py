"""Exceptions for failures in hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arrayferry_gym.distributed._workers.messages import Failure, Request, from_bytes
from arrayferry_gym.distributed._workers.records import HostRecord

from .errors import DistributedEnvError, EnvFailedError, PolicyFailedError, WorkerSetupError


def named(indices: Iterable[int]) -> str:
    """Return the text for some environments in messages."""
    numbers = sorted(indices)
    if len(numbers) == 1:
        return f"environment {numbers[0]}"
    if len(numbers) > 8 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"environments {numbers[0]} to {numbers[-1]}"
    return f"environments {', '.join(map(str, numbers))}"


def error_of(failure: Failure, request: Request, host: HostRecord) -> DistributedEnvError:
    """Return the error for an answer that is a failure.

    Args:
        failure: the answer.
        request: what the host was asked for.
        host: the host and its environments.
    """
    what, place = request.func.__name__, failure.place
    indices: Sequence[int] = host.indices if place is None else place.indices
    if failure.index is not None:
        indices = (failure.index,)
    where = what
    if place is not None:
        where = f"{what} of {place}" if place.segment is None else str(place)
    raised = f"raised {failure.type}: {failure.text}, in {where} on the worker {host.worker}"
    again = (
        "Call reset to go on." if place is None else "The next segment of the group begins anew."
    )
    error: DistributedEnvError
    if failure.setup:
        missing = f"import {failure.module}" if failure.module else "load its function"
        error = WorkerSetupError(
            f"the worker {host.worker} cannot {missing}, to make {named(indices)}: "
            f"{failure.type}: {failure.text}",
            remedy="Install it on the workers, send it with client.upload_file, or have it pickled by "
            "cloudpickle.register_pickle_by_value(module).",
            indices=tuple(indices),
            worker=host.worker,
            module=failure.module,
        )
    elif place is not None and place.policy:
        error = PolicyFailedError(
            f"the policy {raised}",
            remedy="Correct it, and make another collector."
            if what == "make"
            else f"Correct it or its parameters. {again}",
            worker=host.worker,
            original=failure.type,
        )
    else:
        error = EnvFailedError(
            f"{named(indices)} {raised}",
            remedy="Correct the environment." if what == "make" else again,
            indices=tuple(indices),
            worker=host.worker,
            original=failure.type,
        )
    try:
        error.__cause__ = None if failure.error is None else from_bytes(failure.error)
    except Exception:  # this process lacks the class
        pass
    error.add_note(f"On the worker:\n{failure.traceback}")
    return error
