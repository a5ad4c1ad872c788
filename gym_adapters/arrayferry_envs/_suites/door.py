"""`make`, `make_vec` and `make_functional`: make any environment of any suite by its id."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, VectorEnv

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.options import UNSET, count_of, limit_of
from arrayferry.typing import Device, Target
from arrayferry_envs._around.seeded import checked_seeds, with_seeds
from arrayferry_envs._contract.errors import usable
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_envs._policies.batch import RewardedBatch
from arrayferry_envs._served.saved import ENDING, SavedVectorEnv
from arrayferry_envs._served.single import FunctionalSingleEnv
from arrayferry_gym.extending import autoreset_mode_of

from .around import OneEnv, around, with_levels
from .ids import EnvId, all_suites, find_id, named_suite

BATCH = ("num_envs", "autoreset_mode")
"""The options of `make_vec` that `make` does not have."""
OURS = ("xp", "device", "autoreset_mode", "max_episode_steps")
"""The options of `make_vec` that `make_functional` does not have."""
SERVED = inspect.signature(FunctionalSingleEnv).parameters.keys() - {"env", "xp", "device"}
"""The options of `FunctionalEnv.make`, which suites of functional environments do not receive."""


def suites(name: str | None = None) -> Any:
    """Return the suites of environments that plugins provide, or the ids of one suite.

    Args:
        name: the suite whose ids are returned. Its package is imported. With None, nothing is imported.

    Returns:
        Without a name, a dict from names to `Suite` objects, which have `version` (None if not installed) and
        `install_line`. With a name, a sorted list of the ids for `make_vec` that the suite can list.

    Raises:
        arrayferry_envs.UnknownEnvError: there is no such suite.
        arrayferry.BackendUnavailableError: the suite's package is not installed.

    Examples:
        >>> from arrayferry_envs import suites
        >>> "pgx" in suites()
        True
        >>> "gymnasium/CartPole-v1" in suites("gymnasium")
        True
    """
    if name is None:
        return all_suites()
    suite = named_suite(name, name)
    return [f"{name}/{env_name}" for env_name in sorted(suite.listed())]


def make_functional(
    env_id: str, *, seeds: Iterable[int] | None = None, **options: Any
) -> FunctionalEnv:
    """Make a functional environment of a suite, for `rollout`, `evaluate`, `wrap`, `export` and so on.

    Args:
        env_id: the suite, a slash, and the environment's name: "gymnax/Breakout-MinAtar".
        seeds: the seeds of levels, as for `with_seeds`, or None for an environment without levels.
        **options: options of the suite.

    Raises:
        arrayferry_envs.UnknownEnvError: there is no such suite or environment.
        arrayferry.BackendUnavailableError: the package of the suite is not installed.
        arrayferry.OptionError: the suite has no functional environments, or does not accept an option.

    Examples:
        >>> from arrayferry_envs import make_functional
        >>> make_functional("arrayferry/CartPole-v0")
        <CartPole>
    """
    remedy = "Pass it to make_vec, or to make_vec() of the environment. rollout also accepts max_episode_steps."
    _refuse(f"make_functional({env_id!r})", OURS, options, remedy)
    return _functional(find_id(env_id), seeds, options)


def _functional(entry: EnvId, seeds: Any, options: dict[str, Any]) -> FunctionalEnv:
    env = entry.load(**options)
    if not isinstance(env, FunctionalEnv):
        if entry.suite.gives == "functional":
            raise af.PluginError(
                f"load of {entry.suite!r} returned a {type(env).__name__} for {entry.name!r}, which is not a FunctionalEnv",
                remedy='Let load return self.adapt(env), or set `gives` to "env" or "vector".',
            )
        raise af.OptionError(
            f"{entry.text} is not a functional environment, but a {type(env).__name__}",
            remedy="Use make or make_vec.",
        )
    return env if seeds is None else with_seeds(env, seeds)


@uncompiled
def make_vec(
    env_id: str,
    num_envs: int = 1,
    *,
    xp: Target = "numpy",
    device: Device = None,
    autoreset_mode: AutoresetMode | str | None = None,
    max_episode_steps: Any = UNSET,
    seeds: Iterable[int] | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Make a vector environment of any suite, for agents of any library.

    Functional environments are served as by `FunctionalEnv.make_vec`. Single environments of Gymnasium are combined in
    a `SyncVectorEnv`. This batch, or the vector environment of a suite, is converted by
    `arrayferry_gym.vector.ArrayConversion`. In SAME_STEP mode, the infos of each step contain "final_obs", the batch of
    observations before environments are reset.

    Args:
        env_id: the suite, a slash, and the environment's name: "gymnax/Breakout-MinAtar", "gymnasium/ALE/Pong-v5". Or
            the path, ending in ".afp", of a file that `FunctionalVectorEnv.save` wrote.
        num_envs: the number of environments.
        xp: the library of observations, rewards and actions, as a name ("torch") or namespace.
        device: the device of the arrays, or None for the library's default.
        autoreset_mode: when environments are reset after an episode. None means NEXT_STEP or, for a file, the
            saved mode.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        seeds: integers from 0 to 2**31 - 1 that identify levels, such as `range(1000)`. Each reset chooses a level, and
            `reset(seed=)` seeds the choice. The first state of a level is the same in any row of any batch. Infos
            contain "seed", the seeds of the current episodes. For functional environments, `with_seeds` makes the
            levels; an `Env` of Gymnasium is reset with the seed. With None, there are no levels, and `reset(seed=)`
            seeds the environments.
        **options: `check_actions`, `render_mode` and options of the suite. Functional environments also have the
            options `params`, `differentiable` and `translate`.

    Raises:
        arrayferry_envs.UnknownEnvError: there is no such suite or environment. The message has the nearest name.
        arrayferry.BackendUnavailableError: a package is not installed. The message has the command that installs it.
        arrayferry.OptionError: an option is invalid, or the suite or the file does not support an option.
        FileNotFoundError: the file does not exist.
        arrayferry_translate.ProgramError: the file contains no environments, or is damaged.

    Examples:
        >>> from arrayferry_envs import make_vec
        >>> envs = make_vec("gymnasium/CartPole-v1", 2, xp="torch", autoreset_mode="SameStep")
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape
        torch.Size([2, 4])
    """
    count = count_of("num_envs", num_envs)
    mode = None if autoreset_mode is None else autoreset_mode_of(autoreset_mode)
    return _served(env_id, count, xp, device, mode, max_episode_steps, seeds, options)  # type: ignore[no-any-return]


