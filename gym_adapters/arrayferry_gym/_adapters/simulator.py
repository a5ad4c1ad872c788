"""`from_simulator` converts a simulator of several environments to a vector environment of Gymnasium."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import check_flag, combined_seed, options_of
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._arrays import as_flags, copied, mapped
from arrayferry_gym._episodes import LOST, RULES, autoreset_mode_of, before_resets
from arrayferry_gym._options.env_options import reset_mask_of
from arrayferry_gym._options.refusals import num_envs_inside
from arrayferry_gym._spaces.foreign import gymnasium_space, with_bounds
from arrayferry_gym._spaces.trees import batch_shapes, shapes_of

Final = Literal["kept", "lost"]

ROWS = ("env_ids", "envs_idx", "env_idx", "env_indices")
"""The names that simulators use for the parameter of `reset` that selects environments."""

FINAL = ("final_obs", "final_observation")
"""The keys of infos under which simulators return the last observations of episodes."""


def from_simulator(
    env: Any,
    *,
    final: Final = "kept",
    autoreset_mode: AutoresetMode | str | None = None,
    group: str | None = None,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    copy: bool = True,
) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment that runs a simulator, in the simulator's library and on its device.

    A simulator, such as Isaac Lab, mjlab, ManiSkill or Genesis, is one object that simulates `num_envs` environments.
    Its `step` accepts a batch of actions, and returns batches of observations, rewards, terminations, truncations and
    infos. A `step` for rsl_rl returns four values: observations, rewards, ends of episodes, and infos with the key
    `time_outs`. The vector environment works in every adapter, wrapper and bridge of this package.

    - *Autoreset.* A simulator that resets in the step that ends an episode must return the last observations in
      `infos["final_obs"]`. For Isaac Lab, set `compute_final_obs=True` in its configuration. If the simulator does not
      reset by itself (DISABLED), the caller resets by `reset(options={"reset_mask": ...})`. For mjlab, set
      `auto_reset=False`. If the last observations are missing, the first step that ends an episode raises an error,
      since trainers would use the first observations of the next episodes instead. Pass `final="lost"` to prevent this
      error if no trainer needs last observations.
    - *Limits.* If the simulator's configuration sets `is_finite_horizon`, the time limit is part of the task, and
      terminates episodes instead of truncating them.
    - *Seeds* are passed to `reset` if it has a parameter `seed`, and otherwise to the simulator's method `seed`.
      Several seeds are combined into one seed. Most simulators seed the global random generators of the process.
    - *Infos* are one dict for the batch. Their arrays are copied, like all results.

    Args:
        env: the simulator.
        final: "kept" if the simulator returns the last observations of episodes. "lost" if it does not, and no trainer
            needs them.
        autoreset_mode: when the simulator resets. None reads it from the simulator: from `metadata["autoreset_mode"]`,
            from the attribute `autoreset_mode`, or from `auto_reset=False` in the configuration.
        group: the key of the group of observations to return, such as "policy". None returns all groups, as a dict.
        observation_space: the space of the observations of one environment, or None for the simulator's
            `single_observation_space`.
        action_space: the space of the actions of one environment, or None for the simulator's `single_action_space`.
        action_bounds: the lower and upper bounds of the action space, as numbers or arrays, or None for the bounds of
            the simulator. Some trainers need finite bounds. Actions are not clipped.
        copy: whether results are copied. Pass False only if the simulator does not overwrite earlier results.

    Returns:
        A vector environment whose attributes include those of the simulator.

    Raises:
        TypeError: `env` is not a batch of environments.
        arrayferry.OptionError: `env` does not state when it resets or which spaces it has, or an option is invalid. A
            step raises this error if last observations are lost.

    Examples:
        >>> import gymnasium
        >>> import torch
        >>> import arrayferry_gym
        >>> class Drift:
        ...     num_envs = 4
        ...     single_observation_space = gymnasium.spaces.Box(-2, 2, (1,))
        ...     single_action_space = gymnasium.spaces.Box(-1, 1, (1,))
        ...     def reset(self, env_ids=None):
        ...         rows = slice(None) if env_ids is None else env_ids
        ...         if env_ids is None:
        ...             self.x = torch.zeros(4, 1)
        ...         self.x[rows] = 0.0
        ...         return self.x, {}
        ...     def step(self, actions):
        ...         self.x += actions
        ...         far = self.x[:, 0].abs() > 1
        ...         return self.x, -self.x[:, 0].abs(), far, torch.zeros_like(far), {}
        >>> envs = arrayferry_gym.from_simulator(Drift(), autoreset_mode="Disabled")
        >>> observations, infos = envs.reset()
        >>> observations, rewards, *_ = envs.step(torch.ones(4, 1))
        >>> rewards
        tensor([-1., -1., -1., -1.])
    """
    return SimulatorEnvs(
        env, final, autoreset_mode, group, observation_space, action_space, action_bounds, copy=copy
    )


