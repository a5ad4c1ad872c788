"""The client of a Dask cluster: the one that is given or current, or a new one."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from typing import Any

import dask.utils
from distributed.client import Client
from distributed.deploy.local import LocalCluster
from distributed.worker import get_client

import arrayferry as af
from arrayferry_gym.distributed._placing.errors import NoWorkerError, SchedulerLostError

PATIENCE = 5.0
"""Seconds until a scheduler or worker that does not answer a short question counts as gone."""


def open_client(
    client: Any, n_workers: int | None, set_as_default: bool
) -> tuple[Any, list[Any], bool]:
    """Return a usable client, the objects to close with the engine, in this order, and whether there is a cluster among them.

    Args:
        client: a client, the address of a scheduler, or None for the current client or a cluster on this machine.
        n_workers: how many workers such a cluster has, None for one for each processor.
        set_as_default: whether a client that is made here becomes the current one.

    Raises:
        arrayferry.OptionError: the client is asynchronous or closed, or is not a client.
        NoWorkerError: the cluster on this machine cannot be started.
        SchedulerLostError: there is no scheduler at the address, or the client does not answer.
    """
    owned: list[Any] = []
    own_cluster = False
    if client is None:
        try:
            client = get_client()
        except ValueError:  # there is none
            cluster = _local_cluster(n_workers or os.cpu_count() or 1)
            client = Client(cluster, set_as_default=set_as_default)
            owned, own_cluster = [client, cluster], True
    elif isinstance(client, str):
        client = _connect(client, set_as_default)
        owned = [client]
    _check(client)
    return client, owned, own_cluster


def _connect(address: str, set_as_default: bool) -> Client:
    configured = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    timeout = min(float(configured), PATIENCE)
    try:
        return Client(address, set_as_default=set_as_default, timeout=timeout)
    except (OSError, ValueError) as error:
        raise SchedulerLostError(
            f"there is no scheduler at {address!r}",
            remedy="Pass the address that the scheduler prints when it starts.",
        ) from error


def _check(client: Any) -> None:
    if not isinstance(client, Client):
        raise af.OptionError(
            f"client={client!r:.80} is not a Dask client",
            remedy="Pass a distributed.Client, the address of a scheduler, or None.",
        )
    if client.asynchronous:
        raise af.OptionError(
            "the client is asynchronous, but environments are stepped synchronously",
            remedy="Pass distributed.Client(..., asynchronous=False).",
        )
    if client.status != "running":
        raise af.OptionError(
            f"the client is not connected: it is {client.status}",
            remedy="Pass a client that is connected to a scheduler.",
        )
    try:
        client.sync(asyncio.sleep, 0, callback_timeout=PATIENCE)
    except TimeoutError:
        raise SchedulerLostError(
            "the client does not answer in this process, as after a fork",
            remedy="Make a client in this process.",
        ) from None


def _local_cluster(n_workers: int) -> LocalCluster:
    guard = "Put the code that makes the environments under `if __name__ == '__main__':`, or pass a client."
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise NoWorkerError(
            "a worker imports the script that starts it, which would start workers again",
            remedy=guard,
        )
    try:
        return LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
    except Exception as error:
        raise NoWorkerError(
            f"a cluster on this machine could not be started: {type(error).__name__}: {error}",
            remedy=guard,
        ) from error
