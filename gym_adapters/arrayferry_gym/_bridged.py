"""`Bridged`: vector environments of any library for a trainer, whichever way they reset."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

import arrayferry as af

from . import vector
from ._adapter import Adapter
from ._env_options import declared_mode
from ._space_trees import build, split

__all__ = ["Bridged", "infos_by_environment"]


class Bridged:
    """Vector environments in the library of a trainer. A step returns what follows it, a reset the next first observations.

    This is so whether they reset in the same step (SAME_STEP) or leave resets to others (DISABLED). All results are
    copies, which no later step changes.

    Args:
        envs: the environments.
        bridge: the name of the class that users have called, for errors.
        trainer: the name of the trainer, for errors.
        xp: the library of the trainer.
        device: the device of results, None to keep theirs.
        convert_info: whether infos are converted.

    Attributes:
        envs: the environments in the library of the trainer.
        mode: when they reset.

    Raises:
        TypeError: these are no vector environments.
        arrayferry.OptionError: they reset in the next step.
    """

    envs: vector.ArrayConversion[Any, Any, Any]
    mode: AutoresetMode

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        bridge: str,
        trainer: str,
        xp: str,
        device: Any = None,
        *,
        convert_info: bool = False,
    ) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(
                f"{bridge} was given {envs!r:.80}, which is no vector environment. Pass what gymnasium.make_vec or "
                "make_vec of a FunctionalEnv returns"
            )
        self.mode = declared_mode(envs)
        if self.mode is AutoresetMode.NEXT_STEP:
            raise af.OptionError(
                f"{envs!r:.80} resets in the step after the last, whose action does not count, but {trainer} "
                "learns from every step",
                remedy='Make it with autoreset_mode="SameStep" (gymnasium.make_vec: vectorization_mode="sync", '
                'vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}).',
            )
        self.envs = vector.ArrayConversion(
            envs, _own_library(envs), xp, None, device,
            convert_info=convert_info, stack_final=True, copy=True,
        )  # fmt: skip
        self._to_trainer = af.converter(xp, device=device)
        self._all = self._to_trainer(np.ones(envs.num_envs, bool))
        self._current: Any = None  # the observations that the environments are in
        # Rows, None for none of them:
        self._ended: Any = None  # that have ended in the last step, and were not reset since
        self._ready: Any = None  # that the environments have reset, but the trainer has not
        self._astray: Any = None  # that have moved without being asked, and were not reset since

    def seed(self, seed: Any) -> None:
        """Reset all environments with a seed. The next reset returns the observations."""
        self._current, _ = self.envs.reset(seed=seed)
        self._ready, self._ended, self._astray = self._all, None, None

    def reset(
        self, rows: Any = None, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any] | None]:
        """Begin new episodes.

        Args:
            rows: which environments, as booleans (num_envs,); None for all.
            seed: as for `reset` of the environments.
            options: as for `reset` of the environments.

        Returns:
            Observations, of which only those rows count, and infos; None if the environments had reset already.
        """
        rows = self._all if rows is None else rows
        ready = None if seed is not None or options else self._ready
        needed = rows if ready is None else rows & ~ready
        infos = None
        if needed.any():
            if not needed.all():
                options = {**(options or {}), "reset_mask": needed}
            self._current, infos = self.envs.reset(seed=seed, options=options)
        self._ready, self._ended, self._astray = (
            None if before is None else before & ~rows
            for before in (self._ready, self._ended, self._astray)
        )
        return self._current, infos

    def step(self, actions: Any, rows: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step. Where an episode has ended, the observation is that of its last state.

        Args:
            actions: for all environments.
            rows: which environments the trainer asks for, None for all. The others step, too, since vector environments do:
                what is returned for them does not count.

        Raises:
            arrayferry.OptionError: an environment is asked for that has moved without being asked.
        """
        if self._astray is not None:
            lost = self._astray if rows is None else self._astray & rows
            if lost.any():
                raise af.OptionError(
                    f"a step was asked of {lost.tolist()}, but these environments have taken steps when others were "
                    "asked, since a vector environment steps as a whole",
                    remedy="Reset them first.",
                )
        if rows is not None:
            others = ~rows
            if self.mode is AutoresetMode.DISABLED and self._ended is not None:
                over = self._ended & others
                if over.any():  # or they could not step
                    self.envs.reset(options={"reset_mask": over})
            self._astray = others if self._astray is None else self._astray | others
        observations, rewards, terminated, truncated, infos = self.envs.step(actions)
        self._current, self._ended, self._ready = observations, terminated | truncated, None
        if self.mode is AutoresetMode.SAME_STEP:
            self._ready = self._ended
            if self._ended.any():
                if "final_obs" not in infos:
                    raise af.OptionError(
                        f"{self.envs.env!r:.80} resets in the same step, but its infos have no 'final_obs'",
                        remedy='Make it with autoreset_mode="Disabled", or return the observations before the reset.',
                    )
                final = self._to_trainer(infos["final_obs"])
                observations = self._where(self._ended, final, observations)
        return observations, rewards, terminated, truncated, infos

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment. Those that are a batch share theirs."""
        inner: Any = self.envs.unwrapped
        if hasattr(inner, "get_attr"):
            return list(inner.get_attr(name))
        return [getattr(inner, name)] * self.envs.num_envs

    def set(self, name: str, value: Any, chosen: list[int]) -> None:
        """Set an attribute of some environments. That of a batch can be set for all only.

        Raises:
            arrayferry.OptionError: that of a batch was to be set for some.
        """
        inner: Any = self.envs.unwrapped
        if not hasattr(inner, "set_attr"):
            self.check_whole(chosen, f"setting {name}")
            setattr(inner, name, value)
            return
        if len(chosen) == self.envs.num_envs:
            values = [value] * len(chosen)
        else:
            values = list(inner.get_attr(name))
            for index in chosen:
                values[index] = value
        inner.set_attr(name, values)

    def check_whole(self, chosen: list[int], what: str) -> None:
        """Check that all environments are asked for what they can only do together.

        Raises:
            arrayferry.OptionError: some are not.
        """
        if chosen != list(range(self.envs.num_envs)):
            raise af.OptionError(
                f"{what} was asked of the environments {chosen}, but {self.envs.unwrapped!r} reaches all or none",
                remedy="Name all of them.",
            )

    def _where(self, rows: Any, chosen: Any, others: Any) -> Any:
        """Return some rows of one batch of observations, the others of another."""
        space = self.envs.single_observation_space
        parts = []
        for one, other in zip(split(space, chosen), split(space, others), strict=True):
            mask = rows.reshape((-1,) + (1,) * (other.ndim - 1))
            parts.append(af.namespace_of(other).where(mask, one, other))
        return build(space, parts)


def _own_library(envs: VectorEnv[Any, Any, Any]) -> str | None:
    """Return the library of a FunctionalEnv in wrappers, which stays in it; None for all others, and behind an adapter."""
    while isinstance(envs, VectorWrapper) and not isinstance(envs, Adapter):
        envs = envs.env
    own = getattr(envs, "xp", None)
    return own if isinstance(own, str) else None


def infos_by_environment(
    infos: dict[str, Any], n: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the infos of a step as dicts for each environment: those of now, and those before any reset.

    The final observations are left out.
    """
    final = ("final_obs", "_final_obs", "final_info", "_final_info")
    now = _by_environment({key: x for key, x in infos.items() if key not in final}, n)
    last = infos.get("final_info")
    if last is None:
        return now, now
    ended = infos.get("_final_info", np.ones(n, bool))
    before = _by_environment(last, n)
    return now, [before[index] if ended[index] else now[index] for index in range(n)]


def _by_environment(infos: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the infos of a vector environment as a dict for each environment."""
    dicts: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, value in infos.items():
        if key[:1] == "_" and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}")
        rows = range(n) if mask is None else map(int, np.flatnonzero(mask))
        values = _by_environment(value, n) if isinstance(value, dict) else value
        shared = mask is None and (not hasattr(values, "__len__") or len(values) != n)
        for index in rows:
            dicts[index][key] = values if shared else values[index]
    return dicts
