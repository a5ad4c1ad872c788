"""`FunctionalVectorEnv`: a `FunctionalEnv` as a Gymnasium vector environment, in any library."""

from __future__ import annotations

import os
from typing import Any, Generic

from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import UNSET, count_of
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_gym.extending import autoreset_mode_of
from arrayferry_gym.typing import ActT, ArrT, CheckActions, ObsT

from .serving import Served, set_spaces


@uncompiled
class FunctionalVectorEnv(Served, VectorEnv[ObsT, ActT, ArrT], Generic[ObsT, ActT, ArrT]):
    """A batch of functional environments, served in the agent's library.

    Environments are reset after an episode according to `autoreset_mode`. In SAME_STEP mode, infos contain "final_obs",
    a batch of the observations of all environments before the reset, and "_final_obs", a mask that is true where an
    episode has ended. Rewards have the environment's dtype, and observations have the dtype of their space.

    Args:
        env: the environment, or its class.
        num_envs: the number of environments.
        xp: the library of observations, rewards and actions, as a name ("torch") or namespace.
        device: the device of the arrays, or None for the library's default. With JAX also
            `NamedSharding(mesh, PartitionSpec("envs"))`, which spreads the environments over several devices.
            `num_envs` must be divisible by the number of devices.
        autoreset_mode: when environments are reset after an episode.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        params: parameters, or a dict of the parameters that differ from the defaults.
        render_mode: "rgb_array" to render images.
        check_actions: as for `arrayferry_gym.ArrayConversion`, but actions outside the space are clipped to it unless the
            check is "strict". Extra keys of a dict are ignored. Other actions that do not fit raise an error.
        differentiable: whether gradients flow through steps in PyTorch. If False, environments on the CPU compute in
            NumPy, which is faster, and tensors share the memory of NumPy's arrays.
        translate: whether JAX only traces resets and steps, which then run in the library `xp`. Random numbers and
            episodes are the same as in JAX, up to rounding.

    Attributes:
        functional: the environment.
        autoreset_mode: the autoreset mode.

    Raises:
        arrayferry.ArrayFerryError: an option is invalid, or the library is not usable here.

    Examples:
        >>> from arrayferry_envs import CartPole, FunctionalVectorEnv
        >>> envs = FunctionalVectorEnv(CartPole(), 2, xp="torch")
        >>> observations, infos = envs.reset(seed=1, options={"params": {"gravity": 1.6}})
        >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> rewards
        tensor([1., 1.])
    """

    num_envs: int
    metadata: dict[str, Any]
    autoreset_mode: AutoresetMode
    single_observation_space: Space[Any]
    observation_space: Space[Any]
    single_action_space: Space[Any]
    action_space: Space[Any]

    def __init__(
        self,
        env: FunctionalEnv | type[FunctionalEnv],
        num_envs: int = 1,
        *,
        xp: Target = "numpy",
        device: Device = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: Any = UNSET,
        params: AnyTree = None,
        render_mode: str | None = None,
        check_actions: CheckActions = "fit",
        differentiable: bool = False,
        translate: bool = False,
    ) -> None:
        self.num_envs = count_of("num_envs", num_envs)
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        shown = self._set_up(
            env, self.num_envs, self.autoreset_mode, xp, device,
            max_episode_steps=max_episode_steps, params=params, render_mode=render_mode,
            check_actions=check_actions, differentiable=differentiable, translate=translate,
        )  # fmt: skip
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        set_spaces(self, self._chain.outside.observation, self._chain.outside.action, shown)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Reset all environments, or some of them.

        Args:
            seed: an integer, or one for each environment. Episodes with the same seeds are equal in the
                same library. With None, the random sequence continues.
            options: "params" for other parameters, which apply until the next change; "state" for the initial states,
                as in the attribute `state`; "reset_mask" for an array or a list of booleans that select the
                environments to reset.
        """
        self.closed = False
        return self._for_agent(self._reset_batch(seed, options))  # type: ignore[no-any-return]

    def step(self, actions: AnyTree) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Take a step in all environments, with actions of any library."""
        result, added = self._stepper.step(self._fitted(actions), self._params)
        if added:
            self._tell(result[4], added)
        return self._for_agent(result)  # type: ignore[no-any-return]

    def render(self) -> Any:
        """Return an image of each environment, or None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self._image(index) for index in range(self.num_envs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write environments made with `translate=True` to a file, which `make_vec` serves without JAX.

        The file contains the steps and resets, the spaces, the autoreset mode, the step limit, the number of environments,
        and the initial statistics of kernels. It contains no states and no learnt statistics. To use learnt statistics,
        save environments without the kernels that learn. Put the wrappers of `arrayferry_gym.wrappers.vector` with the
        same names around the loaded environments. Pass the `state_dict()` of the trained environments to their
        `load_state_dict`.

        Args:
            path: the file, whose name ends in ".afp".

        Raises:
            arrayferry.OptionError: the environments are not translated, or the name has another ending.
            arrayferry_translate.TranslationError: an operation of the environments cannot be saved.

        Examples:
            >>> import os
            >>> import tempfile
            >>> from arrayferry_envs import CartPole, make_vec
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = os.path.join(folder, "cartpole.afp")
            ...     CartPole().make_vec(2, translate=True).save(path)
            ...     envs = make_vec(path, 2, xp="torch")
            >>> envs.reset(seed=1)[0].shape
            torch.Size([2, 4])
        """
        from .saved import save

        save(self, path)

    def close_extras(self, **kwargs: Any) -> None:
        """Discard the states."""
        self._forget()
