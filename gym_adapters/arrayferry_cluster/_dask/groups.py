"""Groups of environments on workers. A group runs as tasks, which Dask repeats, or as an actor, which is made again here.

Ctrl-C may come at any line. So what is known of a group is in one `GroupStatus`, which is replaced as a whole, and a call
that is repeated has the same result.
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
"""The number of the call that asks for the spaces, before the first segment."""

LINKED = 8
"""How many segments of a `FunctionalEnv` pass their state on to the next on the workers, before it is sent from here.

Such linked segments run where their state is. If it is lost, Dask runs them again from the last state that was sent.
A segment that is not linked may run on another worker.
"""

_arrivals = itertools.count()


class Position(NamedTuple):
    """How far a group has come, for the user.

    Attributes:
        number: the number of the next segment.
        state: where it begins; None for ordinary environments, and to begin with resets.
        call: the future of the segment before it, which has that state on a worker.
    """

    number: int
    state: Any = None
    call: Any = None


@dataclass(eq=False)
class Job:
    """A segment that was asked for.

    Attributes:
        number: its number.
        restarted: whether its group was restarted with it.
        call: the future of its reply.
        reply: the reply, None before it has come.
        arrived: counts the replies of all groups.
        running_since: when its task was first seen running.
    """

    number: int
    restarted: bool
    call: Any
    reply: Any = None
    arrived: int = -1
    running_since: float | None = None


class GroupStatus(NamedTuple):
    """What is known of a group.

    Attributes:
        jobs: what was asked for and not yet returned to the user, in order.
        restarts: how often the group was restarted, on which the seeds of ordinary environments depend.
        begins: the segment with which it begins, or began when it was restarted.
        losses: how often its worker was lost.
        deaths: how often in a row its worker died.
        home: the future of its actor, None if it has none.
        actor: the actor, None if it is not there yet.
        since: when the actor was submitted.
        sent: the version of the weights that the actor was sent last.
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
        setup: which environments it has.
        timeout: the seconds that a step, or a compiled segment, may take.

    Attributes:
        status: what is known of it.
        plan: what it does.
        setup: which environments it has.
    """

    most_deaths = 20
    """After how many deaths of workers in a row an error says so. Dask itself tries a task several times."""

    def __init__(self, cluster: Cluster, plan: Sent, setup: GroupSetup, timeout: float) -> None:
        self.status = GroupStatus()
        self.plan = plan
        self.setup = setup
        self._cluster = cluster
        self._setup_bytes = to_bytes(setup)
        self._timeout = timeout
        self._first = SPACES  # the first segment that was not returned to the user

    def forget(self, number: int) -> None:
        """Forget what comes before the first segment that was not returned to the user."""
        self._first = number
        left = tuple(job for job in self.status.jobs if job.number >= number)
        self.status = self.status._replace(jobs=left)

    @property
    def ready(self) -> tuple[Job, ...]:
        """The segments that have come, in order."""
        return tuple(itertools.takewhile(lambda job: job.reply is not None, self.status.jobs))

    @property
    def under_way(self) -> Job | None:
        """The first segment that has not come yet, None if there is none."""
        return next((job for job in self.status.jobs if job.reply is None), None)

    @abstractmethod
    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        """Ask for the next segment, and return whether that was possible yet.

        Args:
            number: its number.
            weights: the parameters of the policy.
            position: how far the group has come.
        """

    def _add(self, number: int, call: Any, **changed: Any) -> bool:
        status = self.status
        job = Job(number, number == status.begins and status.restarts > 0, call)
        self.status = status._replace(jobs=(*status.jobs, job), **changed)
        return True

    def settle(self) -> None:
        """Receive the segments that have come.

        Raises:
            DistributedEnvError: the environments or the policy failed, or the workers die again and again.
        """
        while (job := self.under_way) is not None and job.call.done():
            try:
                reply = job.call.result(timeout=max(self._timeout, 30.0))
            except Exception as error:  # Dask keeps it, and all that its traceback refers to
                return self._failed(job, error.with_traceback(None))
            if isinstance(reply, Failure):
                self._restart()
                del job  # otherwise the traceback of the error would hold a future
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
        """Note that Dask has no result of a call."""

    def _drop(self, **changed: Any) -> None:
        """Forget what has not come, so that it is asked for again."""
        self.status = self.status._replace(jobs=self.ready, **changed)

    def _restart(self, **changed: Any) -> None:
        """Begin again with the first segment that has not come."""
        number = self._first + len(self.ready)
        restarts = self.status.restarts + (number > SPACES)
        self._drop(restarts=restarts, begins=max(number, 0), sent=-1, **changed)

    def _died(self, error: BaseException | None) -> None:
        """Count a death.

        Raises:
            EnvFailedError: there were too many.
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
        """Restart a worker, and return the error that says so."""
        self._restart(home=None, actor=None)
        what = "was restarted" if self._cluster.restart(worker) else "has no nanny to restart it"
        return EnvTimeoutError(
            f"{named(indices)} did not answer within {self._timeout:g} s, in {where} on the worker {worker}, which {what}",
            remedy="Ask for the next trajectories: its group begins anew. Or pass a longer timeout.",
            indices=indices,
            worker=worker,
        )

    def __str__(self) -> str:
        return f"segment {max(self._first + len(self.ready), 0)} of group {self.setup.index}"