@uncompiled
def make(
    env_id: str,
    *,
    xp: Target = "numpy",
    device: Device = None,
    max_episode_steps: Any = UNSET,
    seeds: Iterable[int] | None = None,
    **options: Any,
) -> gym.Env[Any, Any]:
    """Make a single environment of any suite, for agents of any library.

    If the suite has only vector environments, the result contains a batch of one.

    Args:
        env_id: as for `make_vec`.
        xp: as for `make_vec`.
        device: as for `make_vec`.
        max_episode_steps: as for `make_vec`.
        seeds: as for `make_vec`.
        **options: as for `make_vec`.

    Raises:
        arrayferry_envs.UnknownEnvError: as for `make_vec`.
        arrayferry.BackendUnavailableError: as for `make_vec`.
        arrayferry.OptionError: as for `make_vec`.

    Examples:
        >>> from arrayferry_envs import make
        >>> env = make("gymnasium/CartPole-v1", xp="jax")
        >>> observation, info = env.reset(seed=1)
        >>> observation.shape
        (4,)
    """
    return _served(env_id, None, xp, device, None, max_episode_steps, seeds, options)  # type: ignore[no-any-return]


def _refuse(call: str, names: Iterable[str], options: dict[str, Any], remedy: str) -> None:
    for name in names:
        if name in options:
            raise af.OptionError(f"{call} has no option {name}", remedy=remedy)


def _served(
    env_id: str,
    count: int | None,
    xp: Target,
    device: Device,
    mode: AutoresetMode | None,
    max_episode_steps: Any,
    seeds: Iterable[int] | None,
    options: dict[str, Any],
) -> Any:
    """Make environments and serve them: a batch of `count`, or a single environment if `count` is None."""
    usable(af.registry.backend(xp))
    if max_episode_steps is not UNSET:
        options["max_episode_steps"] = limit_of(max_episode_steps, None)
    if count is not None and str(env_id).endswith(ENDING):
        options |= {} if mode is None else {"autoreset_mode": mode.value}
        options |= {} if seeds is None else {"seeds": seeds}
        return SavedVectorEnv(env_id, count, xp=xp, device=device, **options)
    chosen_mode: Any = AutoresetMode.NEXT_STEP if mode is None else mode
    entry = find_id(env_id)
    # a suite that gives "env" may have options with the names in BATCH
    if count is None and entry.suite.gives != "env":
        _refuse(f"make({env_id!r})", BATCH, options, "Use make_vec.")
    seeds = None if seeds is None else checked_seeds(seeds)
    if entry.suite.gives == "functional":
        serving_options = {name: options.pop(name) for name in SERVED if name in options}
        env = _functional(entry, seeds, options)
        make_env: Any = (
            env.make if count is None else partial(env.make_vec, count, autoreset_mode=chosen_mode)
        )
        envs = make_env(xp=xp, device=device, **serving_options)
    else:
        adapter_options = {
            name: options.pop(name) for name in ("check_actions",) if name in options
        }
        make_single = partial(with_levels, partial(entry.load, **options), seeds)
        if entry.suite.gives == "vector":
            if seeds is not None:
                raise af.OptionError(
                    f"seeds was passed, but the suite {entry.suite.name!r} resets its environments itself, so they "
                    "cannot have these seeds",
                    remedy="Leave out seeds, or use a suite with functional or single environments.",
                )
            envs = entry.load(count or 1, autoreset_mode=chosen_mode, **options)
            if (envs.metadata or {}).get("autoreset_mode") is not chosen_mode:
                raise af.PluginError(
                    f"load of {entry.suite!r} was called with the mode {chosen_mode.name}, but metadata['autoreset_mode'] of "
                    f"{envs!r:.80} is another mode, or is missing. Set it to the mode that load received"
                )
            envs = OneEnv(envs) if count is None else envs
        elif count is None:
            envs = make_single()
        else:
            autoreset_mode_of(chosen_mode, AutoresetMode, "batches of Gymnasium")
            envs = RewardedBatch([make_single] * count, autoreset_mode=chosen_mode)
        envs = around(envs, target_xp=xp, target_device=device, **adapter_options)
    envs.suite_id = env_id
    return envs
