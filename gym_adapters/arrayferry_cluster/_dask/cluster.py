"""The Dask cluster that runs the groups: the user's cluster, or a new cluster on this machine."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import numbers
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import dask.config
from distributed import Client, get_client  # pyright: ignore[reportAttributeAccessIssue]

import arrayferry as af
from arrayferry._utilities.closing import construct_or_close
from arrayferry_cluster._errors import NoWorkerError, SchedulerLostError

T = TypeVar("T")

PATIENCE = 5.0
"""The number of seconds after which a scheduler or worker that has not answered counts as lost."""


class Cluster:
    """The workers of a Dask cluster that a collector may use.

    Args:
        client: a client, or the address of a scheduler. None for the current client, or for a new cluster on
            this machine if there is no current client.
        n_workers: the number of workers of a new cluster on this machine.
        workers: the addresses or names of the workers to use, or None for all.
        resources: Dask resources that a worker must have.

    Attributes:
        client: the Dask client in use.
        seen: the addresses of usable workers in the scheduler's last answer.

    Raises:
        arrayferry.OptionError: `client` is asynchronous or is not a client, or another option is invalid.
        NoWorkerError: the new cluster on this machine cannot be started.
        SchedulerLostError: there is no scheduler at the address, or it cannot be reached.
    """

    def __init__(self, client: Any, n_workers: int, workers: Any, resources: Any) -> None:
        worker_names, amounts = list(workers or ()), dict(resources or {})
        if (
            isinstance(workers, str)
            or (workers is not None and not worker_names)
            or not all(isinstance(name, str) for name in worker_names)
            or not all(isinstance(amount, numbers.Real) for amount in amounts.values())
        ):
            raise af.OptionError(
                f"workers={workers!r:.80}, resources={resources!r:.80} are not valid",
                remedy="Pass a list of addresses or names of workers, and a dict such as {'GPU': 1}. "
                "client.scheduler_info() shows both.",
            )
        self._workers = worker_names or None
        self._resources = amounts
        # maps str(name) to the name of each worker, since Dask also has names that are numbers
        self._aliases: dict[str, Any] = {}
        self._hung: set[str] = set()  # addresses of workers that hang and cannot be restarted
        self._empty_since: float | None = None
        self._wanted: Any = None  # a task that makes an adaptive cluster start a worker
        self.seen: list[str] = []
        if client is None:
            # get_client() raises ValueError if there is no current client
            with contextlib.suppress(ValueError):
                client = get_client()
        self._owned = client is None or isinstance(client, str)
        self.client: Client = _open_client(client, n_workers) if self._owned else client
        if not isinstance(self.client, Client):
            raise af.OptionError(
                f"client={client!r:.80} is not a Dask client",
                remedy="Pass a distributed.Client, the address of a scheduler, or None.",
            )
        self.check_thread()

    def check_thread(self) -> None:
        """Raise an error in the thread of the client's event loop, where a call that waits would block the loop."""
        if self.client.asynchronous:
            raise af.OptionError(
                "client= or the current client is asynchronous, but a Collector needs a synchronous client",
                remedy="Use the Collector in another thread (asyncio.to_thread), or pass a client that was made without asynchronous=True.",
            )

    def close(self) -> None:
        """Close the client if this object made it, and its workers if this object started them."""
        if self._owned:
            self.client.close()

    def _ask(self, question: Callable[[], T], patience: float = PATIENCE) -> T:
        """Call a function in another thread, and wait for its result for at most `patience` seconds.

        The client itself waits long for a lost scheduler, and forever in a forked process.
        """
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        threading.Thread(target=_answer, args=(question, answer), daemon=True).start()
        return answer.result(patience)

    def living(self) -> list[str]:
        """Return the addresses of the workers that may be used.

        Raises:
            SchedulerLostError: the scheduler cannot be reached.
        """
        try:
            workers: Any = self._ask(lambda: self.client.scheduler_info(n_workers=-1))["workers"]
        except Exception as error:
            raise SchedulerLostError(
                f"the scheduler cannot be reached with {self.client!r:.120}: {type(error).__name__}: {error}",
                remedy="Connect a new client to a scheduler, and make another collector with this client.",
            ) from error
        self._aliases |= {str(info.get("name")): info.get("name") for info in workers.values()}
        self.seen = sorted(addr for addr, worker in workers.items() if self._fits(addr, worker))
        return self.seen

    def _fits(self, address: str, worker: Mapping[str, Any]) -> bool:
        names, resources = {address, str(worker.get("name"))}, worker.get("resources", {})
        if address in self._hung or not (self._workers is None or names & set(self._workers)):
            return False
        return all(resources.get(name, 0) >= amount for name, amount in self._resources.items())

    def check_workers(self, timeout: float) -> list[str]:
        """Return the addresses of the workers that may be used.

        Raises:
            NoWorkerError: repeated calls found no worker for `timeout` seconds.
            SchedulerLostError: the scheduler cannot be reached.
        """
        addresses, now = self.living(), time.monotonic()
        since, self._empty_since = self._empty_since, None
        wanted_task, self._wanted = self._wanted, None
        if not addresses:
            if since is not None and now - since > timeout:
                raise NoWorkerError(
                    f"there is no worker (workers={self._workers}, resources={self._resources}), and none joined within {timeout:g} s",
                    remedy="Start workers, wait for them by client.wait_for_workers(n), and try again.",
                )
            self._empty_since, self._wanted = since or now, wanted_task or self.submit(_same, b"")
        return addresses

    def submit(self, function: Any, *args: Any, actor: bool = False, group: int = -1) -> Any:
        """Submit a task or an actor, and return its future.

        By default, Dask runs a task on the worker that has its inputs, and moves only tasks that take long. To spread
        the groups over all workers, including workers that rejoin, each group prefers one worker.

        Raises:
            SchedulerLostError: the scheduler cannot be reached.
        """
        workers = [self._aliases.get(name, name) for name in self._workers or ()] or None
        workers = self.living() if self._hung else workers
        prefers_worker = group >= 0 and workers is None and len(self.seen) > 0
        if prefers_worker:
            workers = [self.seen[group % len(self.seen)]]
        options: Any = {"workers": workers, "allow_other_workers": prefers_worker, "resources": self._resources or None}  # fmt: skip
        # Dask would warn about large arguments, but these are sent to each worker only once
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            try:
                return self.client.submit(function, *args, actor=actor, pure=False, **options)
            except Exception:
                self.living()
                raise

    def cancel(self, futures: list[Any]) -> None:
        """Delete results and actors on the workers, even if some object still refers to their futures."""
        if futures:
            with contextlib.suppress(Exception):  # if the scheduler is lost, so are the results
                self._ask(lambda: self.client.cancel(futures))

    def address(self, future: Any) -> str:
        """Return the address of the worker that has a result, or "" if it is not known."""
        with contextlib.suppress(Exception):
            holders = self._ask(lambda: self.client.who_has([future]))
            return next((address for addresses in holders.values() for address in addresses), "")
        return ""

    def running(self, key: str) -> str | None:
        """Return the address of the worker that computes a task now, or None if no worker does."""
        # ignore errors: the worker may be lost, or the task cancelled, between these calls
        with contextlib.suppress(Exception):
            # the scheduler would log an error if call_stack() asked for a key that does not run
            keys_by_worker = self._ask(self.client.processing)
            if any(key in keys for keys in keys_by_worker.values()):
                return next(iter(self._ask(lambda: self.client.call_stack(keys=[key]))), None)
        return None

    def restart(self, address: str) -> bool:
        """Restart a worker that hangs, and return whether this was possible. If not, do not use the worker again."""
        try:
            self._ask(
                lambda: self.client.restart_workers([address], timeout=30, raise_for_error=False), 60
            )  # fmt: skip
        except Exception:  # a worker without a nanny cannot be restarted
            self._hung.add(address)
            return False
        return True


