"""Steps environments of any kind from Python, with a policy of any library."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import numbers
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

import arrayferry as af
import arrayferry_gym
from arrayferry._utilities.caller import caller_level
from arrayferry._utilities.options import count_of
from arrayferry.typing import AnyArray, AnyTree, Device
from arrayferry_envs._around import wrapped
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env, is_functional
from arrayferry_envs._contract.policies import Run, check_arguments, check_policy
from arrayferry_gym.extending import Episodes, HasKernels, as_rewards, checked_reset, refuse_batch
from arrayferry_gym.wrappers.kernels import Step

from .batch import EnvBatch
from .policies import LibraryPolicy, ModulePolicy, is_module

TO_HOST = af.converter("numpy", unsupported="keep")
"""Converts arrays on any device to NumPy. `policies.TO_NUMPY` is for arrays that need no copy."""


def library_of(
    what: str, policy: Any, policy_xp: Any, key: Any, state: AnyTree, *, functional: bool
) -> af.Backend | None:
    """Return the library of a policy. None means the library of the observations, which is not known yet.

    Args:
        what: the name of the function that the user called, for errors.
        policy: the policy, of any library.
        policy_xp: the library that the user passed, or None if the user passed no library.
        key: the integer or JAX key that the user passed.
        state: the state of the policy, or None for a policy without a state.
        functional: whether the environment is functional, so that a policy in JAX can be compiled with it.

    Raises:
        arrayferry.OptionError: the policy does not accept its arguments; the policy is a module of PyTorch, but
            `policy_xp` is another library; or the key is invalid.
    """
    check_policy(policy)
    is_torch = is_module(policy)
    if not is_torch:
        check_arguments(what, policy, state)
    if not isinstance(key, numbers.Integral) and not hasattr(key, "dtype"):
        raise af.OptionError(
            f"key={key!r:.80} is not a key", remedy="Pass an integer, or a JAX key."
        )
    library = None if policy_xp is None else af.registry.backend(policy_xp)
    if is_torch and library is not None and library.name != "torch":
        raise af.OptionError(
            f"policy_xp={library.name!r}, but the policy is a module of PyTorch",
            remedy="Leave out policy_xp.",
        )
    if library is None and (is_torch or functional or not isinstance(key, numbers.Integral)):
        return af.registry.backend("torch" if is_torch else "jax")
    return library


def make_policy(
    policy: Any, backend: af.Backend, seed_prefix: tuple[int, ...], count: int, state: AnyTree = None, device: Device = None
) -> LibraryPolicy:  # fmt: skip
    """Return a `LibraryPolicy` that calls a policy in its library. For the arguments, see `LibraryPolicy`."""
    policy_class = ModulePolicy if is_module(policy) else LibraryPolicy
    if backend.name == "jax":
        from .jax_policy import JaxPolicy

        policy_class = JaxPolicy
    return policy_class(policy, backend, seed_prefix, count, state, device)


def seed_of_key(key: Any) -> int:
    """Return an integer seed from an integer or a JAX key."""
    if isinstance(key, numbers.Integral):
        return count_of("key", key, "an integer of 0 or more, or a key of JAX", 0)
    import jax

    from arrayferry_envs._engine.random_keys import checked_key

    return int(jax.random.bits(checked_key(key), dtype="uint32") >> 1)


class Stepping:
    """Steps environments with a policy.

    Args:
        run: the arguments of the user, with an environment of any kind.
        library: the library of the policy, or None for the library of the observations.
        mode: the autoreset mode, used only for a `FunctionalEnv`.
        render_mode: the render mode, used only for a `FunctionalEnv`.

    Attributes:
        envs: the vector environment. A single environment is a batch of one.
        episodes: an `Episodes`, which tracks the episodes of `envs`.

    Raises:
        TypeError: `run.env` is not an environment.
        arrayferry.OptionError: an option is invalid.
    """

    envs: VectorEnv[Any, Any, Any]

    def __init__(
        self, run: Run, library: af.Backend | None, mode: AutoresetMode, render_mode: str | None = None
    ) -> None:  # fmt: skip
        self._seed = seed_of_key(run.key)
        self._library = library
        device = _device(library, run.policy, run.policy_params)
        if is_module(run.policy):  # copied, since eval() and load() change the module
            run = dataclasses.replace(run, policy=_copied(run).eval())
        self._run, self._anew = run, False
        if isinstance(run.env, (Env, VectorEnv)):
            self.envs = _ordinary(run)
        else:
            self.envs = _served(run, library, device, mode, render_mode)
            self._anew = run.wrapper_state is None
        self.episodes = Episodes(self.envs)

    def __iter__(self) -> Generator[Step | None, None, None]:
        """Yield None after each reset and a `Step` after each step, without end.

        Flags and rewards are NumPy arrays; rewards are float64.
        """
        envs, episodes = self.envs, self.episodes
        # statistics of wrappers are updated only if they begin anew, as in compiled code
        with contextlib.nullcontext() if self._anew else frozen(envs):
            observation, _ = checked_reset(envs, envs.reset(seed=self._seed))
            episodes.begin()
            obs_library = af.first_array(observation)[1] or af.registry.backend("numpy")
            # a single environment is converted to NumPy, but its policy gets its own library
            single: Any = envs.envs[0] if isinstance(envs, _BatchOfOne) else None
            env_library = obs_library if single is None else single.env_backend
            policy = self._made(env_library, observation)
            # with a policy state, observations are copied, since the state may contain observations
            # that the next step would overwrite
            copies_obs = None if self._run.policy_state is None else True
            adapter = _LeftOpen(envs, obs_library, obs_library, convert_info=False, copy=copies_obs)
            began, index = np.ones(envs.num_envs, np.bool_), 0
            yield None
            while True:
                action = self._acted(policy, observation, began, index)
                try:
                    observation, *results, _ = adapter.step(action)
                except af.ConversionError as error:
                    if is_module(self._run.policy) and isinstance(action, tuple):
                        error.remedy = "Let forward() of the module return actions alone."
                    raise
                step, index = episodes.step((observation, *TO_HOST(results), {})), index + 1
                reward = as_rewards(step.reward, envs.num_envs).astype(np.float64)
                yield step._replace(reward=reward)
                masks = episodes.masks
                began = np.zeros_like(began) if masks.reset is None else masks.reset
                if not episodes.rule.by_itself and masks.done.any():
                    began = masks.done
                    observation, _ = adapter.reset(options={"reset_mask": began})
                    episodes.begin(began)
                    yield None

    def _made(self, env_library: af.Backend, observation: AnyTree) -> LibraryPolicy:
        """Return the `LibraryPolicy` with loaded parameters. The default library is that of the environment."""
        run, library, n = self._run, self._library or env_library, self.envs.num_envs
        device = _device(library, run.policy, run.policy_params, observation)
        policy = make_policy(run.policy, library, (self._seed,), n, run.policy_state, device)
        policy.load(run.policy_params)
        policy.begin(0)
        return policy

    def _acted(
        self, policy: LibraryPolicy, observation: AnyTree, began: AnyArray, number: int
    ) -> Any:
        try:
            return policy(observation, began, number)[0]
        except Exception as error:
            if not any("policy_xp=" in note for note in getattr(error, "__notes__", ())):
                # if `given` cannot convert the observations, the error gets no note
                with contextlib.suppress(Exception):
                    note = f"The policy raised this error in step {number} of {self._run.what}, which passes {policy.given(observation)}."
                    if not is_module(self._run.policy):
                        note += " For a policy of another library, pass policy_xp=."
                    error.add_note(note)
            raise


def _copied(run: Run) -> Any:
    """Return a copy of a policy that is a module.

    Raises:
        arrayferry.OptionError: the module cannot be copied.
    """
    try:
        return copy.deepcopy(run.policy)
    except Exception as error:
        raise af.OptionError(
            f"{run.what} uses a copy of the module, but copying it raised {type(error).__name__}: {error}",
            remedy="Detach its tensors and remove open files, or pass a function with policy_xp='torch'.",
        ) from error


def _device(library: af.Backend | None, policy: Any, *others: Any) -> Any:
    """Return the device of a policy's weights or, without weights, of the first array in `others`.

    None means the default device of the library.
    """
    if library is None or library.name in ("jax", "numpy"):
        return None
    for arrays in (list(policy.parameters()) if is_module(policy) else None, *others):
        array, backend = af.first_array(arrays)
        if array is not None and backend is library:
            return library.device_of(array)
    return None


class _LeftOpen(arrayferry_gym.vector.ArrayConversion[Any, Any, Any]):
    """An adapter that leaves the user's environments open when the adapter is deleted."""

    def __del__(self) -> None:
        pass


