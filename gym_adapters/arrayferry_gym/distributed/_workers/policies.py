"""Policies on a worker: functions of any library, and modules of PyTorch."""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry_gym._arrays import namespace, select

from .messages import GroupSetup, Plan, SegmentSetup

TO_NUMPY = af.converter("numpy", copy=False, unsupported="keep")


def is_module(policy: Any) -> bool:
    """Tell whether a policy is a module of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)


class HostedPolicy(ABC):
    """A policy, in its library.

    Args:
        plan: what a collector does.
        setup: the group.
    """

    def __init__(self, plan: Plan, setup: GroupSetup) -> None:
        self._backend = af.registry.backend(plan.library)
        self._convert = af.converter(plan.library)
        self._place = (plan.seed, setup.index)
        self._policy = plan.policy
        self._version = -1
        self._params: Any = None
        self._first_state = self._state = (
            None if setup.policy_state is None else self._convert(setup.policy_state)
        )

    def begin(self, setup: SegmentSetup, weights: Any) -> None:
        """Begin a segment, whose weights are the parameters of the policy."""
        self._number = setup.number
        if setup.version != self._version:
            self.load(weights)
            self._version = setup.version

    def load(self, weights: Any) -> None:
        """Load the parameters of the policy."""
        self._params = af.convert(weights, self._backend, unsupported="keep", unknown="keep")

    @abstractmethod
    def __call__(self, observation: Any, began: Any, step: int) -> tuple[Any, Any]:
        """Return actions and extras in NumPy, for a batch of observations in NumPy.

        Args:
            observation: the batch.
            began: which environments begin an episode.
            step: the number of the step in the segment.
        """


class FunctionPolicy(HostedPolicy):
    """A function of a library other than JAX."""

    def __init__(self, plan: Plan, setup: GroupSetup) -> None:
        super().__init__(plan, setup)
        self._is_numpy = self._backend.name == "numpy"
        self._xp = namespace(self._backend)

    def __call__(self, observation: Any, began: Any, step: int) -> tuple[Any, Any]:
        if not self._is_numpy:
            observation = self._convert(observation)
        rng = self._backend.random((*self._place, self._number, step))
        args = [self._params, observation, rng]
        if self._first_state is not None:
            mask = self._convert(began)
            first, layout = af.flatten(self._first_state)
            state, other = af.flatten(self._state)
            if layout != other:
                raise af.OptionError(
                    f"the policy got the policy_state {layout}, but returned {other}",
                    remedy="Return states of the same structure as policy_state.",
                )
            rows = [select(self._xp, mask, x, y) for x, y in zip(first, state, strict=True)]
            args.append(layout.unflatten(rows))
        with _without_gradients():
            return self._result(self._policy(*args))

    def _result(self, result: Any) -> tuple[Any, Any]:
        """Check what the policy returned, keep its state, and return the actions and extras in NumPy."""
        names = ("action", "extras", *(["policy_state"] if self._first_state is not None else []))
        if not isinstance(result, tuple) or len(result) != len(names):
            given = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise af.OptionError(
                f"the policy returned {given}, not {len(names)}",
                remedy=f"Return ({', '.join(names)}); extras may be None.",
            )
        action, extras, *state = result
        if state:
            self._state = state[0]
        if type(action) is np.ndarray and self._is_numpy:
            return action, extras
        converted: tuple[Any, Any] = TO_NUMPY((action, extras))
        return converted


class ModulePolicy(HostedPolicy):
    """A module of PyTorch, which returns actions."""

    def load(self, weights: Any) -> None:
        if weights is not None:
            self._policy.load_state_dict(af.convert(weights, "torch", unsupported="keep"))

    def __call__(self, observation: Any, began: Any, step: int) -> tuple[Any, Any]:
        with _without_gradients():
            action = self._policy(self._convert(observation))
        converted: tuple[Any, Any] = TO_NUMPY((action, None))
        return converted


def _without_gradients() -> Any:
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch.no_grad()
