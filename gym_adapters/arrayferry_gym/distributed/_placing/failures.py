"""Errors for what went wrong in hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arrayferry_gym.distributed._workers.messages import Failure, Request, from_bytes
from arrayferry_gym.distributed._workers.records import HostRecord

from .errors import DistributedEnvError, EnvFailedError, PolicyFailedError, WorkerSetupError


def named(indices: Iterable[int]) -> str:
    """Return how messages name some environments."""
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
    indices: Sequence[int] = host.indices if failure.index is None else (failure.index,)
    where = what = request.func.__name__
    if failure.place is not None:
        where = (
            str(failure.place)
            if failure.place.segment is not None
            else f"{where} of {failure.place}"
        )
        indices = failure.place.indices if failure.index is None else indices
    error: DistributedEnvError
    if failure.setup:
        missing = (
            f"cannot import {failure.module}" if failure.module else "cannot load its function"
        )
        error = WorkerSetupError(
            f"the worker {host.worker} {missing}, to make {named(indices)}: "
            f"{failure.type}: {failure.text}",
            remedy="Install it on the workers, send it with client.upload_file, or have it pickled by "
            "cloudpickle.register_pickle_by_value(module).",
            indices=tuple(indices),
            worker=host.worker,
            module=failure.module,
        )
    elif failure.place is not None and failure.place.policy:
        error = PolicyFailedError(
            f"the policy raised {failure.type}: {failure.text}, in {where} on the worker "
            f"{host.worker}",
            remedy="Correct it, and make another collector."
            if what == "make"
            else "Correct it or its parameters. The next segment of the group begins anew.",
            worker=host.worker,
            original=failure.type,
        )
    else:
        making = what == "make"
        again = (
            "The next segment of the group begins anew."
            if failure.place
            else "Call reset to go on."
        )
        error = EnvFailedError(
            f"{named(indices)} raised {failure.type}: {failure.text}, in {where} on the worker "
            f"{host.worker}",
            remedy="Correct the environment." if making else again,
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