def _answer(question: Callable[[], T], answer: concurrent.futures.Future[T]) -> None:
    try:
        answer.set_result(question())
    except BaseException as error:  # pass on only the text, since the error may refer to futures
        answer.set_exception(OSError(f"{type(error).__name__}: {error}"))


class Sent:
    """Bytes that several tasks need. A separate task returns them. If its worker is lost, Dask runs the task again.

    Args:
        cluster: the cluster whose tasks need the bytes.
        data: the bytes.
        version: the version of the bytes, for example of the weights that they contain.
    """

    def __init__(self, cluster: Cluster, data: bytes, version: int = 0) -> None:
        self.data = data
        self.version = version
        self._cluster = cluster
        self._future: Any = None

    def future(self) -> Any:
        """Return the future of the task, which is submitted by the first call."""
        if self._future is None or self._future.status in ("error", "cancelled"):
            self._future = self._cluster.submit(_same, self.data)
        return self._future

    def release(self) -> None:
        """Release the future of the task, so that workers can delete the bytes."""
        self._future = None


def _same(data: bytes) -> bytes:
    return data


def _open_client(address: str | None, n_workers: int) -> Client:
    """Return a client of the scheduler at an address, or start workers on this machine and return their client."""
    options: dict[str, Any] = {"timeout": PATIENCE}
    if address is None:
        options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "direct_to_workers": True}  # fmt: skip
    try:
        if address is None and getattr(multiprocessing.current_process(), "_inheriting", False):
            raise RuntimeError("a worker that imports this script would start workers too")
        client: Client = construct_or_close(Client, address, set_as_default=False, **options)
        return client
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if address is None:
            raise NoWorkerError(
                f"workers on this machine could not be started: {reason}",
                remedy="Write the code that makes the collector under `if __name__ == '__main__':`, or pass a client.",
            ) from error
        raise SchedulerLostError(
            f"there is no scheduler at {address!r}: {reason}",
            remedy="Pass the address that the scheduler prints when it starts; for TLS, set distributed.comm.tls, or pass a client.",
        ) from error
