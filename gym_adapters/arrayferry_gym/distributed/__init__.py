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

from typing import TYPE_CHECKING

from ._collector.collector import Collector
from ._collector.stats import CollectorStats, WorkerStats
from ._dask.engine import DaskEngine
from ._placing.engine import Engine
from ._placing.errors import (
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
from ._workers.host import Host
from ._workers.trajectories import Trajectories

if TYPE_CHECKING:
    from ._vector.overloads import DistributedVectorEnv
else:
    from ._vector.env import DistributedVectorEnv

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