class _BatchOfOne(EnvBatch):
    """A batch of one that leaves the user's environment open when the batch is deleted."""

    def __del__(self) -> None:
        pass


def _checked(what: str, env: Any) -> FunctionalEnv:
    """Return `env` or, for a class, an instance of it.

    Raises:
        TypeError: `env` is not a `FunctionalEnv`.
    """
    if is_functional(env):
        return checked_env(env)
    refuse_batch(what, env)
    advice = "Pass a FunctionalEnv, or an environment from gymnasium.make or make_vec"
    if isinstance(env, str):
        advice = f"Write gymnasium.make_vec({env!r}, num_envs=8)"
    raise TypeError(f"{what} was given {env!r:.80}. {advice}.")


def _ordinary(run: Run) -> VectorEnv[Any, Any, Any]:
    """Return an environment of Gymnasium as a vector environment. Refuse options that need a `FunctionalEnv`."""
    env = run.env
    refuse_batch(run.what, env)
    n = env.num_envs if isinstance(env, VectorEnv) else 1
    for name in ("num_envs", "env_params", "max_episode_steps", "wrapper_state", "sharding"):
        option = getattr(run, name)
        if option is not getattr(Run, name) and (name != "num_envs" or option != n):
            raise af.OptionError(
                f"{name}={option!r:.80} was passed, but this option is for a FunctionalEnv, and env is {env!r:.80}",
                remedy="Leave out this option.",
            )
    if isinstance(env, VectorEnv):
        return env
    adapted: Any = arrayferry_gym.ArrayConversion(env, target_xp="numpy")
    # a copy, since older versions of Gymnasium change it
    adapted.metadata = dict(env.metadata or {})
    return _BatchOfOne([adapted], True, AutoresetMode.DISABLED)


