"""Errors of environments in other processes."""

from __future__ import annotations

from typing import Any

from arrayferry import ArrayFerryError


class DistributedEnvError(ArrayFerryError):
    """The base class of the errors of `arrayferry_gym.distributed`.

    Attributes:
        indices: the indices of the affected environments, () if there are none or they are not known.
        worker: the address of the worker, "" if it is not known.
    """

    def __init__(
        self, reason: str, *, remedy: str = "", indices: tuple[int, ...] = (), worker: str = ""
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.indices = indices
        self.worker = worker


class _RaisedError(DistributedEnvError, RuntimeError):
    def __init__(self, reason: str, *, original: str = "", **place: Any) -> None:
        super().__init__(reason, **place)
        self.original = original


class EnvFailedError(_RaisedError):
    """An environment raised an error. Its own error is the cause, if this process can load it.

    Attributes:
        original: the name of the type of its own error.
    """


class PolicyFailedError(_RaisedError):
    """A policy raised an error, or returned something that cannot be used. Its own error is the cause, if this process can load it.

    Attributes:
        original: the name of the type of its own error.
    """


class EnvTimeoutError(DistributedEnvError, TimeoutError):
    """Environments did not answer in time."""


class NoWorkerError(DistributedEnvError, ConnectionError):
    """The workers are gone, and no other joined in time."""


class NotReadyError(DistributedEnvError, RuntimeError):
    """The environments cannot do that now: they are closed, or have to be reset first."""


class SchedulerLostError(DistributedEnvError, ConnectionError):
    """The scheduler cannot be reached."""


class SpaceMismatchError(DistributedEnvError, RuntimeError):
    """The spaces of an environment do not fit those of the first."""


class WorkerSetupError(DistributedEnvError, ImportError):
    """A worker lacks something that it needs to make the environments.

    Attributes:
        module: the name of the missing module, "" if something else is missing.
    """

    def __init__(self, reason: str, *, module: str = "", **place: Any) -> None:
        super().__init__(reason, **place)
        self.module = module


for _public in [value for value in globals().values() if isinstance(value, type)]:
    if issubclass(_public, DistributedEnvError):
        _public.__module__ = "arrayferry_gym.distributed"
