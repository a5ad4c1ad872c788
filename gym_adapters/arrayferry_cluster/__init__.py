"""`Collector`: steps environments on the workers of a Dask cluster, and returns their trajectories."""

try:
    import cloudpickle  # noqa: F401
    import dask  # noqa: F401
    import distributed  # noqa: F401
except ImportError as _error:
    from arrayferry import BackendUnavailableError

    raise BackendUnavailableError(
        f"arrayferry_cluster needs {_error.name or 'distributed'}, which is not installed",
        remedy="In a checkout of arrayferry, run: pip install '.[distributed]'",
        backend="distributed",
    ) from _error

from ._collector.collector import Collector
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
from ._trajectories import CollectorStats, Trajectory

__all__ = [
    "Collector",
    "CollectorStats",
    "DistributedEnvError",
    "EnvFailedError",
    "EnvTimeoutError",
    "NoWorkerError",
    "NotReadyError",
    "PolicyFailedError",
    "SchedulerLostError",
    "SpaceMismatchError",
    "Trajectory",
    "WorkerSetupError",
]
