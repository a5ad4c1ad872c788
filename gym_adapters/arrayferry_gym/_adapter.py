"""The common part of the adapters for single and for vector environments."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Env, Space, spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

import arrayferry as af

from ._actions import fit_array, fit_numpy, range_test
from ._libraries import Libraries, Target, device_text, dtype_name
from ._spaces import converted_space

__all__ = [
    "Adapter",
    "check_env",
    "converted_space_property",
    "missing_adapter",
    "refuse_contradictions",
    "refuse_unknown",
]


class Adapter(RecordConstructorArgs):
    """Holds the two libraries, converts actions, and converts spaces."""

    env: Any
    _libraries: Libraries
    _recorded = False
    _check_actions: bool
    _plain: frozenset[type]
    _settled: type | None
    _is_valid: Callable[[Any, Any], bool] | None
    _range: range
    _number: Any
    _dtype: Any
    _shape: Any

    def _setup(
        self,
        env: Any,
        env_xp: Target | None,
        target_xp: Target | None,
        env_device: Any,
        target_device: Any,
        *,
        check_actions: bool = False,
        recorded: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Set up the libraries, and record the arguments, along with those that are `recorded`."""
        self._check_actions = check_actions
        self._libraries = Libraries(
            env.metadata or {}, env_xp, target_xp, env_device, target_device, **options
        )
        self._converted: dict[str, Any] = {}
        self._forget_ways()
        like = options.pop("like", None)
        target = self._libraries.target_backend
        if like is not None and target is not None:
            target_xp, target_device = target, self._libraries.target_device
        self._set_metadata(env)
        self._record(
            env_xp=None if env_xp is None else af.registry.backend(env_xp).name,
            target_xp=None if target_xp is None else af.registry.backend(target_xp).name,
            env_device=env_device,
            target_device=target_device,
            check_actions=check_actions,
            **options,
            **(recorded or {}),
        )

    def _set_metadata(self, env: Any) -> None:
        """Set in the metadata whether the adapter returns JAX arrays, as `metadata["jax"]` means it."""
        target = self._libraries.target_backend
        before = bool((env.metadata or {}).get("jax", False))
        if target is not None and before != (target.name == "jax"):
            self.metadata = {**(env.metadata or {}), "jax": not before}

    def _record(self, **kwargs: Any) -> None:
        """Record the arguments of this wrapper for `spec`, as values that JSON can hold."""
        defaults: dict[str, Any] = {
            "narrowing": "checked",
            "scalars": "keep",
            "convert_info": True,
            "check_actions": False,
            "stack_final": False,
        }
        for name in ("env_device", "target_device", "device"):
            if name in kwargs:
                kwargs[name] = device_text(kwargs[name])
        if "reward_dtype" in kwargs:
            kwargs["reward_dtype"] = dtype_name(kwargs["reward_dtype"], None)
        if kwargs.get("info_xp") is not None:
            kwargs["info_xp"] = af.registry.backend(kwargs["info_xp"]).name
        if hasattr(self, "_saved_kwargs") and not self._recorded:
            return  # a subclass has recorded its own
        self._recorded = True
        kwargs.pop("like", None)
        self._saved_kwargs = {n: x for n, x in kwargs.items() if defaults.get(n) is not x}

    def __repr__(self) -> str:
        target = self.target_backend
        device = self._libraries.target_device
        sides = f"{self.env_backend.name} -> {'the library of the actions' if target is None else target.name}"
        if device is not None:
            sides += f", {device_text(device)}"
        return f"<{type(self).__name__}({sides}){self.env}>"

    @property
    def env_backend(self) -> af.Backend:
        """The library of the environment, as far as it is known now."""
        return self._libraries.env_backend

    @property
    def target_backend(self) -> af.Backend | None:
        """The library of the agent, None as long as it is not known."""
        return self._libraries.target_backend

    def _space(self, name: str) -> Any:
        """Return a space of the environment, converted. If the environment replaced it, convert it again."""
        original = getattr(self.env, name)
        found = self._converted.get(name)
        if found is None or found.original is not getattr(original, "original", original):
            if not isinstance(original, Space):
                return original
            found = self._converted[name] = converted_space(
                original, self._libraries, observed="observation" in name
            )
        return found

    def _act(self, action: Any) -> Any:
        """Convert an action to the form that the environment expects."""
        kind = type(action)
        try:
            if kind in self._plain:
                value = action if kind is int else action.item()
                if type(value) is int and value in self._range:
                    return self._number(value)
            elif kind is self._settled:
                converted = self._libraries.env(action)
                if (
                    converted.dtype == self._dtype
                    and converted.shape == self._shape
                    and (self._is_valid is None or self._is_valid(action, converted))
                ):
                    return converted
        except Exception:  # the fallback raises an error that explains it
            pass
        return self._act_fallback(action)

    def _act_fallback(self, action: Any) -> Any:
        """Convert and check an action completely, and find a quick way for the next of its type."""
        self._forget_ways()
        space = self.env.action_space
        try:
            converted = self._libraries.to_env(action)
            backend = self._libraries.env_backend
            if backend.name == "numpy":
                fitted = fit_numpy(converted, space, bounds=self._check_actions)
            else:
                self._check(action, space)
                fitted = fit_array(converted, space, backend)
        except af.ConversionError as error:
            if "action" not in error.reason:
                error.reason = f"an action for the space {space}: {error.reason}"
            raise
        if isinstance(space, spaces.Discrete) and backend.name == "numpy":
            if type(action) is int or _has_item(action):
                self._plain = frozenset((int, type(action)))
                self._range = range(int(space.start), int(space.start + space.n))
                self._number = space.dtype.type
        elif _has_item(action) and hasattr(fitted, "dtype"):
            self._settled = type(action)
            self._dtype, self._shape = fitted.dtype, fitted.shape
            self._is_valid = self._quick_check(action, space)
        return fitted

    def _check(self, action: Any, space: Space[Any]) -> None:
        """Check an action for an environment that is not in NumPy, unless it has no values yet."""
        try:
            values = af.convert(action, "numpy")
        except af.TracedValueError:
            return
        fit_numpy(values, space, bounds=self._check_actions)

    def _quick_check(self, action: Any, space: Space[Any]) -> Callable[[Any, Any], bool] | None:
        """Return a check of an action, as passed and as converted, beyond dtype and shape. None: no need."""
        numpy = self._libraries.env_backend.name == "numpy"

        def complete(given: Any, converted: Any) -> bool:
            if numpy:
                return fit_numpy(converted, space, bounds=self._check_actions) is converted
            self._check(given, space)
            return True

        if self._check_actions:
            return complete
        if numpy and isinstance(space, spaces.MultiDiscrete):
            in_range = range_test(space, np.dtype(space.dtype))
            return complete if in_range is None else lambda _, converted: in_range(converted)
        if numpy or not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            return None
        array, backend = af.first_array(action)
        if backend is None or backend.is_traced(array) or backend.device_of(array) != "cpu":
            return None  # it has no values, or reading them would wait for the GPU
        if isinstance(space, spaces.Discrete):
            valid = range(int(space.start), int(space.start + space.n))
            return lambda given, _: given.item() in valid
        to_numpy = af.converter("numpy")
        dtype = to_numpy(action).dtype
        test = range_test(space, dtype)
        if test is None:
            return complete
        return lambda given, _: (x := to_numpy(given)).dtype == dtype and test(x)

    def _forget_ways(self) -> None:
        self._plain = frozenset()
        self._settled = None
        self._is_valid = None

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert the options of a reset. What cannot be converted is kept."""
        self._forget_ways()  # the action space may be another one in the next episode
        self._libraries.observe_again()
        if not options:
            return options
        backend = self._libraries.env_backend
        converted: dict[str, Any] = af.convert(options, backend, unsupported="keep")
        return converted

    def _observe(self, observation: Any) -> None:
        """Detect the library of the environment from what it returned."""
        before = self._libraries.env_backend
        self._libraries.observe(observation)
        if self._libraries.env_backend is not before:
            self._forget_ways()


def converted_space_property(name: str) -> property:
    """Make the property for one of the spaces: the environment's, converted, unless another was set."""

    def get(self: Any) -> Any:
        own = getattr(self, f"_{name}")
        return self._space(name) if own is None else own

    def put(self: Any, space: Any) -> None:
        setattr(self, f"_{name}", space)

    return property(get, put, doc=f"The environment's {name}, for arrays of the agent's library.")