def _served(
    run: Run, library: af.Backend | None, device: Device, mode: AutoresetMode, render_mode: Any
) -> Any:  # fmt: skip
    """Return the vector environment of a `FunctionalEnv`, in the library of the policy."""
    env: Any = _checked(run.what, run.env)
    assert library is not None
    wrapped.warn_if_fresh(env, run.wrapper_state)
    wrapped.check_wrapped(env, run.wrapper_state)
    envs = env.make_vec(
        count_of("num_envs", run.num_envs), xp=library, autoreset_mode=mode, params=run.env_params,
        # in JAX, a sharding replaces the device
        device=device if run.sharding is None else run.sharding,
        max_episode_steps=run.max_episode_steps, render_mode=render_mode,
    )  # fmt: skip
    if run.wrapper_state is not None:
        envs.load_state_dict(env._numbers(run.wrapper_state))
    return envs


def _wrappers(env: Any) -> Iterator[Any]:
    """Yield an environment, and all environments inside it that are in this process."""
    yield env
    if isinstance(env, (Wrapper, VectorWrapper)):
        yield from _wrappers(env.env)
    elif isinstance(env, SyncVectorEnv):
        for inner_env in env.envs:
            yield from _wrappers(inner_env)


@contextlib.contextmanager
def frozen(env: Any) -> Iterator[None]:
    """In a block, wrappers do not update statistics. Warn of empty statistics, and of wrappers in other processes."""
    frozen_objects = []
    try:
        for wrapper in _wrappers(env):
            is_async = isinstance(wrapper, AsyncVectorEnv)
            if is_async and any(wrapper.call("has_wrapper_attr", "update_running_mean")):
                warnings.warn(
                    f"{wrapper!r:.80} has wrappers in other processes, where their statistics are still updated. Put the "
                    "wrappers around the vector environment, or set their update_running_mean to False",
                    stacklevel=caller_level(),
                )
            if getattr(getattr(wrapper, "obs_rms", None), "count", 1) < 1:
                warnings.warn(
                    f"{wrapper!r:.80} has new statistics, which this call does not update. Load trained statistics with load_state_dict",
                    stacklevel=caller_level(),
                )
            # only kernels of this wrapper, since `_wrappers` also yields environments inside it
            for owner in HasKernels.held_by(wrapper) or [wrapper]:
                if hasattr(type(owner), "update_running_mean") and owner.update_running_mean:
                    owner.update_running_mean = False
                    frozen_objects.append(owner)
        yield
    finally:
        for wrapper in frozen_objects:
            wrapper.update_running_mean = True
