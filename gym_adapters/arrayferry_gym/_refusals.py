"""Errors for mistakes: wrong options, wrong environments, and adapters that do not exist."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any

from gymnasium import Env
from gymnasium.vector import VectorEnv

import arrayferry as af

__all__ = [
    "check_env",
    "missing_adapter",
    "missing_package",
    "refuse_contradictions",
    "refuse_unknown",
]

_MEANT = {
    "to": "target_xp", "target": "target_xp", "xp": "target_xp", "agent_xp": "target_xp",
    "backend": "target_xp", "device": "target_device", "source": "env_xp", "source_xp": "env_xp",
    "dtype": "reward_dtype",
}  # fmt: skip
"""Names that users write by mistake, and the options that they mean."""


def missing_package(module: str, package: str, error: ImportError) -> af.BackendUnavailableError:
    """Return the error for a module that needs a package which cannot be imported.

    Args:
        module: the module, such as "arrayferry_gym.sb3".
        package: the argument of `pip install`.
        error: why it cannot.
    """
    return af.BackendUnavailableError(
        f"{module} needs {package}, which cannot be imported ({error})",
        remedy=f"Run: pip install {package}",
        backend=package,
    )


def refuse_unknown(others: dict[str, Any], base: type, cls: type) -> None:
    """Refuse options that an adapter does not have, and say which one was probably meant."""
    for name in others:
        own = [*inspect.signature(cls).parameters]
        fixed = _fixed(cls)
        options = [
            option
            for option in dict.fromkeys([*inspect.signature(base).parameters, *own])
            if option not in {"env", "others", "options", *fixed}
        ]
        near = difflib.get_close_matches(name, [*options, *fixed], 1, cutoff=0.7)
        meant = _MEANT.get(name) or (near[0] if near else None)
        meant = {"target_device": "device"}.get(str(meant), meant) if "device" in own else meant
        if meant in options:
            remedy = f"Write {meant}=..."
        elif meant in fixed:
            remedy = f"Its libraries are in its name: write ArrayConversion(env, {meant}=...) for others."
        else:
            remedy = f"The options are {', '.join(options)}."
        raise af.OptionError(f"{cls.__name__} has no option {name!r}", remedy=remedy)


def _fixed(cls: Any) -> tuple[str, ...]:
    """Return the options that an adapter with its libraries in its name sets itself."""
    if not cls.libraries_in_name:
        return ()
    device = ("target_device",) if "device" in inspect.signature(cls).parameters else ()
    return ("env_xp", "target_xp", "like", *device)


def check_env(cls: type, env: Any) -> None:
    """Check that an adapter is given an environment of its kind.

    Raises:
        TypeError: it is not. Gymnasium's own wrappers raise the same.
    """
    vectorised = issubclass(cls, VectorEnv)
    if isinstance(env, VectorEnv if vectorised else Env):
        return
    name = cls.__name__
    if isinstance(env, (Env, VectorEnv)):
        wanted, other = "a vector environment", f"arrayferry_gym.{name}"
        if not vectorised:
            wanted, other = "a single environment", f"arrayferry_gym.vector.{name}"
        remedy = f"Use {other} for this one"
    elif (known := _of_another_project(env)) is not None:
        wanted, remedy = "an environment of Gymnasium", known
    elif isinstance(env, str):
        wanted, remedy = "an environment", f"Write {name}(gymnasium.make({env!r}))"
    elif callable(env):
        wanted, remedy = "an environment", "If it makes environments, call it first"
    else:
        wanted, remedy = "an environment", "Pass what gymnasium.make returns"
    raise TypeError(f"{name} takes {wanted}, but got {env!r:.80}. {remedy}.")


_ELSEWHERE = {
    "stable_baselines3": "A VecEnv is for the algorithms of Stable-Baselines3, which use NumPy. Wrap each environment "
    "before it is made: make_vec_env(..., wrapper_class=...), or use gymnasium.make_vec",
    "pettingzoo": "An environment of PettingZoo has several agents: use ParallelConversion or AECConversion of "
    "arrayferry_gym.pettingzoo",
    "gymnax": "Wrap it with gymnax.wrappers.GymnaxToGymWrapper, or GymnaxToVectorGymWrapper for several environments",
    "brax": "It has states of its own: write a gymnasium.Env around its jitted reset and step",
    "torchrl": "TorchRL converts by itself. Put the adapter around the Gymnasium environment inside: GymWrapper(adapter)",
    "dm_env": "Make a Gymnasium environment of it with Shimmy",
    "dm_control": "Make a Gymnasium environment of it with Shimmy",
    "gym": "It belongs to the old package gym: use gymnasium.make('GymV26Environment-v0', env=env) with Shimmy",
}
"""What to do with environments that are not Gymnasium's, by the package that their classes come from."""


def _of_another_project(env: Any) -> str | None:
    """Return what to do with an environment of another project, None if the project is not known."""
    for cls in type(env).__mro__:
        remedy = _ELSEWHERE.get(cls.__module__.partition(".")[0])
        if remedy is not None:
            return remedy
    return None


def missing_adapter(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, such as `NumpyToJax`."""
    text = f"module {module!r} has no attribute {name!r}"
    match = re.fullmatch("([A-Z][a-z]+)To([A-Z][a-z]+)", name)
    if match is not None:
        source, target = match[1].lower(), match[2].lower()
        text += f". Write ArrayConversion(env, env_xp={source!r}, target_xp={target!r})"
    return AttributeError(text, name=name)


def refuse_contradictions(cls: type, options: dict[str, Any]) -> None:
    """Refuse options that an adapter with two libraries in its name sets itself."""
    for name in _fixed(cls):
        if name in options:
            raise af.OptionError(
                f"{cls.__name__} takes no {name}, since its libraries are in its name",
                remedy="Write device=..., as in Gymnasium."
                if name == "target_device"
                else f"Write ArrayConversion(env, {name}=...) for other libraries.",
            )