_MEANT = {
    "to": "target_xp", "target": "target_xp", "xp": "target_xp", "agent_xp": "target_xp",
    "backend": "target_xp", "device": "target_device", "source": "env_xp", "source_xp": "env_xp",
    "dtype": "reward_dtype",
}  # fmt: skip
"""Names that users write for options."""


def refuse_unknown(unknown: dict[str, Any], base: type, cls: type) -> None:
    """Refuse options of `cls` that its base does not have, and say which one was probably meant."""
    for name in unknown:
        options = [*inspect.signature(base).parameters][1:-1]
        near = difflib.get_close_matches(name, options, 1)
        meant = _MEANT.get(name) or (near[0] if near else None)
        raise af.OptionError(
            f"{cls.__name__} has no option {name!r}",
            remedy=f"Write {meant}=..."
            if meant in options
            else f"The options are {', '.join(options)}.",
        )


def check_env(cls: type, env: Any) -> None:
    """Check that an adapter is given an environment of its kind.

    Raises:
        TypeError: it is not, as with Gymnasium's own wrappers.
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
    elif isinstance(env, str):
        wanted, remedy = "an environment", f"Write {name}(gymnasium.make({env!r}))"
    elif callable(env):
        wanted, remedy = "an environment", "If it makes environments, call it first"
    else:
        wanted, remedy = "an environment", "Pass what gymnasium.make returns"
    raise TypeError(f"{name} takes {wanted}, but got {env!r:.80}. {remedy}.")


def missing_adapter(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, such as `NumpyToJax`."""
    text = f"module {module!r} has no attribute {name!r}"
    found = re.fullmatch("([A-Z][a-z]+)To([A-Z][a-z]+)", name)
    if found is not None:
        source, target = found[1].lower(), found[2].lower()
        text += f". Write ArrayConversion(env, env_xp={source!r}, target_xp={target!r})"
    return AttributeError(text, name=name)


def refuse_contradictions(cls: type, options: dict[str, Any]) -> None:
    """Refuse options that an adapter with two libraries in its name sets itself."""
    for name in ("env_xp", "target_xp", "like"):
        if name in options:
            raise af.OptionError(
                f"{cls.__name__} takes no {name}, since its libraries are in its name",
                remedy=f"Write ArrayConversion(env, {name}=...) for other libraries.",
            )
    if "target_device" in options and "device" in inspect.signature(cls).parameters:
        raise af.OptionError(
            f"{cls.__name__} takes no target_device", remedy="Write device=..., as in Gymnasium."
        )


def _has_item(action: Any) -> bool:
    """Tell whether `item()` of an action of this type returns its number, as its backend says."""
    _, backend = af.first_array(action)
    return backend is not None and backend.has_item(type(action))
