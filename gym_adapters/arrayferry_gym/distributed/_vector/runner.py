"""`Runner`: resets and steps of environments on workers, even if workers are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode

from arrayferry_gym._spaces.batches import Piece, Rows, rows_of
from arrayferry_gym.distributed._placing.errors import NotReadyError
from arrayferry_gym.distributed._placing.placement import Placement
from arrayferry_gym.distributed._placing.pool import Sent
from arrayferry_gym.distributed._workers.host import Hosted
from arrayferry_gym.distributed._workers.messages import EnvSetup, Request, Start, StepResult
from arrayferry_gym.distributed._workers.observations import Observations
from arrayferry_gym.distributed._workers.records import EnvRecord, HostRecord

Infos = list[tuple[int, dict[str, Any]]]
"""Infos, each with the number of its environment, which may have several."""


class Runner:
    """Resets and steps environments, and recreates those that are lost.

    Args:
        envs: the environments, which exist already.
        placement: the hosts that have them.
        space: the space of one observation.
        mode: when episodes that have ended are reset.
    """

    def __init__(
        self,
        envs: Sequence[EnvRecord],
        placement: Placement,
        *,
        space: Space[Any],
        mode: AutoresetMode,
    ) -> None:
        self._envs = envs
        self._placement = placement
        self._mode = mode
        self._observations = Observations(space, len(envs))
        self._needs_reset = "they have not been reset yet"  # the reason, "" if not; set until an operation is `finished`
        self._changed = False  # whether a method may have changed something
        self._was_reset = False  # whether there was a full reset
        self._ended = np.zeros(len(envs), dtype=np.bool_)  # the episodes that are over

    def note_change(self) -> None:
        """Note that a method may change environments. Recreated ones would lack the changes."""
        self._changed = True

    def reset(
        self, seeds: Sequence[int | None], options: dict[str, Any] | None, mask: np.ndarray
    ) -> tuple[Any, Infos]:
        """Reset environments, and return all observations.

        Args:
            seeds: one for each environment.
            options: passed to each that is reset.
            mask: which are reset.

        Raises:
            NotReadyError: all have to be reset.
        """
        chosen = {self._envs[int(index)] for index in np.flatnonzero(mask)}
        everything = len(chosen) == len(self._envs)
        if self._needs_reset and not everything:
            raise NotReadyError(
                f"some environments cannot be reset alone: {self._needs_reset}",
                remedy="Reset all of them.",
            )
        for env in chosen:
            env.options = options
            if seeds[env.index] is not None:
                env.seed = seeds[env.index]
        placement = self._placement

        def setup(env: EnvRecord) -> EnvSetup:
            if env not in chosen:
                return self._setup(env)
            seed = seeds[env.index]
            start = Start(env.new_seed() if seed is None else seed, options)
            return replace(self._setup(env), start=start, reset_pending=False)

        self._needs_reset = "a reset was not finished"
        moved: list[EnvRecord] = []
        if everything:
            moved = placement.spread(env for env in chosen if self._same_elsewhere(env, seeds))
        self._was_reset = self._was_reset or everything
        remade = set(self._make_unplaced(setup))
        for env in moved:
            env.may_move = False  # they begin as they would on any worker
        still_to_reset = chosen - remade
        requests: dict[HostRecord, Request] = {
            host: partial(
                Hosted.reset,
                indices=host.indices,
                seeds={env.index: seeds[env.index] for env in host.envs if env in still_to_reset},
                options=options,
            )
            for host in placement.hosts
            if host.envs
        }
        replies = placement.pool.ask(requests)
        remade.update(self._make_unplaced(setup))
        pieces: list[Piece] = []
        infos: Infos = []
        for host, result in replies.items():
            rows = rows_of(requests[host].keywords["indices"])
            pieces.append((rows, result.observations))
            infos += result.infos
        for env in placement.pool.unsettled:
            if env not in chosen:
                if env.unseen:
                    last = self._observations.last(env)
                    pieces.append(self._observations.piece(env, last))
                continue
            if env.first is not None and env in remade:
                observation, info = env.first
                pieces.append(self._observations.piece(env, observation))
                infos.append((env.index, info))
            if env.lost:
                infos.append((env.index, {"worker_lost": True}))
            env.first, env.lost, env.unseen = None, False, False
        placement.forget_settled()
        self._ended[mask] = False
        return self._observations.join(pieces), infos

    def require_steppable(self) -> None:
        """Check that each environment is in an episode.

        Raises:
            NotReadyError: environments have to be reset first.
        """
        if self._needs_reset:
            raise NotReadyError(
                f"the environments cannot be stepped: {self._needs_reset}", remedy="Call reset."
            )
        if self._mode == AutoresetMode.DISABLED and self._ended.any():
            indices = tuple(int(index) for index in np.flatnonzero(self._ended))
            raise NotReadyError(
                f"the episodes of the environments {', '.join(map(str, indices))} have ended",
                remedy="Reset them: reset(options={'reset_mask': terminations | truncations}).",
                indices=indices,
            )

    def begin_step(self, actions: Any) -> list[Sent]:
        """Prepare a step of all environments. `finish_step` waits for it.

        Args:
            actions: an array or a list with an item for each environment.
        """
        pool = self._placement.pool
        self._needs_reset = "a step was not finished"
        skipped = frozenset([env.index for env in pool.unsettled if env.lost])
        requests: dict[HostRecord, Request] = {}
        for host in pool.hosts:
            if indices := host.indices:
                in_array = isinstance(actions, np.ndarray)
                own = actions[host.rows] if in_array else [actions[index] for index in indices]
                requests[host] = partial(Hosted.step, indices=indices, actions=own, skipped=skipped)
        return pool.send(requests)

    def finish_step(
        self, sent: Sequence[Sent], timeout: float | None = None
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Wait for a step of all environments.

        Args:
            sent: what `begin_step` has returned.
            timeout: how many seconds to wait, None for as long as any call may take.

        Returns:
            Observations, rewards, terminations, truncations and infos.
        """
        placement = self._placement
        replies = placement.pool.receive(sent, timeout)
        stepped = [(host.rows, result) for host, result in replies.items()]
        lost: list[EnvRecord] = []
        if placement.pool.unsettled:
            lost = placement.lost
            self._make_unplaced(self._setup)
            for env in lost:
                env.lost = False
        return self._merged(stepped, lost)

    def _same_elsewhere(self, env: EnvRecord, seeds: Sequence[int | None]) -> bool:
        """Tell whether a reset gives the same results if an environment is recreated elsewhere."""
        return not self._changed and (seeds[env.index] is not None or env.seed is None)

    def _merged(
        self,
        stepped: Sequence[tuple[Rows, StepResult]],
        lost: Sequence[EnvRecord],
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Combine the results of a step."""
        count = len(self._envs)
        rewards = np.zeros(count, dtype=np.float64)
        terminations = np.zeros(count, dtype=np.bool_)
        truncations = np.zeros(count, dtype=np.bool_)
        pieces: list[Piece] = []
        infos: Infos = []
        same_step = self._mode == AutoresetMode.SAME_STEP
        for rows, result in stepped:
            rewards[rows] = result.rewards
            terminations[rows] = result.terminations
            truncations[rows] = result.truncations
            pieces.append((rows, result.observations))
            infos += result.infos
        for env in lost:
            last = self._observations.last(env)
            observation, info = env.take_first()
            truncations[env.index] = True
            if same_step:
                infos.append((env.index, {"final_obs": last, "final_info": {}}))
                infos.append((env.index, info))
            else:
                observation = last
            pieces.append(self._observations.piece(env, observation))
            infos.append((env.index, {"worker_lost": True}))
        for env in self._placement.pool.unsettled:
            env.unseen = env.unseen and (env.lost or (env in lost and not same_step))
        self._placement.forget_settled()
        self._ended = terminations | truncations
        return self._observations.join(pieces), rewards, terminations, truncations, infos

    def _setup(self, env: EnvRecord) -> EnvSetup:
        """Return what a host needs to recreate a lost environment."""
        next_step = self._mode == AutoresetMode.NEXT_STEP
        return env.setup(reset=self._was_reset, reset_pending=self._was_reset and next_step)

    def _make_unplaced(self, setup: Callable[[EnvRecord], EnvSetup]) -> list[EnvRecord]:
        """Make all environments that no host has. Afterwards, each has the results of its first reset."""
        made = self._placement.make_unplaced(lambda env: partial(Hosted.make, setup=setup(env)))
        for env, reply in made.items():
            env.first = reply.observation, reply.info
        return list(made)

    def finished(self) -> None:
        """Note that the results of a reset or step are about to be returned. Until then, Ctrl-C or an error may interrupt it."""
        self._needs_reset = ""

    def ask(self, request: Callable[[tuple[int, ...]], Request]) -> tuple[Any, ...]:
        """Request one value from each environment. Those that are lost meanwhile are recreated, and asked again.

        Args:
            request: returns the request for some environments.
        """
        placement, count = self._placement, len(self._envs)
        results: dict[int, Any] = {}
        before = self._needs_reset
        self._needs_reset = before or "a call was not finished"
        try:
            while len(results) < count:
                self._make_unplaced(self._setup)
                left = {
                    host: tuple(index for index in host.indices if index not in results)
                    for host in placement.hosts
                }
                replies = placement.pool.ask(
                    {host: request(indices) for host, indices in left.items() if indices}
                )
                for host, values in replies.items():
                    values = [None] * len(left[host]) if values is None else values
                    results.update(zip(left[host], values, strict=True))
            self._make_unplaced(self._setup)
        except Exception:
            if not placement.unplaced:  # an error of a method does no harm to the rest
                self._needs_reset = before
            raise
        self._needs_reset = before
        return tuple(results[index] for index in range(count))
