"""The common part of the adapters for single and for vector environments."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, spaces
from gymnasium.utils import RecordConstructorArgs

import arrayferry as af

from ._actions import fit_array, fit_numpy
from ._libraries import Libraries, Target, device_text
from ._spaces import converted_space

__all__ = ["Adapter", "converted_space_property"]


class Adapter(RecordConstructorArgs):
    """Holds the two libraries, converts actions, and converts spaces."""

    env: Any
    _libraries: Libraries
    _recorded = False
    _settled: type | None
    _dtype: Any

    def _setup(
        self,
        env: Any,
        env_xp: Target | None,
        target_xp: Target | None,
        env_device: Any,
        target_device: Any,
        *,
        recorded: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Set up the libraries, and record the arguments, along with those that are `recorded`."""
        self._libraries = Libraries(
            env.metadata or {}, env_xp, target_xp, env_device, target_device, **options
        )
        self._converted: dict[str, Any] = {}
        self._forget_ways()
        self._number: Any = int
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
        defaults: dict[str, Any] = {"narrowing": "checked", "scalars": "keep", "convert_info": True}
        for name in ("env_device", "target_device", "device"):
            if name in kwargs:
                kwargs[name] = device_text(kwargs[name])
        if kwargs.get("info_xp") is not None:
            kwargs["info_xp"] = af.registry.backend(kwargs["info_xp"]).name
        if hasattr(self, "_saved_kwargs") and not self._recorded:
            return  # a subclass has recorded its own
        self._recorded = True
        kwargs.pop("like", None)
        self._saved_kwargs = {n: x for n, x in kwargs.items() if defaults.get(n) is not x}

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
            found = self._converted[name] = converted_space(original, self._libraries)
        return found

    def _act(self, action: Any) -> Any:
        """Convert an action to the form that the environment expects."""
        if type(action) in self._plain:
            value = action.item()
            if type(value) is int:
                return self._number(value)
        elif type(action) is self._settled:
            try:
                converted = self._libraries.env(action)
                if self._dtype is None or converted.dtype == self._dtype:
                    return converted
            except Exception:  # the fallback raises an error that explains it
                pass
        return self._act_fallback(action)

    def _act_fallback(self, action: Any) -> Any:
        self._forget_ways()
        space = self.env.action_space
        try:
            converted = self._libraries.to_env(action)
            backend = self._libraries.env_backend
            if backend.name != "numpy":
                fitted = fit_array(converted, space, backend)
                self._settle(action, fitted, None if not isinstance(space, spaces.Box) else fitted)
                return fitted
            converted = fit_numpy(converted, space)
        except af.ConversionError as error:
            if "action" not in error.reason:
                error.reason = f"an action for the space {space}: {error.reason}"
            raise
        if isinstance(space, spaces.Discrete) and _has_item(action):
            self._plain = frozenset((type(action),))
            self._number = space.dtype.type
        else:
            self._settle(action, converted, converted)
        return converted

    def _settle(self, action: Any, fitted: Any, like: Any) -> None:
        """Remember that actions of this type only have to be converted, if the result has this dtype."""
        if _has_item(action) and hasattr(fitted, "dtype"):
            self._settled = type(action)
            self._dtype = getattr(like, "dtype", None)

    def _forget_ways(self) -> None:
        self._plain = frozenset()
        self._settled = None
        self._dtype = None

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert the options of a reset. What cannot be converted is kept."""
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


def _has_item(action: Any) -> bool:
    """Tell whether `item()` of an action of this type returns its number, as its backend says."""
    _, backend = af.first_array(action)
    return backend is not None and backend.has_item(type(action))
