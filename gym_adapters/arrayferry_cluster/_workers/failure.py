"""`Activity`: what a group is doing. `Failure`: an error on a worker, as it is sent to the collector."""

from __future__ import annotations

import contextlib
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distributed import get_worker  # pyright: ignore[reportAttributeAccessIssue]

from arrayferry.extending import describe_error
from arrayferry_cluster._errors import (
    DistributedEnvError,
    EnvFailedError,
    PolicyFailedError,
    WorkerSetupError,
)

from .plan import SetupError, to_bytes


class Activity:
    """What a group is doing: its current segment, step and environment. Another thread may read the attributes.

    Args:
        group: the number of the group.
        indices: the numbers of the environments of the group.

    Attributes:
        segment: the number of the current segment, or None in a call that only makes the environments.
        step: the number of the current step in the segment, or None between steps.
        policy: whether the policy computes, or its results are read.
        env: the number of the environment in use, or None if none is in use.
        since: the `time.monotonic` at which the current step or call began, or None between calls.
    """

    def __init__(self, group: int, indices: Sequence[int]) -> None:
        self._group = group
        self._indices = tuple(indices)
        self.segment: int | None = None
        self.step: int | None = None
        self.policy = False
        self.env: int | None = None
        self.since: float | None = None

    def __call__(self, segment: int | None, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and return its result. Return a `Failure` for any error, also for `SystemExit`."""
        self.segment, self.step, self.policy, self.env = segment, None, False, None
        self.since = time.monotonic()
        try:
            return call(*args)
        except BaseException as error:
            return Failure.of(error, self)
        finally:
            self.since = None

    @property
    def indices(self) -> tuple[int, ...]:
        """The index of the environment in use, or the indices of all environments of the group if none is in use."""
        return self._indices if self.env is None else (self.env,)

    def __str__(self) -> str:
        parts = [] if self.step is None else [f"step {self.step}"]
        parts += [] if self.segment is None else [f"segment {self.segment}"]
        return " of ".join([*parts, f"group {self._group}"])


def named(indices: Sequence[int]) -> str:
    """Return words for consecutive environments, such as "environments 2 to 5"."""
    lowest, highest = indices[0], indices[-1]
    return f"environment {lowest}" if lowest == highest else f"environments {lowest} to {highest}"


class Failure(NamedTuple):
    """An error on a worker, which is sent in place of a result.

    Attributes:
        error: the error to raise for the user.
        cause: the pickled error of the environment or policy, or None if it cannot be pickled.
    """

    error: DistributedEnvError
    cause: bytes | None

    @classmethod
    def of(cls, error: BaseException, activity: Activity) -> Failure:
        """Return the failure for an error. `activity` shows which environments raised it, or that the policy did."""
        is_setup_error = isinstance(error, SetupError)
        by_policy = activity.policy and activity.env is None
        error = (is_setup_error and error.__cause__) or error
        pickled_cause = None
        with contextlib.suppress(Exception):
            pickled_cause = to_bytes(error)
        worker, indices = get_worker().address, activity.indices
        error_options: Any = {"indices": indices, "worker": worker}
        if is_setup_error:
            module = (error.name or "") if isinstance(error, ImportError) else ""
            report: DistributedEnvError = WorkerSetupError(
                f"the worker {worker} cannot import {module or 'a function'}, for {named(indices)}: {describe_error(error)}",
                remedy="Install the module on the workers, send it with client.upload_file, or let cloudpickle pickle "
                "it by cloudpickle.register_pickle_by_value(module).",
                module=module,
                **error_options,
            )
        else:
            error_type = PolicyFailedError if by_policy else EnvFailedError
            raiser = "the policy" if by_policy else named(indices)
            report = error_type(
                f"{raiser} raised {describe_error(error)}, in {activity} on the worker {worker}",
                remedy="Fix the cause, and request the next trajectories, which restarts the group.",
                original=type(error).__name__,
                **error_options,
            )
        report.add_note("On the worker:\n" + "".join(traceback.format_exception(error)).rstrip())
        return cls(report, pickled_cause)

    def with_cause(self) -> DistributedEnvError:
        """Return the error to raise for the user, with its cause if this process can unpickle it."""
        with contextlib.suppress(Exception):  # this process may lack the class of the cause
            self.error.__cause__ = None if self.cause is None else pickle.loads(self.cause)
        return self.error