class TaskGroup(Group):
    """A group of a `FunctionalEnv`. A segment is a task. Dask passes it the state after the segment before."""

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
            return  # its worker died while the result was fetched, so that it is computed again
        self._cluster.living()
        self._drop()
        self._died(error)

    def check(self) -> None:
        job, now = self.under_way, time.monotonic()
        if job is not None and (worker := self._cluster.running(job.call.key)) is not None:
            job.running_since = job.running_since or now
            if now - job.running_since > self._timeout:
                # so that Dask does not run it on another worker, which would hang too
                self._cluster.cancel([job.call for job in self.status.jobs if not job.reply])
                raise self._hangs(worker, str(self), tuple(self.setup.indices))


class ActorGroup(Group):
    """A group of ordinary environments: an actor. If its worker is lost, it is made again elsewhere, with other seeds."""

    def ask(self, number: int, weights: Sent, position: Position) -> bool:
        status, first = self.status, self.under_way
        if status.home is None:
            home = self._cluster.submit(EnvGroup, self.plan.data, self._setup_bytes, actor=True)
            self.status = status._replace(home=home, since=time.monotonic())
            return False
        if status.home.status != "finished":
            return False
        if first is not None and first.number in (SPACES, status.begins):
            return False  # calls may overtake each other
        version = weights.version
        data = None if status.sent == version else weights.data
        args = number, status.restarts, number == status.begins, version, data
        try:
            with self._cluster.client.as_current():  # which the actor takes
                if status.actor is None:
                    status = status._replace(actor=status.home.result(timeout=PATIENCE))
                    self.status = status
                reply = status.actor.spaces() if number == SPACES else status.actor.segment(*args)
        except Exception as error:  # it was just lost
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
        # there is no connection, or Dask does not know yet
        if self.status.home.status == "finished":
            time.sleep(0.1)
            self._drop(sent=-1)
            self._died(error)

    def check(self) -> None:
        status, indices, where = self.status, tuple(self.setup.indices), str(self)
        if status.actor is None:
            now = time.monotonic()
            if not self._cluster.seen:  # the time counts from when there is a worker
                self.status = status._replace(since=now)
            elif status.home is not None and now - status.since > self._timeout:
                self.status = status._replace(home=None)
                raise EnvTimeoutError(
                    f"no worker made the environments of {self} within {self._timeout:g} s",
                    remedy="They may be busy with other tasks. Wait for these, or pass a longer timeout.",
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
            except Exception:  # it is lost, which `settle` finds
                return
            if worker := self._cluster.address(status.home):
                raise self._hangs(worker, where, indices)