@uncompiled
class SimulatorEnvs(VectorEnv[Any, Any, Any]):
    """The vector environment that `from_simulator` returns. For the arguments, see `from_simulator`.

    Attributes:
        env: the simulator.
    """

    def __init__(
        self,
        env: Any,
        final: Final,
        autoreset_mode: AutoresetMode | str | None,
        group: str | None,
        observation_space: Space[Any] | None,
        action_space: Space[Any] | None,
        action_bounds: tuple[Any, Any] | None,
        *,
        copy: bool,
    ) -> None:
        # assigned first: if the constructor fails, older Gymnasium calls close(), which needs `env`
        self.env = env
        check_flag("copy", copy)
        if final not in get_args(Final):
            raise af.OptionError(
                f"final={final!r:.80} is not valid", remedy="Pass 'kept' or 'lost'."
            )
        count = env.num_envs if isinstance(env, VectorEnv) else num_envs_inside(env)
        if count is None or not callable(getattr(env, "step", None)):
            raise TypeError(
                f"from_simulator takes a batch of environments with num_envs, reset and step, but got {env!r:.80}. Pass "
                "the simulator itself"
            )
        self.num_envs = int(count)
        self._group = group
        self._copy = copy
        self._takes = {**inspect.signature(env.reset).parameters}
        self._rows = next((name for name in ROWS if name in self._takes), None)
        if self._rows is None and _is_mani_skill(env):
            self._rows = "options"
        self._cfg = _attribute(env, "cfg")
        self._finite = bool(getattr(self._cfg, "is_finite_horizon", False))
        mode = self._mode_of(autoreset_mode, final)
        self._rule = RULES[mode]
        self.metadata = {**(getattr(env, "metadata", None) or {}), "autoreset_mode": mode}
        self._trusted = False  # whether the simulator has returned last observations
        if self._rule.same_step and final == "lost":
            self.metadata[LOST] = True
        self.spec, self.render_mode = (getattr(env, name, None) for name in ("spec", "render_mode"))
        self._checked = False
        self._array: type | None = None  # the type of the simulator's arrays
        # a copy of the latest observations, for environments that a later `reset` does not reset
        self._last: Any = None
        self._set_spaces(observation_space, action_space, action_bounds)

    def _mode_of(self, stated: AutoresetMode | str | None, final: Final) -> AutoresetMode:
        """Return the autoreset mode of the simulator.

        Raises:
            arrayferry.OptionError: the simulator does not state when it resets.
        """
        metadata = getattr(self.env, "metadata", None) or {}
        # ignore gym.Env.metadata, to which Gymnasium 1.1 writes the modes of other environments
        if stated is None and metadata is not gym.Env.metadata:
            stated = metadata.get("autoreset_mode")
        if stated is None:
            stated = _attribute(self.env, "autoreset_mode")
        if stated is None and getattr(self._cfg, "auto_reset", None) is False:
            stated = AutoresetMode.DISABLED
        if stated is None and final == "lost":
            stated = AutoresetMode.SAME_STEP
        if stated is None:
            raise af.OptionError(
                f"{self.env!r:.80} does not say when it resets",
                remedy='If the caller resets by reset(env_ids=...), pass autoreset_mode="Disabled". If step() resets, pass '
                'autoreset_mode="SameStep" if infos["final_obs"] has the last observations, and otherwise final="lost".',
            )
        return autoreset_mode_of(stated)

    def _set_spaces(self, observed: Any, acted: Any, bounds: Any) -> None:
        obs_space = self._space("observation_space", observed)
        act_space = self._space("action_space", acted)
        if self._group is not None and observed is None:
            groups = obs_space.spaces if isinstance(obs_space, spaces.Dict) else {}
            if self._group not in groups:
                raise af.OptionError(
                    f"group={self._group!r} is not valid",
                    remedy=f"The groups are {', '.join(map(repr, groups)) or 'none'}.",
                )
            obs_space = groups[self._group]
        if bounds is not None:
            act_space = with_bounds(act_space, *bounds)
        self.single_observation_space, self.single_action_space = obs_space, act_space
        self.observation_space = batch_space(obs_space, self.num_envs)
        self.action_space = batch_space(act_space, self.num_envs)

    def _space(self, name: str, stated: Any) -> Space[Any]:
        """Return the space of one environment: the stated space or, if it is None, the space of the simulator."""
        space = _attribute(self.env, f"single_{name}") if stated is None else stated
        if space is None:
            raise af.OptionError(
                f"{self.env!r:.80} has no single_{name}",
                remedy=f"Pass {name}: the space of one environment.",
            )
        return gymnasium_space(space)

    def _use(self, observations: AnyTree) -> None:
        """Store the library, the device and the type of the arrays in these observations, for conversions."""
        array, backend = af.first_array(observations)
        if backend is None:
            raise TypeError(
                f"{self.env!r:.80} must return observations with an array, not {observations!r:.80}"
            )
        self._xp, self._array, self._backend = af.namespace_of(array), type(array), backend
        self._device = _attribute(self.env, "device") or backend.device_of(array)

    def _to_simulator(self, tree: AnyTree) -> Any:
        return af.convert(tree, self._backend, device=self._device)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`. Other options are passed to the simulator."""
        arguments: dict[str, Any] = {}
        row_mask: Any = None
        other_options = options_of(options)
        mask = reset_mask_of(other_options.pop("reset_mask", None), self.num_envs)
        if mask is not None:
            if self._rows is None or self._last is None:
                raise af.OptionError(
                    f"{self.env!r:.80} cannot reset only the environments of a reset_mask",
                    remedy="Leave out reset_mask."
                    if self._rows is None
                    else "Call reset() without a reset_mask first.",
                )
            if not mask.any():
                return self._copied(self._last), {}
            row_mask = self._to_simulator(mask)
            ids = self._xp.nonzero(row_mask)[0]
            if self._rows == "options":
                other_options["env_idx"] = ids
            else:
                arguments[self._rows] = ids
        if other_options:
            if "options" not in self._takes:
                raise af.OptionError(
                    f"reset() of {self.env!r:.80} takes no options",
                    remedy=f"Leave out {', '.join(other_options)}.",
                )
            arguments["options"] = other_options
        number = combined_seed(seed, self.num_envs)
        if number is not None:
            self._seed(number, arguments)
        result = self.env.reset(**arguments)
        observations = _plain(result[0] if isinstance(result, tuple) else result, self._group)
        self._use(observations)
        infos = result[-1] if isinstance(result, tuple) and isinstance(result[-1], dict) else {}
        self._check(observations)
        if self._rows is not None:
            if row_mask is not None:
                observations = before_resets(self._xp, row_mask, observations, self._last)
            self._last = self._copied(observations)
        return self._safe_results(observations), self._safe_results(infos)

    def _seed(self, seed: int, arguments: dict[str, Any]) -> None:
        """Pass one seed to the simulator, in the arguments of `reset` or by the simulator's method `seed`."""
        seed_method = _attribute(self.env, "seed")
        if "seed" in self._takes:
            arguments["seed"] = seed
        elif callable(seed_method):
            seed_method(seed)
        else:
            gym.logger.warn(f"{self.env!r:.80} takes no seed. Seed the simulator when you make it.")

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments. Actions of other libraries are converted to the simulator's library."""
        if self._array is None:
            raise gym.error.ResetNeeded("Call reset() before step().")
        if type(actions) is not self._array:
            actions = self._to_simulator(actions)
        observations, rewards, *flags, infos = self.env.step(actions)
        observations = _plain(observations, self._group)
        infos = {**infos}
        if len(flags) == 2:
            terminated, truncated = flags
        else:
            (terminated,) = flags
            truncated = infos.get("time_outs")
            truncated = self._xp.zeros_like(terminated) if truncated is None else truncated
            if type(truncated) is not type(terminated):
                if not hasattr(truncated, "dtype"):  # np.asarray fails for arrays on a GPU
                    truncated = np.asarray(truncated)
                truncated = af.convert(truncated, like=terminated)
            if truncated.shape != terminated.shape:
                self._check(observations, rewards, terminated, truncated)
        if not self._checked:
            self._check(observations, rewards, terminated, truncated)
        terminated, truncated = as_flags(terminated), as_flags(truncated)
        if len(flags) == 1:
            terminated, truncated = terminated & ~truncated, terminated & truncated
        if self._finite:
            terminated, truncated = terminated | truncated, self._xp.zeros_like(truncated)
        if self._rule.tells_final:
            self._add_final(infos, observations, terminated | truncated)
        if self._rows is not None:
            self._last = self._copied(observations)
        safe = self._safe_results
        return safe(observations), safe(rewards), safe(terminated), safe(truncated), safe(infos)

    def _safe_results(self, tree: AnyTree) -> Any:
        """Return copies of results, so that later steps do not change them. With `copy=False`, return the results."""
        return self._copied(tree) if self._copy else tree

    def _copied(self, tree: AnyTree) -> Any:
        """Return copies of the arrays in a tree. Anything else is unchanged."""
        tree_type = type(tree)
        if tree_type is self._array:
            return copied(tree)
        if tree_type is dict:  # for dicts, this is faster than `map_arrays`
            return {key: self._copied(part) for key, part in tree.items()}
        if tree_type is memoryview:
            return np.array(tree).data
        return tree if tree_type in _PLAIN else map_arrays(copied, tree)

    def _add_final(self, infos: dict[str, Any], observations: AnyTree, ended: AnyArray) -> None:
        """Store the last observations in `infos["final_obs"]`. With `final="lost"`, remove them from infos."""
        finals = [_plain(infos.pop(name), self._group) for name in FINAL if name in infos]
        masks = [infos.pop(f"_{name}") for name in FINAL if f"_{name}" in infos]
        if LOST in self.metadata:
            return
        if isinstance(infos.get("terminal"), dict) and "observations" in infos["terminal"]:
            terminal = infos.pop("terminal")  # mjlab returns only rows of ended episodes
            last, mask = self._copied(observations), self._xp.zeros_like(ended)
            updates = _plain(terminal["observations"], self._group), True
            mapped(lambda x, rows: x.__setitem__(terminal["env_ids"], rows), (last, mask), updates)
            finals, masks = [last], [mask]
        if finals:
            self._trusted = True
            infos["final_obs"] = finals[0]
            infos["_final_obs"] = masks[0] if masks else ended
        elif not self._trusted and bool(ended.any()):
            raise af.OptionError(
                f"{self.env!r:.80} resets in the step that ends an episode, and the last observation of the episode is lost",
                remedy='Configure the simulator to return last observations as infos["final_obs"] (Isaac Lab: compute_final_obs=True) or '
                'not to reset by itself (mjlab: auto_reset=False), or pass final="lost" if no trainer needs last observations.',
            )

    def _check(self, observations: AnyTree, *others: Any) -> None:
        """Check the shapes of observations, rewards, terminations and truncations.

        Raises:
            TypeError: the shapes of observations are not those of their space, or the shape of another result is not
                (num_envs,).
        """
        n, space = self.num_envs, self.single_observation_space
        part_shapes, wanted = shapes_of(space, observations), batch_shapes(space, n)
        if part_shapes != wanted:
            raise TypeError(
                f"{self.env!r:.80} returned observations with the shapes {part_shapes}, but its space has {wanted}. Pass "
                "the space of one environment as observation_space, or the key of one group as group"
            )
        for name, array in zip(("rewards", "terminations", "truncations"), others, strict=False):
            if tuple(getattr(array, "shape", ())) != (n,):
                raise TypeError(
                    f"{self.env!r:.80} returned {name} {array!r:.80}, but the shape ({n},) is needed. Its step must return observations, "
                    "rewards, terminations, truncations and infos, or observations, rewards, ends and infos"
                )
        if others:
            self._checked = True

    def render(self) -> Any:
        """Return what `render` of the simulator returns."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the simulator."""
        getattr(self.env, "close", lambda: None)()

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_" or name == "env":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        attribute = _attribute(self.env, name)
        return getattr(self.env, name) if attribute is None else attribute

    def __repr__(self) -> str:
        return f"from_simulator({self.env!r:.80}, num_envs={self.num_envs})"


_PLAIN = {float, int, bool, str, type(None)}


def _attribute(env: Any, name: str) -> Any:
    """Return an attribute of a simulator or, if wrappers hide it, of the unwrapped simulator. None if it is missing."""
    attribute = getattr(env, name, None)
    return getattr(getattr(env, "unwrapped", env), name, None) if attribute is None else attribute


def _is_mani_skill(env: Any) -> bool:
    """Tell whether a simulator is from ManiSkill, whose `reset` selects environments by the option `env_idx`."""
    unwrapped = getattr(env, "unwrapped", env)
    return any(cls.__module__.startswith("mani_skill.") for cls in type(unwrapped).__mro__)


def _plain(observations: AnyTree, group: str | None = None) -> Any:
    """Return observations as plain dicts and arrays. If a group is named, return only its observations."""
    # convert a TensorDict to a dict
    if type(observations) is not dict and hasattr(observations, "to_dict"):
        observations = observations.to_dict()
    return observations if group is None else observations[group]
