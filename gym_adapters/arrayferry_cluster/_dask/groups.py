"""Groups of environments on workers: requests of segments, their replies, and restarts.

A group of a `FunctionalEnv` runs as tasks, which Dask runs again if their worker is lost. A group of ordinary
environments is an actor. If its worker is lost, it is made again on another worker.

Ctrl-C may interrupt any line. So a group has one `GroupStatus`, which is replaced as a whole, and a method can be
called again after an interrupt.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from arrayferry_cluster._errors import EnvFailedError, EnvTimeoutError
from arrayferry_cluster._workers.env_group import EnvGroup
from arrayferry_cluster._workers.failure import Failure, named
from arrayferry_cluster._workers.plan import GroupSetup, to_bytes

from .cluster import PATIENCE, Cluster, Sent

SPACES = -1
"""The number of the request for the spaces, in place of the number of a segment. The request comes before segment 0."""

LINKED = 8
"""Every `LINKED`-th segment of a `FunctionalEnv` gets its state from this process. All other segments are linked.

A linked segment begins with the result of the previous segment, and Dask runs it on the worker that has this result. If
the result is lost, Dask repeats the previous linked segments, from the last state that this process sent. A segment
that is not linked is requested after the previous segment has arrived, and may run on another worker. The scheduler then
deletes the linked segments before it, and their weights.
"""

_arrivals = itertools.count()


class Position(NamedTuple):
    """The progress of a group: which of its segments were returned to the user.

    Attributes:
        number: the number of the next segment to return.
        state: the state with which the next segment begins. None for ordinary environments, and for a segment that
            begins with resets.
        call: the future of the previous segment, whose worker has the state with which the next segment begins.
    """

    number: int
    state: Any = None
    call: Any = None


@dataclass(eq=False)
class Job:
    """A segment that was requested.

    Attributes:
        number: the number of the segment.
        restarted: whether the group was restarted with this segment.
        call: the future of the reply.
        reply: the reply, or None until it arrives.
        arrived: the number of the reply, counted over the replies of all groups in the order of arrival.
        running_since: the `time.monotonic` at which the task was first found to run, or None before that.
    """

    number: int
    restarted: bool
    call: Any
    reply: Any = None
    arrived: int = -1
    running_since: float | None = None


class GroupStatus(NamedTuple):
    """The status of a group.

    Attributes:
        jobs: the segments that were requested but not yet returned to the user, in order.
        restarts: the number of restarts. The seeds of ordinary environments depend on it.
        begins: the number of the first segment since the group was made or restarted.
        losses: the number of times that the worker of the group was lost.
        deaths: the number of times in a row that a worker died before it replied.
        home: the future of the actor, or None without an actor.
        actor: the actor, or None until it exists.
        since: the `time.monotonic` at which the actor was submitted.
        sent: the version of the weights that were last sent to the actor, or -1.
    """

    jobs: tuple[Job, ...] = ()
    restarts: int = 0
    begins: int = 0
    losses: int = 0
    deaths: int = 0
    home: Any = None
    actor: Any = None
    since: float = 0.0
    sent: int = -1


class Group(ABC):
    """A group of environments.

    Args:
        cluster: the workers.
        plan: the `Plan`, pickled.
        setup: the environments of the group.
        timeout: the maximum number of seconds for a step, or for a compiled segment.

    Attributes:
        status: the `GroupStatus`: the segments that were requested, and what is needed to restart the group.
        plan: the `Plan`, pickled.
        setup: the environments of the group.
    """

    most_deaths = 20
    """The number of deaths of workers in a row after which an error is raised.

    It is smaller for tasks, since Dask itself runs a task several times before it reports a death.
    """

    def __init__(self, cluster: Cluster, plan: Sent, setup: GroupSetup, timeout: float) -> None:
        self.status = GroupStatus()
        self.plan = plan
        self.setup = setup
        self._cluster = cluster
        self._setup_bytes = to_bytes(setup)
        self._timeout = timeout
        self._first = SPACES  # the first segment that was not returned to the user

    def forget(self, number: int) -> None:
        """Delete the segments before `number`, which were returned to the user."""
        self._first = number
        kept_jobs = tuple(job for job in self.status.jobs if job.number >= number)
        self.status = self.status._replace(jobs=kept_jobs)

    @property
    def ready(self) -> tuple[Job, ...]:
        """The segments before the first segment that has not arrived, in order."""
        return tuple(itertools.takewhile(lambda job: job.reply is not None, self.status.jobs))

    @property
    def under_way(self) -> Job | None:
        """The first segment that has not arrived yet, or None if there is none."""
        return next((job for job in self.status.jobs if job.reply is None), None)

    @abstractmethod
    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        """Request the next segment, and return whether the group could accept the request.

        Args:
            number: the number of the segment.
            weights: the parameters of the policy.
            position: the position of the group.
        """

    def _add(self, number: int, call: Any, **changed: Any) -> bool:
        status = self.status
        job = Job(number, number == status.begins and status.restarts > 0, call)
        self.status = status._replace(jobs=(*status.jobs, job), **changed)
        return True

    def settle(self) -> None:
        """Receive the segments that have arrived.

        Raises:
            DistributedEnvError: the environments or the policy failed, or the workers die repeatedly.
        """
        while (job := self.under_way) is not None and job.call.done():
            try:
                reply = job.call.result(timeout=max(self._timeout, 30.0))
            except Exception as error:
                # Dask keeps the error in memory: remove the traceback, which refers to many objects
                return self._failed(job, error.with_traceback(None))
            if isinstance(reply, Failure):
                self._restart()
                del job  # the traceback of the error must not refer to the future of the job
                raise reply.with_cause()
            if reply == "again":
                self._drop(sent=-1)
            elif reply == "lost":
                self._restart(home=None, actor=None, losses=self.status.losses + 1)
            else:
                job.arrived = next(_arrivals)
                job.reply = reply
                self.status = self.status._replace(deaths=0)
        return None

    @abstractmethod
    def _failed(self, job: Job, error: Exception) -> None:
        """Handle a call for which Dask has an error in place of a reply: request it again, or restart the group.

        Raises:
            EnvFailedError: the workers died too often in a row.
        """

    def _drop(self, **changed: Any) -> None:
        """Delete the requests of segments that have not arrived. Then they are requested again."""
        self.status = self.status._replace(jobs=self.ready, **changed)

    def _restart(self, **changed: Any) -> None:
        """Restart the group: its environments are reset at the first segment that has not arrived."""
        next_number = self._first + len(self.ready)
        restarts = self.status.restarts + (next_number > SPACES)
        self._drop(restarts=restarts, begins=max(next_number, 0), sent=-1, **changed)

    def _died(self, error: BaseException | None) -> None:
        """Count a death of a worker.

        Raises:
            EnvFailedError: this is death number `most_deaths` in a row.
        """
        deaths = self.status.deaths + 1
        self.status = self.status._replace(deaths=deaths % self.most_deaths)
        if deaths == self.most_deaths:
            reason = "" if error is None else f": {type(error).__name__}: {error}"
            raise EnvFailedError(
                f"the workers died repeatedly in {self}{reason}",
                remedy="Look for the reason in the logs of the workers. The next call for trajectories tries again.",
                indices=tuple(self.setup.indices),
            ) from error

    @abstractmethod
    def check(self) -> None:
        """Check whether the group hangs.

        Raises:
            EnvTimeoutError: the group hangs. It is restarted.
        """

    def _hangs(self, worker: str, where: str, indices: tuple[int, ...]) -> EnvTimeoutError:
        """Restart a worker that hangs, and return an error that reports it."""
        self._restart(home=None, actor=None)
        outcome = "was restarted" if self._cluster.restart(worker) else "has no nanny to restart it"
        return EnvTimeoutError(
            f"{named(indices)} did not answer within {self._timeout:g} s, in {where} on the worker {worker}, which {outcome}",
            remedy="Request the next trajectories, which restarts the group, or pass a longer timeout.",
            indices=indices,
            worker=worker,
        )

    def __str__(self) -> str:
        return f"segment {max(self._first + len(self.ready), 0)} of group {self.setup.index}"


class TaskGroup(Group):
    """A group of a `FunctionalEnv`. Each segment is a task that begins with the final state of the previous segment."""

    most_deaths = 3

    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        from arrayferry_cluster._workers.functional_group import segment

        status = self.status
        _, state, call = position
        if status.jobs:
            call, reply = status.jobs[-1].call, status.jobs[-1].reply
            state = None if reply is None else reply.state
        is_reset = number == status.begins
        is_linked = call is not None and number % LINKED > 0 and not status.deaths and not is_reset
        if is_linked or is_reset:
            state = call if is_linked else None
        elif self.under_way is not None:
            return False  # the state has not arrived yet
        args = self.plan.future(), self._setup_bytes, number, state, weights.future()
        group_index = -1 if is_linked else self.setup.index
        return self._add(
            number, self._cluster.submit(segment, *args, weights.version, group=group_index)
        )

    def _failed(self, job: Job, error: Exception) -> None:
        if isinstance(error, TimeoutError) and job.call.status not in ("error", "cancelled"):
            # the worker died while this process fetched the result, which Dask computes again
            return
        self._cluster.living()
        self._drop()
        self._died(error)

    def check(self) -> None:
        job, now = self.under_way, time.monotonic()
        if job is not None and (worker := self._cluster.running(job.call.key)) is not None:
            job.running_since = job.running_since or now
            if now - job.running_since > self._timeout:
                # otherwise, Dask would run these tasks on another worker, which would hang too
                self._cluster.cancel([job.call for job in self.status.jobs if not job.reply])
                raise self._hangs(worker, str(self), tuple(self.setup.indices))


class ActorGroup(Group):
    """A group of ordinary environments, which is an actor.

    If its worker is lost, a new actor replaces it, with seeds that are derived from the original seeds.
    """

    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        status, first_job = self.status, self.under_way
        if status.home is None:
            home = self._cluster.submit(EnvGroup, self.plan.data, self._setup_bytes, actor=True)
            self.status = status._replace(home=home, since=time.monotonic())
            return False
        if status.home.status != "finished":
            return False
        if first_job is not None and first_job.number in (SPACES, status.begins):
            return False  # Dask may swap two calls, so wait until the first call is complete
        version = weights.version
        weight_bytes = None if status.sent == version else weights.data
        args = number, status.restarts, number == status.begins, version, weight_bytes
        try:
            with self._cluster.client.as_current():  # calls of an actor use the current client
                if status.actor is None:
                    status = status._replace(actor=status.home.result(timeout=PATIENCE))
                    self.status = status
                future = status.actor.spaces() if number == SPACES else status.actor.segment(*args)
        except Exception as error:  # the actor is lost: `settle` replaces it
            error.__traceback__ = None
            return False
        return self._add(number, future, sent=status.sent if number == SPACES else version)

    def settle(self) -> None:
        try:
            super().settle()
        finally:
            home = self.status.home
            if home is not None and home.status not in ("finished", "pending"):
                error = home.exception(timeout=PATIENCE) if home.status == "error" else None
                self._restart(home=None, actor=None, losses=self.status.losses + 1)
                self._died(error)

    def _failed(self, job: Job, error: Exception) -> None:
        # then the connection is lost, or Dask does not know yet that the worker died: request again
        if self.status.home.status == "finished":
            time.sleep(0.1)
            self._drop(sent=-1)
            self._died(error)

    def check(self) -> None:
        status, indices, location = self.status, tuple(self.setup.indices), str(self)
        if status.actor is None:
            now = time.monotonic()
            if not self._cluster.seen:  # without a worker, the timeout begins again
                self.status = status._replace(since=now)
            elif status.home is not None and now - status.since > self._timeout:
                self.status = status._replace(home=None)
                raise EnvTimeoutError(
                    f"no worker made the environments of {self} within {self._timeout:g} s",
                    remedy="If the workers are busy with other tasks, wait for these, or pass a longer timeout.",
                    indices=indices,
                )
        elif self.under_way is not None:
            try:
                with self._cluster.client.as_current():
                    activity = status.actor.activity().result(timeout=PATIENCE)
                if activity is None or activity[0] <= self._timeout:
                    return
                _, location, indices = activity
            except TimeoutError:  # no answer: report the defaults of `location` and `indices`
                pass
            except Exception:  # the actor is lost: `settle` replaces it
                return
            if worker := self._cluster.address(status.home):
                raise self._hangs(worker, location, indices)
