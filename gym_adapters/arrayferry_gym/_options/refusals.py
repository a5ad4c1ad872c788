"""Errors for wrong options, wrong environments, and adapters that do not exist."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any

import numpy as np
from gymnasium import Env, Space, Wrapper
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._spaces.trees import batch_shapes, shapes, shapes_of

_MEANT = {
    "to": "target_xp", "target": "target_xp", "xp": "target_xp", "agent_xp": "target_xp",
    "backend": "target_xp", "device": "target_device", "source": "env_xp", "source_xp": "env_xp",
    "dtype": "reward_dtype",
}  # fmt: skip
"""For names of options that users may write by mistake, the options that they probably mean."""


def refuse_unknown(others: dict[str, Any], base: type, cls: Any) -> None:
    """Refuse options that an adapter does not have. The error names the option that the user probably meant."""
    for name in others:
        fixed = cls.fixed_options
        parameters = (arg for each in (base, cls) for arg in inspect.signature(each).parameters)
        options = [x for x in dict.fromkeys(parameters) if x not in {"env", "options", *fixed}]
        close_matches = difflib.get_close_matches(name, [*options, *fixed], 1, cutoff=0.7)
        meant = _MEANT.get(name) or (close_matches[0] if close_matches else None)
        if meant == "target_device" and meant in fixed:
            meant = "device"
        if meant in options:
            remedy = f"Write {meant}=..."
        elif meant in fixed:
            remedy = f"Its libraries are in its name: write ArrayConversion(env, {meant}=...) for others."
        else:
            remedy = f"The options are {', '.join(options)}."
        raise af.OptionError(f"{cls.__name__} has no option {name!r}", remedy=remedy)


def check_env(cls: type, env: Any) -> None:
    """Check the environment of an adapter.

    Raises:
        TypeError: `env` is not the vector environment or the single environment that the class `cls` requires. The
            wrappers of Gymnasium raise a TypeError too.
    """
    needs_vector = issubclass(cls, VectorEnv)
    name = cls.__name__
    refuse_batch(name, env)
    if isinstance(env, VectorEnv if needs_vector else Env):
        return
    if isinstance(env, (Env, VectorEnv)):
        wanted_text, other_adapter = "a vector environment", f"arrayferry_gym.{name}"
        if not needs_vector:
            wanted_text, other_adapter = "a single environment", f"arrayferry_gym.vector.{name}"
        remedy = f"Use {other_adapter} for this one"
        if needs_vector and (num_envs_inside(env) or 1) > 1:
            remedy += " if it is a single environment. A batch of several, as in Isaac Lab, needs arrayferry_gym.from_simulator"
    elif (advice := _of_another_project(env)) is not None:
        wanted_text, remedy = "an environment of Gymnasium", advice
    elif isinstance(env, str):
        wanted_text, remedy = "an environment", f"Write {name}(gymnasium.make({env!r}))"
    elif callable(env):
        wanted_text, remedy = "an environment", "If it makes environments, call it first"
    else:
        wanted_text, remedy = "an environment", "Pass what gymnasium.make returns"
    raise TypeError(f"{name} takes {wanted_text}, but got {env!r:.80}. {remedy}.")


def refuse_batch(name: str, env: Any) -> None:
    """Refuse a batch of environments that is not a `VectorEnv`, such as a simulator.

    Args:
        name: the adapter, bridge or function that received the environment.
        env: an environment, or any other object.

    Raises:
        TypeError: `env` is a batch of environments, but not a `VectorEnv`.
    """
    if _is_batch(env):
        raise _batch_error(name, env)


def refuse_other(name: str, env: Any, kind: type, module: str) -> None:
    """Refuse a single environment in a vector wrapper, or a vector environment in a wrapper for single environments.

    Args:
        name: the name of the wrapper.
        env: the environment.
        kind: the class of environments to refuse: `Env` or `VectorEnv`.
        module: the module of the right wrapper, for the error.

    Raises:
        TypeError: `env` is an instance of `kind`.
    """
    if isinstance(env, kind):
        env_text = "a vector environment" if kind is VectorEnv else "a single environment"
        raise TypeError(
            f"{name} was given {env!r:.80}, which is {env_text}. Import the wrapper for it from {module}."
        )


def _batch_error(name: str, env: Any) -> TypeError:
    return TypeError(
        f"{name} was given {env!r:.80}, which is a batch of {num_envs_inside(env)} environments, as in Isaac Lab and "
        "ManiSkill, but not a VectorEnv of Gymnasium. arrayferry_gym.from_simulator(env) makes a VectorEnv for a bridge or an "
        "adapter of arrayferry_gym.vector."
    )


def num_envs_inside(env: Any) -> int | None:
    """Return the `num_envs` of an environment, or of an environment inside its wrappers.

    The result is None for a `VectorEnv`, and if no environment has `num_envs`.
    """
    holder = _holder(env)
    return None if holder is None else int(holder.num_envs)


def _holder(env: Any) -> Any:
    """Return the outermost wrapper or environment that has `num_envs`, or None if none has it."""
    while env is not None and not isinstance(env, VectorEnv):
        try:
            num_envs = env.num_envs
        except Exception:  # `num_envs` may be a property that raises any error
            num_envs = None
        if isinstance(num_envs, (int, np.integer)) and num_envs is not True and num_envs > 0:
            return env
        env = env.env if isinstance(env, Wrapper) else None
    return None


def _is_batch(env: Any) -> bool:
    """Tell whether an environment is a batch but not a `VectorEnv`, by its `num_envs` and its spaces."""
    holder = _holder(env)
    if holder is None:
        return False
    count = int(holder.num_envs)
    if not isinstance(env, Env):  # known projects are refused elsewhere, with their own remedy
        return _of_another_project(env) is None and callable(getattr(env, "step", None))
    observation_space = env.observation_space
    if not isinstance(observation_space, Space) or not all(
        shape[:1] == (count,) for shape in shapes(observation_space) if shape
    ):
        return False
    # check both spaces, since the `observation_space` of some simulators has only one group
    for name in ("observation_space", "action_space"):
        single_space, outside = getattr(holder, f"single_{name}", None), getattr(env, name)
        if isinstance(single_space, Space) and isinstance(outside, Space):
            one, inside = shapes(single_space), shapes(getattr(holder, name))
            if inside == [x if x is None else (count, *x) for x in one] and shapes(outside) != one:
                return True
    return False


def check_observation(name: str, env: Any, observation: AnyTree) -> None:
    """Check that an observation has no axis for several environments.

    Raises:
        TypeError: the observation is a batch with a row for each of the `num_envs` environments inside.
    """
    count: Any = num_envs_inside(env)
    space = env.observation_space
    if isinstance(space, Space) and shapes_of(space, observation) == batch_shapes(space, count):
        raise _batch_error(name, env)


def check_flags(name: str, env: Any, flags: AnyArray) -> None:
    """Check that the flag terminated or truncated has no axis for several environments.

    Raises:
        TypeError: `flags` has a flag for each of the `num_envs` environments inside.
    """
    if tuple(getattr(flags, "shape", ())) == (num_envs_inside(env),):
        raise _batch_error(name, env)


_ELSEWHERE = {
    "stable_baselines3": "A VecEnv is for the algorithms of Stable-Baselines3, which use NumPy. Wrap each environment "
    "before it is made: make_vec_env(..., wrapper_class=...), or use gymnasium.make_vec",
    "pettingzoo": "An environment of PettingZoo has several agents: use ParallelConversion or AECConversion of "
    "arrayferry_gym.pettingzoo",
    "torchrl": "TorchRL converts by itself. Put the adapter around the Gymnasium environment inside: GymWrapper(adapter)",
    "dm_env": "Convert it to a Gymnasium environment with Shimmy",
    "dm_control": "Convert it to a Gymnasium environment with Shimmy",
    **dict.fromkeys(
        ("gymnax", "brax", "craftax", "jumanji", "kinetix", "mujoco_playground", "navix", "pgx"),
        "It consists of functions of JAX. For an agent of any library write arrayferry_envs.from_env(env).make(xp=...), "
        "or make_vec for several environments",
    ),
    "gym": "It belongs to the old package gym: use gymnasium.make('GymV26Environment-v0', env=env) with Shimmy",
}
"""The remedies for environments of other packages than Gymnasium, by the name of the package."""


def _of_another_project(env: Any) -> str | None:
    """Return the remedy in `_ELSEWHERE` for an environment of another project, or None if `_ELSEWHERE` has none."""
    packages = (cls.__module__.partition(".")[0] for cls in type(env).__mro__)
    return next((_ELSEWHERE[package] for package in packages if package in _ELSEWHERE), None)


def missing_adapter(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, such as `NumpyToJax`."""
    message = f"module {module!r} has no attribute {name!r}"
    match = re.fullmatch("([A-Z][a-z]+)To([A-Z][a-z]+)", name)
    if match is not None:
        source, target = match[1].lower(), match[2].lower()
        message += f". Write ArrayConversion(env, env_xp={source!r}, target_xp={target!r})"
    return AttributeError(message, name=name)


MOVED = {
    "distributed": "arrayferry_cluster",
    "evaluate": "arrayferry_envs.evaluate",
    "functional": "arrayferry_envs",
    "record": "arrayferry_envs.record",
    "testing": "arrayferry_audit",
}
"""Names that users may look for in arrayferry_gym, and the packages or functions that replace them."""


def moved(name: str) -> ImportError:
    """Return the error for a name in `MOVED`."""
    package, _, attribute = MOVED[name].partition(".")
    line = f"from {package} import {attribute or '...'}"
    return ImportError(f"arrayferry_gym.{name} is {MOVED[name]}. Write: {line}", name=package)


def refuse_fixed(cls: Any, options: dict[str, Any]) -> None:
    """Refuse options that an adapter sets itself, such as `env_xp` and `target_xp` of `JaxToTorch`."""
    for name in cls.fixed_options:
        if name in options:
            raise af.OptionError(
                f"{cls.__name__} takes no {name}, since its libraries are in its name",
                remedy="Write device=..., as in Gymnasium."
                if name == "target_device"
                else f"Write ArrayConversion(env, {name}=...) for other libraries.",
            )
