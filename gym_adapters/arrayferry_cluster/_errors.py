"""The errors of collectors, and of environments and policies on workers."""

from __future__ import annotations

from typing import Any

from arrayferry import ArrayFerryError


class DistributedEnvError(ArrayFerryError):
    """The base class of the errors of `arrayferry_cluster`.

    Attributes:
        indices: the indices of the affected environments, or () if there are none or they are not known.
        worker: the address of the worker, or "" if it is not known.
        original: the name of the class of the error that an environment or a policy raised, or "" if neither did.
        module: the name of the module that the worker lacks, or "" if it lacks none.
    """

    indices: tuple[int, ...] = ()
    worker: str = ""
    original: str = ""
    module: str = ""

    def __init__(self, reason: str, *, remedy: str = "", **attributes: Any) -> None:
        super().__init__(reason, remedy=remedy)
        self.__dict__.update(attributes)


class EnvFailedError(DistributedEnvError, RuntimeError):
    """An environment raised an error, or its workers died repeatedly. The error is the cause, if it can be unpickled."""


class PolicyFailedError(DistributedEnvError, RuntimeError):
    """A policy raised an error or returned an invalid result. The original error is the cause, if it can be unpickled."""


class EnvTimeoutError(DistributedEnvError, TimeoutError):
    """Environments or their policy did not answer within `timeout` seconds."""


class NoWorkerError(DistributedEnvError, ConnectionError):
    """There is no worker that may be used, and none joined within `timeout` seconds."""


class NotReadyError(DistributedEnvError, RuntimeError):
    """The collector is closed, or was made by the process from which this process was forked."""


class SchedulerLostError(DistributedEnvError, ConnectionError):
    """The scheduler cannot be reached."""


class SpaceMismatchError(DistributedEnvError, RuntimeError):
    """The spaces of an environment differ from those of environment 0."""


class WorkerSetupError(DistributedEnvError, ImportError):
    """A worker lacks a module or function that the environments need."""


for _public in [member for member in globals().values() if isinstance(member, type)]:
    if issubclass(_public, DistributedEnvError):
        _public.__module__ = "arrayferry_cluster"
