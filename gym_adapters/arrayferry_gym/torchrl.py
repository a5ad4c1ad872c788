"""`TorchRLEnv`: vector environments of any library for TorchRL."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import check_flag, missing_package
from arrayferry.typing import AnyTree, Device
from arrayferry_gym._spaces.trees import ARRAYS, branches, build, keyed, split

from ._bridged import Bridged
from .vector import ArrayConversion

try:
    import torch
    from tensordict import TensorDict
    from torchrl.data import (
        Binary,
        Bounded,
        Categorical,
        Composite,
        MultiCategorical,
        MultiOneHot,
        OneHot,
        Unbounded,
    )
    from torchrl.envs import EnvBase
except ImportError as _error:
    raise missing_package(__name__, "torchrl", _error) from _error

__all__ = ["TorchRLEnv"]

MASK = "action_mask"
FLAGS = ("done", "terminated", "truncated")
TAKEN = ("action", "next", "reward", *FLAGS)


@uncompiled
class TorchRLEnv(EnvBase):  # type: ignore[misc]
    """A vector environment of any library as an `EnvBase` of TorchRL, of batch size (num_envs,).

    Arrays are converted directly between the environment's library and PyTorch. Environments must reset in the same step
    (SAME_STEP) or leave resets to TorchRL (DISABLED). In both modes, `("next", "observation")` is the observation after
    the step and before any reset. A reset returns the first observation of the next episode. TorchRL may also reset
    environments whose episode has not ended, for example for the transform `StepCounter`.

    | | |
    |---|---|
    | observation | `"observation"`, or the keys of a Dict; parts of a Tuple have the keys "0", "1", ... |
    | action | `"action"`; parts of a Dict or Tuple are nested in it |
    | reward, done, terminated, truncated | (num_envs, 1), float32 and bool |

    Observations have the dtype of their space. Observations of a Discrete or MultiDiscrete are shifted to start at 0.
    The part `"action_mask"` of a Dict is bool, as the transform `ActionMask` requires. Infos are left out.

    Args:
        envs: the vector environment to train in, of any library.
        device: the device of all tensors.
        categorical_actions: whether actions of Discrete and MultiDiscrete are integers. If not, they are one-hot.

    Attributes:
        envs: the environments in PyTorch.

    Raises:
        TypeError: `envs` is not a vector environment, or a space has no fixed shape.
        arrayferry.OptionError: `envs` resets in the next step, or a part of an observation has a name that TorchRL uses
            itself, such as "reward".

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.torchrl import TorchRLEnv
        >>> env = TorchRLEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep"))
        >>> seed = env.set_seed(1)
        >>> steps = env.rollout(100, break_when_any_done=False)
        >>> steps["next", "observation"].shape
        torch.Size([4, 100, 4])
    """

    envs: ArrayConversion[Any, Any, Any]

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        device: Device = "cpu",
        *,
        categorical_actions: bool = False,
    ) -> None:
        check_flag("categorical_actions", categorical_actions)
        bridged = Bridged(envs, "TorchRLEnv", "TorchRL", "torch", device)
        n = envs.num_envs
        super().__init__(device=device, batch_size=(n,))
        self._bridged = bridged
        self.envs = bridged.envs
        self._observation_parts = _Parts(
            envs.single_observation_space, n, self.device, "observation", one_hot=False
        )
        self._action_parts = _Parts(
            envs.single_action_space, n, self.device, "action", one_hot=not categorical_actions
        )
        for first_key, *_ in self._observation_parts.parts:
            if first_key in TAKEN:
                raise af.OptionError(
                    f"the observation has a part {first_key!r}, a name that TorchRL uses itself",
                    remedy="Rename this part in the environment.",
                )
        self.observation_spec: Any = self._observation_parts.spec
        self.full_action_spec: Any = self._action_parts.spec
        self.reward_spec: Any = Unbounded((n, 1), device=self.device, dtype=torch.float32)
        flag = Binary(1, (n, 1), device=self.device, dtype=torch.bool)
        flags = {name: flag.clone() for name in FLAGS}
        self.done_spec: Any = Composite(flags, shape=(n,), device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Reset the environments with a seed. The next call of `reset` returns the observations."""
        if seed is not None:
            self._bridged.seed(seed)

    def _reset(
        self, tensordict: Any = None, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> Any:
        row_mask = None if tensordict is None else self._mask(tensordict, "_reset")
        return self._tensordict(self._bridged.reset(row_mask, seed=seed, options=options))

    def _step(self, tensordict: Any) -> Any:
        # rollouts that continue until all episodes have ended pass a mask of environments to step
        row_mask = self._mask(tensordict, "_step")
        actions = self._action_parts.to_env(tensordict)
        observations, rewards, terminated, truncated, _ = self._bridged.step(actions, row_mask)
        result = self._tensordict(observations)
        result["reward"] = rewards.to(torch.float32)[:, None]
        result["terminated"], result["truncated"] = terminated[:, None], truncated[:, None]
        result["done"] = (terminated | truncated)[:, None]
        if row_mask is None:
            return result
        previous_result = tensordict.select(*result.keys(True, True), strict=False)
        previous_result["reward"] = torch.zeros_like(result["reward"])
        return torch.where(row_mask, result, previous_result)

    def _mask(self, tensordict: Any, name: str) -> Any:
        """Return a mask of environments in a TensorDict, bool (num_envs,), or None if it is missing."""
        mask = tensordict.get(name, None)
        return None if mask is None else mask.reshape(self.batch_size)

    def _tensordict(self, observations: AnyTree) -> Any:
        parts = self._observation_parts.from_env(observations)
        return TensorDict(parts, batch_size=self.batch_size, device=self.device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.envs.env}, batch_size={tuple(self.batch_size)}, device={str(self.device)!r})"

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environments."""
        super().close(raise_if_closed=raise_if_closed)
        self.envs.close()


class _Part:
    """The TorchRL spec of a leaf of a space, and the conversion of its values.

    Args:
        space: the leaf.
        n: the number of environments.
        device: the device of the spec.
        key: the keys that lead to the leaf, as a tuple. For ("action_mask",), the dtype is bool.
        one_hot: whether Discrete and MultiDiscrete are one-hot.
    """

    def __init__(self, space: Any, n: int, device: Device, key: Any, *, one_hot: bool) -> None:
        is_mask = key == (MASK,) and isinstance(space, (spaces.Box, spaces.MultiBinary))
        dtype = torch.bool if is_mask else getattr(torch, str(space.dtype), None)
        if dtype is None or not isinstance(space, ARRAYS):
            key_text = "".join(f"[{part!r}]" for part in key)
            raise TypeError(
                f"{space}{key_text} has no fixed shape or no numbers, which TorchRL needs. Use a Box"
            )
        self.counted = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
        self.one_hot = one_hot and self.counted
        self.dtype: Any = dtype
        self.shape: tuple[int, ...] = (n, *(space.shape or ()))
        self.start = torch.as_tensor(getattr(space, "start", 0), device=device)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        spec: Any
        if isinstance(space, spaces.Discrete):
            spec = (OneHot if one_hot else Categorical)(int(space.n), **options)
        elif isinstance(space, spaces.MultiDiscrete):
            counts = space.nvec.flatten().tolist()
            spec = (MultiOneHot if one_hot else MultiCategorical)(counts, **options)
        elif is_mask or isinstance(space, spaces.MultiBinary):
            spec = Binary(shape=space.shape, **options)
        elif space.bounded_below.any() or space.bounded_above.any():
            low, high = (torch.as_tensor(bound, **options) for bound in (space.low, space.high))
            spec = Bounded(low, high, shape=space.shape, **options)
        else:
            spec = Unbounded(space.shape, **options)
        self.spec: Any = spec.expand(n, *spec.shape)

    def from_env(self, value: AnyTree) -> Any:
        """Return an observation with the shape and dtype of the spec, and with integers that start at 0."""
        if self.counted:
            return (value - self.start).to(self.dtype).reshape(self.spec.shape)
        return value.to(self.dtype)

    def to_env(self, value: AnyTree) -> Any:
        """Return an action with the shape of the space, and with integers that begin at its `start`."""
        if not self.counted:
            return value
        numbers = self.spec.to_categorical(value, safe=False) if self.one_hot else value
        return numbers.reshape(self.shape) + self.start


class _Parts:
    """The leaves of a space by their keys in a TensorDict, and the spec of the space.

    Args:
        space: the space of one environment.
        n: the number of environments.
        device: the device of the specs.
        name: "observation" or "action", the key of a value that is not a Dict or Tuple. The parts of actions are nested
            below "action".
        one_hot: whether Discrete and MultiDiscrete are one-hot.
    """

    def __init__(
        self, space: Space[Any], n: int, device: Device, name: str, *, one_hot: bool
    ) -> None:
        self.space = space
        key_prefix = (name,) if name == "action" or branches(space) is None else ()
        self.parts = {
            (key := (*key_prefix, *map(str, keys))): _Part(leaf, n, device, key, one_hot=one_hot)
            for leaf, keys in keyed(space)
        }
        self.spec = Composite(shape=(n,), device=device)
        for key, part in self.parts.items():
            self.spec[key] = part.spec

    def from_env(self, observations: AnyTree) -> dict[Any, Any]:
        """Return the parts of observations as a dict whose keys are those of a TensorDict."""
        pairs = zip(self.parts.items(), split(self.space, observations), strict=True)
        return {key: part.from_env(value) for (key, part), value in pairs}

    def to_env(self, tensordict: Any) -> Any:
        """Return the actions in a TensorDict, with the structure of the space."""
        return build(self.space, (part.to_env(tensordict[key]) for key, part in self.parts.items()))
