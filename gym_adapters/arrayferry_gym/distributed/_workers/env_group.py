"""`EnvGroup`: ordinary environments and a policy on a worker, which steps them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry_gym._episodes import turn as turn_of
from arrayferry_gym.functional._policies.make_policy import make_policy
from arrayferry_gym.functional._policies.policies import TO_NUMPY

from .actions import BatchActions
from .hosted_group import HostedGroup
from .messages import Description, GroupSetup, Plan, SegmentSetup
from .observations import stacked
from .progress import Progress, close_all, make_env
from .recorder import Recorder
from .records import seed_again


class EnvGroup(HostedGroup):
    """Ordinary environments. Episodes that end are reset in the same step, as in `SyncVectorEnv`."""

    def __init__(self, setup: GroupSetup, plan: Plan, progress: Progress) -> None:
        super().__init__(setup, plan, progress)
        self._first = setup.first
        self._envs: list[Any] = []
        try:
            for number, factory in enumerate(setup.factories, self._first):
                self._envs.append(make_env(progress, number, factory))
            progress.env = None
            self._prepare()
        except BaseException:
            failed = progress.env
            with contextlib.suppress(Exception):  # another error is being raised already
                self.close()
            progress.env = failed
            raise

    def _prepare(self) -> None:
        """Prepare what belongs to all environments together."""
        plan, setup = self.plan, self._setup
        count = len(self._envs)
        self._space: Space[Any] = self._envs[0].observation_space
        actions = batch_space(self._envs[0].action_space, count)
        self._fitted = BatchActions(actions, count, plan.check_actions)
        library = af.registry.backend(plan.library)
        place = (plan.seed, setup.index)
        self._policy = make_policy(plan.policy, library, place, count, setup.policy_state)
        self._version = -1  # of the weights
        self._observations: list[Any] = []  # none before the first reset
        self._began = np.ones(count, np.bool_)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int32)

    def describe(self) -> list[Description]:
        return [Description.of(env) for env in self._envs]

    def _forget(self) -> None:
        self._observations = []

    def save(self, number: int) -> Any:
        return None  # the state of an ordinary environment is not known

    def close(self) -> None:
        close_all(self._progress, enumerate(self._envs, self._first))

    def _reset(self) -> None:
        observations = []
        for number, env in enumerate(self._envs, self._first):
            self._progress.env = number
            seed = self.plan.seed + number
            if self.restarts:
                seed = seed_again(seed, number, self.restarts)
            observations.append(env.reset(seed=seed)[0])
        self._progress.env = None
        self._observations = observations
        self._began[:] = True

    def _batch(self) -> Any:
        return stacked(self._space, self._observations, self.indices, self._progress)

    def collect(self, setup: SegmentSetup, weights: Any) -> tuple[Any, ...]:
        plan, progress, count = self.plan, self._progress, len(self._envs)
        place: Any = progress.place
        if not self._observations:
            self._reset()
        batch = self._batch()
        place.policy = True
        if setup.version != self._version:
            self._policy.load(weights)
            self._version = setup.version
        self._policy.begin(setup.number)
        num_steps = plan.num_steps
        observations = Recorder(num_steps, "the observation")
        final = Recorder(num_steps, "the observation")
        actions, extras = Recorder(num_steps, "the action"), Recorder(num_steps, "extras")
        rewards, totals = np.zeros((2, num_steps, count))
        terminated, truncated, began = np.zeros((3, num_steps, count), np.bool_)
        lengths = np.zeros((num_steps, count), np.int32)
        infos = _Infos(plan.infos, num_steps, count)
        for step in range(num_steps):
            place.step, place.policy = step, True
            observations.write(step, batch)
            began[step] = self._began
            action, extra = self._policy.in_numpy(*self._policy(batch, self._began, step))
            actions.write(step, action)
            extras.write(step, extra)
            chosen = self._fitted(action)
            place.policy = False
            for row, env in enumerate(self._envs):
                progress.env = self._first + row
                (
                    self._observations[row],
                    rewards[step, row],
                    terminated[step, row],
                    truncated[step, row],
                    info,
                ) = env.step(chosen[row])
                if plan.infos:
                    infos.write(step, row, info)
            progress.steps += 1
            batch = self._batch()
            if plan.final_observation:
                final.write(step, batch)
            turn = turn_of(AutoresetMode.SAME_STEP, None, terminated[step], truncated[step])
            if turn.begins.any():  # after the batch, as an environment may use the same array again
                for row in np.flatnonzero(turn.begins).tolist():
                    progress.env = self._first + row
                    self._observations[row] = self._envs[row].reset()[0]
                batch = self._batch()
            progress.env = None
            self._returns[self._began] = 0
            self._lengths[self._began] = 0
            self._returns += rewards[step]
            self._lengths += 1
            totals[step], lengths[step] = self._returns, self._lengths
            self._began = turn.begins
        place.step = None
        return (
            observations.tree(), actions.tree(), rewards, terminated, truncated,
            final.tree() if plan.final_observation else None,
            extras.tree(), began, totals, lengths, infos.tree(),
        )  # fmt: skip


class _Infos:
    """The infos that are collected: for each an array, and which environments gave it.

    Args:
        names: of the infos.
        num_steps: how many steps there are.
        num_envs: how many environments there are.
    """

    def __init__(self, names: tuple[str, ...], num_steps: int, num_envs: int) -> None:
        self._names = names
        self._shape = (num_steps, num_envs)
        self._arrays: dict[str, Any] = {}
        self._given = {name: np.zeros(self._shape, np.bool_) for name in names}

    def write(self, step: int, row: int, info: dict[str, Any]) -> None:
        """Write the infos of an environment after a step."""
        for name in self._names:
            if name in info:
                value = np.asarray(TO_NUMPY([info[name]])[0])
                if value.dtype.kind not in "biufc":
                    raise af.OptionError(
                        f"infos={self._names!r}: the info {name!r} is {info[name]!r:.80}, which is not a number or an array",
                        remedy="Leave it out.",
                    )
                array = self._arrays.get(name)
                if array is None:
                    array = np.zeros((*self._shape, *value.shape), value.dtype)
                    self._arrays[name] = array
                if array.shape[2:] != value.shape or np.result_type(array, value) != array.dtype:
                    raise af.OptionError(
                        f"infos={self._names!r}: the info {name!r} is {value.dtype} of shape {value.shape}, and was "
                        f"{array.dtype} of shape {array.shape[2:]} before",
                        remedy="Leave it out, or give it the same dtype and shape at each step.",
                    )
                array[step, row] = value
                self._given[name][step, row] = True

    def tree(self) -> Any:
        """Return the arrays, None for those that no environment gave."""
        if not self._names:
            return None
        both = {name: self._arrays.get(name) for name in self._names}
        return {**both, **{f"_{name}": given for name, given in self._given.items()}}
