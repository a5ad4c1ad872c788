"""`HostedGroup`: a group of a collector in a host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .messages import Description, GroupSetup, Plan, SegmentSetup
from .progress import Progress


class HostedGroup(ABC):
    """Environments and a policy, which take steps together.

    Args:
        setup: which environments.
        plan: what they do.
        progress: where the host is.

    Attributes:
        indices: the numbers of the environments.
        plan: what they do.
        restarts: how often they were restarted.
        failed: whether there was an error since.
    """

    def __init__(self, setup: GroupSetup, plan: Plan, progress: Progress) -> None:
        self.indices = setup.indices
        self.restarts = setup.restarts
        self.failed = False
        self._setup = setup
        self.plan = plan
        self._progress = progress

    @abstractmethod
    def describe(self) -> list[Description]:
        """Return the description of each environment."""

    @abstractmethod
    def collect(self, setup: SegmentSetup, weights: Any) -> tuple[Any, ...]:
        """Collect a segment, and return the steps: the first fields of `Trajectories`, up to the infos.

        Args:
            setup: which segment.
            weights: the parameters of the policy.
        """

    @abstractmethod
    def save(self, number: int) -> Any:
        """Return the state from which a segment begins, as a dict of arrays; None if it begins with resets."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""

    def restart(self, restarts: int) -> None:
        """Restart with the next segment.

        Args:
            restarts: how often that was done, on which new seeds depend.
        """
        self.restarts = restarts
        self.failed = False
        self._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Forget where the environments are."""
