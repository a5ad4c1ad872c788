"""Clusters of Dask on this machine."""

import contextlib

import dask
import distributed


@contextlib.contextmanager
def local_cluster(workers=1, *, processes=False, threads_per_worker=1, **options):
    """Start a cluster whose processes end with this one."""
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        distributed.LocalCluster(
            n_workers=workers,
            processes=processes,
            threads_per_worker=threads_per_worker,
            dashboard_address=":0",
            **options,
        ) as cluster,
    ):
        yield cluster
