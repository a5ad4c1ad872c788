"""Gymnasium environments on the workers of a cluster, as one vector environment."""

from __future__ import annotations

try:
    import cloudpickle  # noqa: F401
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as _error:
    from arrayferry import BackendUnavailableError

    raise BackendUnavailableError(
        f"arrayferry_gym.distributed needs {_error.name or 'distributed'}, which is not installed",
        remedy="Run: pip install 'arrayferry[distributed]', or in the folder of its source pip install '.[distributed]'",
        backend="distributed",
    ) from _error

from ._collector import Collector
from ._dask import DaskEngine
from ._engine import Engine
from ._env import DistributedVectorEnv
from ._errors import (
    DistributedEnvError,
    EnvFailedError,
    EnvTimeoutError,
    NotReadyError,
    NoWorkerError,
    PolicyFailedError,
    SchedulerLostError,
    SpaceMismatchError,
    WorkerSetupError,
)
from ._host import Host
from ._stats import CollectorStats, WorkerStats
from ._trajectories import Trajectories

__all__ = [
    "Collector",
    "CollectorStats",
    "DaskEngine",
    "DistributedEnvError",
    "DistributedVectorEnv",
    "Engine",
    "EnvFailedError",
    "EnvTimeoutError",
    "Host",
    "NoWorkerError",
    "NotReadyError",
    "PolicyFailedError",
    "SchedulerLostError",
    "SpaceMismatchError",
    "Trajectories",
    "WorkerSetupError",
    "WorkerStats",
]
