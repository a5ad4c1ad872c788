"""Policies of any library: checks of their arguments and results."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import arrayferry as af
from arrayferry._utilities.options import UNSET
from arrayferry.typing import AnyTree

Policy = Callable[..., tuple[Any, ...]]
"""`policy(params, observation, key) -> action, extras`. With a state: `policy(..., state) -> action, extras, state`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The arguments that `rollout`, `evaluate` and `record` have in common, as the user passed them.

    Attributes:
        what: the name of the function that the user called, for errors.
    """

    what: str
    env: Any
    policy: Any
    policy_params: Any
    key: Any
    num_envs: Any = None
    env_params: Any = None
    max_episode_steps: Any = UNSET
    policy_state: Any = None
    wrapper_state: Any = None
    sharding: Any = None


def check_policy(policy: Any) -> None:
    """Check that a policy can be called.

    Raises:
        arrayferry.OptionError: the policy cannot be called.
    """
    if not callable(policy):
        remedy = "Pass policy(policy_params, observation, key) -> (action, extras), or a module of PyTorch."
        if hasattr(policy, "predict"):  # the policy is probably a model of Stable-Baselines3
            remedy = "Pass lambda params, observation, key: (model.predict(observation, deterministic=True)[0], None)."
        raise af.OptionError(f"policy={policy!r:.80} cannot be called", remedy=remedy)


def check_arguments(what: str, policy: Any, state: AnyTree) -> None:
    """Check that a policy accepts its arguments. A function without a signature is not checked.

    Raises:
        arrayferry.OptionError: the policy does not accept the arguments, or is a class.
    """
    arg_names = "policy_params", "observation", "key", *(() if state is None else ("policy_state",))
    if not isinstance(policy, type):
        try:
            signature = inspect.signature(policy, follow_wrapped=False)
        except (TypeError, ValueError):  # a builtin may have no signature
            return
        with contextlib.suppress(TypeError):
            signature.bind(*arg_names)
            return
    name = getattr(getattr(policy, "func", policy), "__qualname__", None) or f"{policy!r:.80}"
    raise af.OptionError(
        f"{what} calls policy({', '.join(arg_names)}), but {name} does not accept these arguments",
        remedy="For a PyTorch agent, pass the module itself. A function must accept these arguments and return "
        f"({', '.join(('action', 'extras', *arg_names[3:]))}).",
    )


def policy_rows(state: AnyTree, count: int) -> tuple[list[Any], Any]:
    """Return the arrays and the layout of a policy's state, which must have one row for each environment.

    Raises:
        arrayferry.OptionError: an array does not have one row for each environment.
    """
    arrays, layout = af.flatten(state)
    for path, x in zip(layout.paths, arrays, strict=True):
        if tuple(x.shape[:1]) != (count,):
            raise af.OptionError(
                f"policy_state{path} has the shape {tuple(x.shape)}, but its first axis must have the length {count}",
                remedy=f"Pass arrays of shape ({count}, ...), one row for each environment.",
            )
    return arrays, layout


def checked_results(result: AnyTree, *names: str) -> tuple[Any, ...]:
    """Check that the result of a policy is a tuple with a value for each name, and return it.

    Raises:
        arrayferry.OptionError: the result is not a tuple, or has another number of values.
    """
    if isinstance(result, tuple) and len(result) == len(names):
        return result
    returned = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
    raise af.OptionError(
        f"the policy returned {returned}, not an {', '.join(names[:-1])} and {names[-1]}",
        remedy=f"Return ({', '.join(names)}){'; extras may be None' * ('extras' in names)}.",
    )
