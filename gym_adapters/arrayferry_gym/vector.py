"""Adapters for `gymnasium.vector.VectorEnv`, with the same names as the adapters for single environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from gymnasium import Space
from gymnasium.vector import VectorEnv, VectorWrapper

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import forwarded_seed
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._adapters.adapter import (
    Adapter,
    NamedPair,
    NamedPairOnDevice,
    arguments_of,
    converted_space_property,
    gymnasium_class,
    takes,
)
from arrayferry_gym._adapters.overloads import (
    VectorArrayConversionInit,
    VectorJaxToNumpyInit,
    VectorJaxToTorchInit,
    VectorNumpyToTorchInit,
)
from arrayferry_gym._arrays import BOOL, as_flags, cast_clipped, mapped
from arrayferry_gym._episodes import (
    RULES,
    ServesFunctional,
    autoreset_mode_of,
    checked_reset,
    final_observations,
    loses_final,
)
from arrayferry_gym._options.env_options import forwarded_mask
from arrayferry_gym._options.libraries import explain, reward_dtype_of
from arrayferry_gym._options.refusals import check_env, missing_adapter
from arrayferry_gym.typing import ActT, ArrT, ObsT

if TYPE_CHECKING:
    _Wrapper = VectorWrapper
else:
    _Wrapper = gymnasium_class("gymnasium.wrappers.vector.array_conversion", VectorWrapper)

__all__ = ["ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"]


@uncompiled
class ArrayConversion(VectorArrayConversionInit, Adapter, _Wrapper, Generic[ObsT, ActT, ArrT]):
    """Use a vector environment written for one array library with an agent written for another.

    Observations, rewards, terminations, truncations and infos are converted to the agent's library. Actions are
    converted to the environment's library, and to the dtypes and shapes of its action space. The spaces sample and
    contain arrays of the agent's library.

    Args:
        env: the vector environment.
        env_xp: the library of the environment, as a name ("jax") or namespace. None detects it from the observations.
        target_xp: the library of the agent. None detects it from the agent's actions.
        env_device: the device of converted actions. None detects it from the observations.
        target_device: the device of converted results. None leaves them on their device.
        like: an array, a module with parameters, an Equinox model, or any tree with an array. Pass `like` instead of
            `target_xp` and `target_device`, to use the library and the device of this array.
        info_xp: the library that infos are converted to, or None for the agent's library.
        convert_info: False to leave infos unchanged.
        stack_final: for SAME_STEP mode. If True, `infos["final_obs"]` of each step is a batch of the observations after
            the step and before any reset. The mask `infos["_final_obs"]` is true where an episode has ended.
        reward_dtype: the dtype that rewards are cast to, as a name ("float32") or an object of any
            library (`torch.float32`). None keeps the dtype of the rewards.
        copy: as in `arrayferry.convert`.
        narrowing: as in `arrayferry.convert`.
        scalars: for infos, as in `arrayferry.convert`. "keep" leaves Python numbers in infos unchanged.
        unknown: as in `arrayferry.convert`. "convert" also converts table columns and similar objects in trees.
        sparse: as in `arrayferry.convert`. The default is "dense", so that the agent always gets arrays of its library.
        check_actions: "fit" refuses actions from which the environment would compute wrong results without an error.
            Other actions that do not fit are passed on to the environment, with a warning. "strict" refuses all actions
            that do not fit, and also NaN and numbers outside the bounds of a Box. "off" checks nothing.
        convert_render: whether the result of `render` is converted too.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or unavailable, or an option is unknown or invalid.
        TypeError: `env` is not a vector environment.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_gym.vector import ArrayConversion
        >>> envs = ArrayConversion(gym.make_vec("CartPole-v1", num_envs=2), target_xp="torch")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        torch.Size([2, 4])
        >>> envs.close()
    """

    if not TYPE_CHECKING:  # type checkers use the signature in VectorArrayConversionInit

        @takes()
        def __init__(self, env: VectorEnv[Any, Any, Any], *args: Any, **options: Any) -> None:
            arguments = arguments_of(ArrayConversion, self, *args, **options)
            check_env(type(self), env)
            VectorWrapper.__init__(self, env)
            self._stack_final = arguments["stack_final"]
            if self._stack_final is True:
                self._check_final()
                self._final_in_batch = isinstance(env, ServesFunctional)
            self._setup(env, **arguments)
            self._reward_dtype = reward_dtype_of(arguments["reward_dtype"], self.target_backend)

    env: VectorEnv[Any, Any, Any]
    _stack_final: bool
    _final_in_batch = False
    _reward_dtype: str | None

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Reset all environments. Arrays in `options` are converted to the environments' library."""
        seed = forwarded_seed(seed, self.num_envs)
        options = self._reset_options(forwarded_mask(options))
        observations, infos = checked_reset(self.env, self.env.reset(seed=seed, options=options))
        self._check_space()
        self._observe(observations)
        return self._libraries.to_agent(observations), self._libraries.convert_infos(infos)

    def step(self, actions: AnyTree) -> tuple[ObsT, ArrT, ArrT, ArrT, dict[str, Any]]:
        """Take a step in all environments, with actions of any library."""
        self._note = None
        try:
            observations, rewards, terminated, truncated, infos = self.env.step(self._act(actions))
        except Exception as error:
            self._explain(error)
            raise
        libraries = self._libraries
        if type(observations) is not libraries.observed:
            self._observe(observations)
        if not getattr(terminated, "dtype", None) is getattr(truncated, "dtype", None) is BOOL:
            terminated, truncated = as_flags(terminated), as_flags(truncated)
        results: Any = observations, rewards, terminated, truncated
        if self._final_in_batch:
            results = *results, infos.get("final_obs")
        # all results are converted in one call, which is faster for some libraries
        if libraries.target is not None:
            try:
                results = libraries.target(results)
            except af.ConversionError as error:
                explain(error, ("observations", "rewards", "terminated", "truncated", "final_obs"))
                raise
        observations, rewards, terminated, truncated, *final_obs = results
        if self._reward_dtype is not None:
            rewards = self._cast_rewards(rewards)
        if self._stack_final:
            infos = self._with_final(observations, terminated, truncated, infos, *final_obs)
        elif infos:
            infos = libraries.convert_infos(infos)
        return observations, rewards, terminated, truncated, infos

    def _cast_rewards(self, rewards: AnyArray) -> Any:
        if isinstance(rewards, (dict, list, tuple)):
            return mapped(self._cast_rewards, rewards)
        xp = af.namespace_of(rewards)
        dtype = getattr(xp, str(self._reward_dtype), None)
        if dtype is None:
            raise af.OptionError(
                f"reward_dtype={self._reward_dtype!r} is not possible, since {af.backend_of(rewards).name} has no such dtype",
                remedy="Pass another dtype, or state the library of the agent by target_xp.",
            )
        return cast_clipped(rewards, dtype)

    def _check_final(self) -> None:
        """Check that the environment returns the last observations of episodes, as `stack_final` requires.

        Raises:
            arrayferry.OptionError: the environment does not return last observations.
        """
        mode = self.autoreset_mode
        reason = "loses the last observations of episodes" if loses_final(self.env) else None
        if mode is not None and not RULES[autoreset_mode_of(mode)].tells_final:
            reason = f"resets in {autoreset_mode_of(mode).name} mode"
        if reason is not None:
            raise af.OptionError(
                f"stack_final=True, but {self.env!r:.80} {reason}, so that there is no final_obs",
                remedy='Make it with autoreset_mode="SameStep" (gymnasium.make_vec(id, n, "sync", vector_kwargs={"autoreset_mode": "SameStep"})'
                "), or leave out stack_final: in the other modes, a step returns the observations before any reset.",
            )

    def _with_final(
        self,
        observations: AnyTree,
        ended: AnyArray,
        cut: Any,
        infos: dict[str, Any],
        final: AnyTree = None,
    ) -> dict[str, Any]:
        """Return converted infos, in which `final_obs` is one batch.

        The batch has the observations after the step and before any reset.
        """
        done, libraries = ended | cut, self._libraries
        if final is None:
            final = final_observations(self.env, infos, done, observations, libraries.to_agent)
        others = {name: x for name, x in infos.items() if name not in ("final_obs", "_final_obs")}
        others = libraries.convert_infos(others) if others else others
        return {**others, "final_obs": final, "_final_obs": done}

    @property
    def autoreset_mode(self) -> Any:
        """The environment's autoreset mode, or None if the environment does not declare a mode."""
        mode = (self.env.metadata or {}).get("autoreset_mode")
        return getattr(self.env, "autoreset_mode", None) if mode is None else mode

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of each environment, if the vector environment has `call`. Nothing is converted."""
        return self.env.call(name, *args, **kwargs)  # type: ignore[attr-defined]

    def get_attr(self, name: str) -> Any:
        """Get an attribute of each environment, if the vector environment has `get_attr`."""
        return self.env.get_attr(name)  # type: ignore[attr-defined]

    def set_attr(self, name: str, values: AnyTree) -> None:
        """Set an attribute of each environment, if the vector environment has `set_attr`."""
        self.env.set_attr(name, values)  # type: ignore[attr-defined]

    action_space: Space[ActT] = converted_space_property("action_space")  # type: ignore[assignment]
    observation_space: Space[ObsT] = converted_space_property("observation_space")  # type: ignore[assignment]
    single_action_space: Space[Any] = converted_space_property("single_action_space")  # type: ignore[assignment]
    single_observation_space: Space[Any] = converted_space_property("single_observation_space")  # type: ignore[assignment]


class JaxToNumpy(VectorJaxToNumpyInit, NamedPair, ArrayConversion[ObsT, ActT, ArrT]):
    """Use a vector environment written for JAX with an agent written for NumPy.

    Args:
        env: the vector environment.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("jax", "numpy")


class JaxToTorch(VectorJaxToTorchInit, NamedPairOnDevice, ArrayConversion[ObsT, ActT, ArrT]):
    """Use a vector environment written for JAX with an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: the device of results.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("jax", "torch")


class NumpyToTorch(VectorNumpyToTorchInit, NamedPairOnDevice, ArrayConversion[ObsT, ActT, ArrT]):
    """Use a vector environment written for NumPy with an agent written for PyTorch.

    Args:
        env: the vector environment.
        device: the device of results.
        **options: the keyword options of `ArrayConversion`.
    """

    _pair = ("numpy", "torch")


if not TYPE_CHECKING:  # type checkers that see `__getattr__` would accept any name

    def __getattr__(name: str) -> Any:
        raise missing_adapter(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
