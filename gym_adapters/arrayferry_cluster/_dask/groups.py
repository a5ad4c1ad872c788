"""Groups of environments on workers. A group runs as tasks, which Dask repeats, or as an actor, which is restarted.

Ctrl-C may interrupt any line. So a group has one `GroupStatus`, which is replaced as a whole, and repeated calls have the
same result.
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
"""The number of the call that requests the spaces, before the first segment."""

LINKED = 8
"""The number of segments of a `FunctionalEnv` after which the state is sent from here, rather than between workers.

The segments between are linked: they get the state from the segment before, and run where that is. If it is lost, Dask
repeats them from the last state that was sent. A segment that is not linked may run on another worker.
"""

_arrivals = itertools.count()


class Position(NamedTuple):
    """The position of a group in the segments that were returned to the user.

    Attributes:
        number: the number of the next segment.
        state: the state with which this segment begins. None for ordinary environments, and to begin with resets.
        call: the future of the segment before, whose worker has that state.
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
        reply: the reply, or None before it has arrived.
        arrived: the number of the reply among the replies of all groups.
        running_since: the time when the task was first seen running.
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
        deaths: the number of deaths of workers in a row.
        home: the future of the actor, or None without an actor.
        actor: the actor, or None until it exists.
        since: the time when the actor was submitted.
        sent: the version of the weights last sent to the actor.
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
        timeout: the seconds that a step, or a compiled segment, may take.

    Attributes:
        status: the `GroupStatus`: the segments in progress, and what a restart needs.
        plan: the `Plan`, pickled.
        setup: the environments of the group.
    """

    most_deaths = 20
    """The number of deaths of workers in a row that raises an error. Dask itself tries a task several times."""

    def __init__(self, cluster: Cluster, plan: Sent, setup: GroupSetup, timeout: float) -> None:
        self.status = GroupStatus()
        self.plan = plan
        self.setup = setup
        self._cluster = cluster
        self._setup_bytes = to_bytes(setup)
        self._timeout = timeout
        self._first = SPACES  # the first segment that was not returned to the user

    def forget(self, number: int) -> None:
        """Forget the segments before `number`, the first that was not returned to the user."""
        self._first = number
        left = tuple(job for job in self.status.jobs if job.number >= number)
        self.status = self.status._replace(jobs=left)

    @property
    def ready(self) -> tuple[Job, ...]:
        """The segments that have arrived, in order."""
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
                # Dask keeps the error, and with it the objects in its traceback
                return self._failed(job, error.with_traceback(None))
            if isinstance(reply, Failure):
                self._restart()
                del job  # without this line, the traceback of the error would refer to a future
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
        """Handle a call for which Dask has no result."""

    def _drop(self, **changed: Any) -> None:
        """Forget the segments that have not arrived, so that they are requested again."""
        self.status = self.status._replace(jobs=self.ready, **changed)

    def _restart(self, **changed: Any) -> None:
        """Begin again with the first segment that has not arrived."""
        number = self._first + len(self.ready)
        restarts = self.status.restarts + (number > SPACES)
        self._drop(restarts=restarts, begins=max(number, 0), sent=-1, **changed)

    def _died(self, error: BaseException | None) -> None:
        """Count a death of a worker.

        Raises:
            EnvFailedError: there were too many deaths in a row.
        """
        deaths = self.status.deaths + 1
        self.status = self.status._replace(deaths=deaths % self.most_deaths)
        if deaths == self.most_deaths:
            reason = "" if error is None else f": {type(error).__name__}: {error}"
            raise EnvFailedError(
                f"the workers died again and again in {self}{reason}",
                remedy="Look for the reason in the logs of the workers. The next call tries again.",
                indices=tuple(self.setup.indices),
            ) from error

    @abstractmethod
    def check(self) -> None:
        """Check whether the group hangs.

        Raises:
            EnvTimeoutError: the group hangs. It begins again.
        """

    def _hangs(self, worker: str, where: str, indices: tuple[int, ...]) -> EnvTimeoutError:
        """Restart a worker that hangs, and return an error that reports it."""
        self._restart(home=None, actor=None)
        what = "was restarted" if self._cluster.restart(worker) else "has no nanny to restart it"
        return EnvTimeoutError(
            f"{named(indices)} did not answer within {self._timeout:g} s, in {where} on the worker {worker}, which {what}",
            remedy="Request the next trajectories: this restarts the group. Or pass a longer timeout.",
            indices=indices,
            worker=worker,
        )

    def __str__(self) -> str:
        return f"segment {max(self._first + len(self.ready), 0)} of group {self.setup.index}"


class TaskGroup(Group):
    """A group of a `FunctionalEnv`. Each segment is a task, to which Dask passes the state after the last segment."""

    most_deaths = 3

    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        from arrayferry_cluster._workers.functional_group import segment

        status = self.status
        _, state, call = position
        if status.jobs:
            call, reply = status.jobs[-1].call, status.jobs[-1].reply
            state = call if reply is None else reply.state
        begins = number == status.begins
        linked = call is not None and number % LINKED > 0 and not status.deaths and not begins
        if linked or begins:
            state = call if linked else None
        args = self.plan.future(), self._setup_bytes, number, state, weights.future()
        group = -1 if linked else self.setup.index
        return self._add(number, self._cluster.submit(segment, *args, weights.version, group=group))

    def _failed(self, job: Job, error: Exception) -> None:
        if isinstance(error, TimeoutError) and job.call.status not in ("error", "cancelled"):
            # the worker died while its result was fetched, so Dask computes the result again
            return
        self._cluster.living()
        self._drop()
        self._died(error)

    def check(self) -> None:
        job, now = self.under_way, time.monotonic()
        if job is not None and (worker := self._cluster.running(job.call.key)) is not None:
            job.running_since = job.running_since or now
            if now - job.running_since > self._timeout:
                # unless cancelled, the calls would run on another worker, which would hang too
                self._cluster.cancel([job.call for job in self.status.jobs if not job.reply])
                raise self._hangs(worker, str(self), tuple(self.setup.indices))


class ActorGroup(Group):
    """A group of ordinary environments, as an actor. If its worker is lost, a new actor is made with other seeds."""

    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        status, first = self.status, self.under_way
        if status.home is None:
            home = self._cluster.submit(EnvGroup, self.plan.data, self._setup_bytes, actor=True)
            self.status = status._replace(home=home, since=time.monotonic())
            return False
        if status.home.status != "finished":
            return False
        if first is not None and first.number in (SPACES, status.begins):
            return False  # calls could arrive in another order
        version = weights.version
        data = None if status.sent == version else weights.data
        args = number, status.restarts, number == status.begins, version, data
        try:
            with self._cluster.client.as_current():  # the actor uses the current client
                if status.actor is None:
                    status = status._replace(actor=status.home.result(timeout=PATIENCE))
                    self.status = status
                reply = status.actor.spaces() if number == SPACES else status.actor.segment(*args)
        except Exception as error:  # the actor was just lost
            error.__traceback__ = None
            return False
        return self._add(number, reply, sent=status.sent if number == SPACES else version)

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
        # the connection is lost, or Dask has not noticed yet that the worker died
        if self.status.home.status == "finished":
            time.sleep(0.1)
            self._drop(sent=-1)
            self._died(error)

    def check(self) -> None:
        status, indices, where = self.status, tuple(self.setup.indices), str(self)
        if status.actor is None:
            now = time.monotonic()
            if not self._cluster.seen:  # the timeout begins when there is a worker
                self.status = status._replace(since=now)
            elif status.home is not None and now - status.since > self._timeout:
                self.status = status._replace(home=None)
                raise EnvTimeoutError(
                    f"no worker made the environments of {self} within {self._timeout:g} s",
                    remedy="The workers may be busy with other tasks: wait for those, or pass a longer timeout.",
                    indices=indices,
                )
        elif self.under_way is not None:
            try:
                with self._cluster.client.as_current():
                    activity = status.actor.activity().result(timeout=PATIENCE)
                if activity is None or activity[0] <= self._timeout:
                    return
                _, where, indices = activity
            except TimeoutError:  # the whole process does not answer
                pass
            except Exception:  # the actor is lost: `settle` handles that
                return
            if worker := self._cluster.address(status.home):
                raise self._hangs(worker, where, indices)
