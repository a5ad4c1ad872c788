"""`Bridged`, a vector environment that is converted for a trainer. Its mode is SAME_STEP or DISABLED."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, VectorEnv, VectorRewardWrapper, VectorWrapper

import arrayferry as af
from arrayferry.typing import AnyArray, AnyTree, Device, Target
from arrayferry_gym._adapters.simulator import SimulatorEnvs
from arrayferry_gym._episodes import Episodes, checked_infos, checked_reset
from arrayferry_gym._options.refusals import refuse_batch
from arrayferry_gym._spaces.trees import leaves
from arrayferry_gym.wrappers._attributes import HasKernels

from . import vector

KNOWN = {"gymnasium", "arrayferry_gym", "arrayferry_envs"}
"""The packages whose wrappers add only statistics of episodes to infos."""


class Bridged:
    """A vector environment in the library of a trainer. Its `step` returns observations from before any reset.

    The environments may reset in the same step (SAME_STEP), or leave resets to their caller (DISABLED). All results are
    copies, which later steps do not change. The infos of a step are from before any reset. The infos of resets are in
    `firsts`.

    Args:
        envs: the vector environment that the trainer uses.
        bridge: the name of the class that users have called, for errors.
        trainer: the name of the trainer, for errors.
        xp: the library of the trainer.
        device: the device of converted results. None leaves them on their device.
        infos: whether the trainer uses infos. If False, or if all infos are empty, `step` returns an empty list in
            place of infos.
        needs_final: whether the trainer needs the last observations of episodes.

    Attributes:
        envs: the environments in the library of the trainer.
        singles: the single environments inside, or None if this process has none.
        loses_final: whether `step` returns the first observation of the next episode in place of the last of an
            episode.
        firsts: for each environment, the infos of its last reset.
        given: the infos of the last step, as the environments returned them.
        current: the observations after the last step and its resets, or after the last call of `reset`. None before the
            first reset.

    Raises:
        TypeError: `envs` is not a vector environment.
        arrayferry.OptionError: `envs` is in NEXT_STEP mode, does not return last observations that the trainer needs,
            or returns several rewards per environment.
    """

    envs: vector.ArrayConversion[Any, Any, Any]

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        bridge: str,
        trainer: str,
        xp: Target,
        device: Device = None,
        *,
        infos: bool = False,
        needs_final: bool = True,
    ) -> None:
        refuse_batch(bridge, envs)
        if not isinstance(envs, VectorEnv):
            raise TypeError(
                f"{bridge} was given {envs!r:.80}, which is not a vector environment. Pass what gymnasium.make_vec or "
                "make_vec of a FunctionalEnv returns"
            )
        self._episodes = Episodes(envs)
        rule, self.loses_final = self._episodes.rule, self._episodes.loses_final
        if rule.by_itself and not rule.same_step:
            raise af.OptionError(
                f"{envs!r:.80} resets in the step after an episode and ignores the action of that step, but {trainer} "
                "learns from every step",
                remedy='Make it with autoreset_mode="SameStep" (gymnasium.make_vec: vectorization_mode="sync", '
                'vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}). If it has no such mode, '
                "try arrayferry_envs.make_vec, which adds it to EnvPool, or write a loop that skips these steps (see "
                "how-to/autoreset).",
            )
        self._trainer = trainer
        if self.loses_final and needs_final:
            raise af.OptionError(
                f"{envs!r:.80} loses the last observations of episodes, which {trainer} learns from",
                remedy="Make the simulator return them: see from_simulator.",
            )
        self.envs = vector.ArrayConversion(
            envs, None, xp, None, device, convert_info=infos, copy=True
        )
        chain = _chain(envs)
        self._check_rewards((envs.num_envs, *_reward_shape(chain)))
        self._inner: Any = envs.unwrapped
        singles = getattr(self._inner, "envs", None)
        self.singles = singles if isinstance(singles, (list, tuple)) else None
        self._to_trainer = af.converter(xp, device=device)
        self._all = self._to_trainer(np.ones(envs.num_envs, bool))
        self._infos = infos
        self.firsts: list[dict[Any, Any]] = [{}] * envs.num_envs
        self._added = _added_keys(chain)
        self._reset_keys: set[Any] = set()
        self.given: dict[str, Any] = {}
        self.current: Any = None
        # a mask of the environments that the last step or `seed` has already reset, or None
        self._ready: Any = None
        # a mask of the environments that stepped unselected since their last reset, or None
        self._needs_reset: Any = None

    def seed(self, seed: Any) -> None:
        """Reset all environments with a seed. The next call of `reset` returns the observations."""
        self._begin(None, seed, None)
        self._ready, self._needs_reset = self._all, None

    def reset(
        self, rows: AnyArray = None, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> Any:
        """Reset the selected environments, except those that the last step has already reset.

        Args:
            rows: a mask of the selected environments, bool (num_envs,), or None for all.
            seed: as for `reset` of the environments.
            options: as for `reset` of the environments.

        Returns:
            A batch of observations, of which only the selected rows may be used. The infos are in `firsts`.
        """
        rows = self._all if rows is None else rows
        ready_rows = None if seed is not None or options else self._ready
        if ready_rows is not rows:
            needed_rows = rows if ready_rows is None else rows & ~ready_rows
            if needed_rows.any():
                self._begin(None if needed_rows.all() else needed_rows, seed, options)
        self._ready, self._needs_reset = (
            None if mask_before is None or mask_before is rows else mask_before & ~rows
            for mask_before in (self._ready, self._needs_reset)
        )
        return self.current

    def _begin(self, rows: AnyArray, seed: Any, options: dict[str, Any] | None) -> None:
        """Reset the environments in a mask, or all if it is None. Store the observations and the infos."""
        if rows is not None:
            options = {**(options or {}), "reset_mask": rows}
        self.current, infos = checked_reset(self.envs, self.envs.reset(seed=seed, options=options))
        self._episodes.begin(rows)
        if self._infos:
            by_env = _by_environment(checked_infos(self.envs.env, infos), self.envs.num_envs)
            self.firsts = [
                new_info if rows is None or rows[index] else old_info
                for index, (new_info, old_info) in enumerate(zip(by_env, self.firsts, strict=True))
            ]
            self._reset_keys.update(*self.firsts)

    def step(self, actions: AnyTree, rows: AnyArray = None) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Take a step. At the end of an episode, the observation and the infos are those before any reset.

        Args:
            actions: an action for each environment.
            rows: a mask of the environments that the trainer selects, or None for all. The unselected environments step
                too, since a vector environment steps as a whole. Ignore their results.

        Raises:
            arrayferry.OptionError: a selected environment has stepped unselected since its last reset, or a step
                returns several rewards per environment.
        """
        if self._needs_reset is not None:
            unready_rows = self._needs_reset if rows is None else self._needs_reset & rows
            if unready_rows.any():
                raise af.OptionError(
                    f"a step was requested for the environments of the mask {unready_rows.tolist()}, which have already stepped "
                    "unselected, since a vector environment steps as a whole",
                    remedy="Reset these environments before they step again.",
                )
        if rows is not None:
            others = ~rows
            if self._episodes.over is not None:
                over_rows = self._episodes.over & others
                if over_rows.any():  # all environments step, so reset those that ended
                    self._begin(over_rows, None, None)
            self._needs_reset = others if self._needs_reset is None else self._needs_reset | others
        results = self.envs.step(actions)
        self.given = infos = checked_infos(self.envs.env, results[4])
        step = self._episodes.step(results, None if self.loses_final else self._to_trainer)
        is_unchanged = step.reward is results[1]
        rewards = step.reward if is_unchanged else self._to_trainer(step.reward)
        self._check_rewards(tuple(rewards.shape))
        self.current, self._ready = step.observation, self._episodes.masks.reset
        observations = step.observation if self.loses_final else step.final_observation
        return observations, rewards, step.terminated, step.truncated, self._infos_of_step(infos)

    def _check_rewards(self, shape: tuple[int, ...]) -> None:
        """Check that there is one reward for each environment.

        Raises:
            arrayferry.OptionError: the rewards have another shape.
        """
        if shape != (self.envs.num_envs,):
            raise af.OptionError(
                f"the rewards of {self.envs.num_envs} environments have the shape {shape}, but {self._trainer} learns from "
                "one number for each environment",
                remedy="Combine the rewards of a step, for instance by a TransformReward of arrayferry_gym.wrappers.vector.",
            )

    def _infos_of_step(self, infos: dict[str, Any]) -> list[dict[Any, Any]]:
        """Return a dict of infos for each environment, and store the infos of resets in this step.

        If an environment was reset in the same step, `final_info` contains infos of the step. The other keys contain
        infos of the reset, except the keys that wrappers around the batch add, which belong to the step. If these keys
        are unknown, or `final_info` is missing, the keys that resets have returned before belong to the reset, and all
        other keys to the step. If no environment has infos, the list is empty.
        """
        if not self._infos:
            return []
        n, final = self.envs.num_envs, infos.get("final_info")
        ready_indices = [] if self._ready is None else self._ready.nonzero()[0].tolist()
        if final is None and infos.keys() <= Episodes.FINAL:
            for index in ready_indices:
                self.firsts[index] = {}
            return []
        by_env = _by_environment(
            {key: value for key, value in infos.items() if key not in Episodes.FINAL}, n
        )
        stated_mask: Any = None if final is None else _mask(infos.get("_final_info", self._all), n)
        final_by_env: Any = _by_environment(final, n) if isinstance(final, dict) else final
        for index in ready_indices:
            is_stated = stated_mask is not None and stated_mask[index]
            # split_infos[False] has the infos of the reset, split_infos[True] those of the step
            split_infos: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
            for key, value in by_env[index].items():
                if is_stated and self._added is not None:
                    split_infos[key in self._added][key] = value
                else:
                    split_infos[key not in self._reset_keys][key] = value
            self.firsts[index], by_env[index] = split_infos
            if is_stated:
                by_env[index].update(final_by_env[index])
        return by_env

    def _owner(self, name: str) -> Any:
        """Return the outermost wrapper that has an attribute. If no wrapper has it, return the environment inside."""
        chain = _chain(self.envs.env)
        envs = next((envs for envs in chain if hasattr(envs, name)), chain[-1])
        return self.simulator if envs is self._inner and hasattr(self.simulator, name) else envs

    @property
    def done(self) -> Any:
        """A mask of the environments whose episode ended with the last step, bool (num_envs,). Do not change it."""
        return self._episodes.masks.done

    @property
    def simulator(self) -> Any:
        """The simulator inside, or None if there is none."""
        return self._inner.env if isinstance(self._inner, SimulatorEnvs) else None

    def get(self, name: str, chosen: list[int]) -> list[Any]:
        """Return a list with an attribute of each chosen environment. Spaces are converted.

        A batch without `get_attr` has one attribute for all its environments, which the list then repeats.
        """
        if name in ("action_space", "observation_space"):
            shared_value = getattr(self.envs, f"single_{name}")
        elif hasattr(self._inner, "get_attr"):
            values = self._inner.get_attr(name)
            return [values[index] for index in chosen]
        else:
            shared_value = getattr(self._owner(name), name)
        return [shared_value] * len(chosen)

    def set(self, name: str, value: AnyTree, chosen: list[int]) -> None:
        """Set an attribute of the chosen environments. A batch supports this only for all environments.

        Raises:
            arrayferry.OptionError: only some environments of a batch are chosen.
        """
        if not hasattr(self._inner, "set_attr"):
            self.check_whole(chosen, f"setting {name}")
            setattr(self._owner(name), name, value)
            return
        n = self.envs.num_envs
        values = [value] * n if len(chosen) == n else list(self._inner.get_attr(name))
        for index in chosen:
            values[index] = value
        self._inner.set_attr(name, values)

    def has_method(self, name: str) -> bool | None:
        """Return whether the environments have a method. Return None if this is known only after a call."""
        if self.singles is not None:
            return all(env.has_wrapper_attr(name) for env in self.singles)
        if hasattr(self._inner, "call"):
            return None
        return not hasattr(VectorEnv, name) and callable(getattr(self._owner(name), name, None))

    def call(self, name: str, chosen: list[int], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of the chosen environments. A method of a batch is called once for all environments.

        Raises:
            AttributeError: the environments do not have the method.
            arrayferry.OptionError: only some environments of a batch are chosen.
        """
        if self.singles is not None:
            methods = [self.singles[index].get_wrapper_attr(name) for index in chosen]
            return [method(*args, **kwargs) for method in methods]
        if self.has_method(name) is False:
            raise AttributeError(
                f"neither the batch {self._inner!r} nor a wrapper around it has the method {name!r}. Define it in one of them"
            )
        if isinstance(self._inner, AsyncVectorEnv) and chosen != list(range(self.envs.num_envs)):
            return _called(self._inner, name, chosen, args, kwargs)
        self.check_whole(chosen, f"{name}()")
        if hasattr(self._inner, "call"):
            return list(self._inner.call(name, *args, **kwargs))
        result = getattr(self._owner(name), name)(*args, **kwargs)
        n = self.envs.num_envs
        return list(result) if _is_batch(result, n) else [result] * n

    def check_whole(self, chosen: list[int], what: str) -> None:
        """Check that all environments are chosen, for an operation that a batch supports only as a whole.

        Args:
            chosen: the indices of the chosen environments.
            what: the name of the operation in the error.

        Raises:
            arrayferry.OptionError: only some environments are chosen.
        """
        if chosen != list(range(self.envs.num_envs)):
            raise af.OptionError(
                f"{what} was requested for the environments {chosen}, but {self._inner!r} supports only all environments at once",
                remedy="Select all environments.",
            )

    def images(self) -> list[Any]:
        """Return a list with an image of each environment, or with None if `render` returns None."""
        images = self.envs.render()
        return [None] * self.envs.num_envs if images is None else list(images)


def check_starts(trainer: str, *spaces: Space[Any]) -> None:
    """Check that Discrete and MultiDiscrete spaces start at 0, for trainers that ignore their `start`.

    Raises:
        arrayferry.OptionError: one of these spaces does not start at 0.
    """
    for space in spaces:
        for leaf, path in leaves(space):
            if np.any(getattr(leaf, "start", 0)):
                place_text = f", at {path}," if path else ""
                raise af.OptionError(
                    f"the numbers of {leaf}{place_text} do not begin at 0, but {trainer} expects numbers from 0 on",
                    remedy="Shift the numbers in the environment, for instance by a TransformAction of gymnasium.wrappers.",
                )


def _called(envs: Any, name: str, chosen: list[int], args: Any, kwargs: Any) -> list[Any]:
    """Call a method of the chosen environments of an `AsyncVectorEnv`, whose `call` supports only all environments."""
    envs._assert_is_running()
    pipes = [envs.parent_pipes[index] for index in chosen]
    for pipe in pipes:
        pipe.send(("_call", (name, args, kwargs)))
    answers = [pipe.recv() for pipe in pipes]
    succeeded = [success for _, success in answers]
    envs._raise_if_errors([*succeeded, *[True] * (envs.num_envs - len(pipes))])
    return [result for result, _ in answers]


def _chain(envs: Any) -> list[Any]:
    """Return a list of the wrappers of vector environments, outermost first, and the vector environment inside."""
    chain = [envs]
    while isinstance(chain[-1], VectorWrapper):
        chain.append(chain[-1].env)
    return chain


def _reward_shape(chain: list[Any]) -> tuple[int, ...]:
    """Return the shape of the reward of one environment. Return () if only a step can show the shape."""
    *wrappers, inner = chain
    if any(isinstance(envs, VectorRewardWrapper) or not _is_known(envs) for envs in wrappers):
        return ()
    functional = getattr(inner, "functional", None)
    space = getattr(inner, "reward_space", None)
    shape: Any = getattr(functional, "reward_shape", None) or getattr(space, "shape", None) or ()
    for envs in reversed(chain):
        for kernel in _kernels_of(envs):
            shape, _ = kernel.rewards(shape, None)
    return tuple(shape)


def _kernels_of(envs: Any) -> list[Any]:
    """Return the kernels of a vector environment, innermost first, but not those of environments inside it."""
    return [held.kernel for held in HasKernels.held_by(envs)]


def _is_known(envs: VectorEnv[Any, Any, Any]) -> bool:
    """Tell whether the classes of a vector environment and its kernels are Gymnasium's or arrayferry's."""
    classes = map(type, (envs, *_kernels_of(envs)))
    return all(cls.__module__.partition(".")[0] in KNOWN for cls in classes)


def _added_keys(chain: list[Any]) -> set[str] | None:
    """Return the keys that wrappers and kernels of a vector environment add to infos, or None if they are unknown."""
    *wrappers, inner = chain
    kernels = _kernels_of(inner)
    modules = (type(kernel).__module__ for kernel in kernels)
    if not all(map(_is_known, wrappers)) or not all(
        x.startswith("arrayferry_gym.") for x in modules
    ):
        return None
    # RecordEpisodeStatistics of Gymnasium or of this package
    keys = {envs._stats_key for envs in wrappers if hasattr(envs, "_stats_key")}
    return keys | {kernel.stats_key for kernel in kernels if hasattr(kernel, "stats_key")}


def _by_environment(infos: dict[Any, Any], n: int) -> list[dict[Any, Any]]:
    """Split the infos of a vector environment into a dict for each environment."""
    env_infos: list[dict[Any, Any]] = [{} for _ in range(n)]
    masks = {key: _mask(infos.get(f"_{key}"), n) for key in infos}
    mask_keys = {f"_{key}" for key, mask in masks.items() if mask is not None}
    for key, value in infos.items():
        if key in mask_keys:
            continue
        mask = masks[key]
        values = _by_environment(value, n) if isinstance(value, dict) else value
        has_rows = mask is not None or _is_batch(values, n)
        for index in range(n) if mask is None else map(int, np.flatnonzero(mask)):
            env_infos[index][key] = values[index] if has_rows else values
    return env_infos


def _mask(candidate: Any, n: int) -> Any:
    """Return a value as a NumPy mask, bool (n,), or None if the value has another dtype or shape."""
    candidate = np.asarray(candidate) if type(candidate) is list else candidate
    dtype_kind = getattr(getattr(candidate, "dtype", None), "kind", "")
    return candidate if dtype_kind == "b" and candidate.shape == (n,) else None


def _is_batch(values: AnyTree, n: int) -> bool:
    """Tell whether values are an array or a list of `n` values, one for each environment."""
    if isinstance(shape := getattr(values, "shape", None), tuple):
        return shape[:1] == (n,)
    return isinstance(values, (list, tuple)) and len(values) == n and not hasattr(values, "_fields")
