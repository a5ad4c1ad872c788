"""What the adapters for single and for vector environments have in common."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, spaces
from gymnasium.utils import RecordConstructorArgs

import arrayferry as af

from ._actions import fit_array, fit_numpy
from ._sides import Sides, Target, spelled
from ._spaces import converted_space

__all__ = ["Adapter", "truthful_space"]


class Adapter(RecordConstructorArgs):
    """Holds the two sides, converts actions, and gives spaces that tell the truth."""

    env: Any
    _sides: Sides
    _recorded = False
    _settled: type | None
    _dtype: Any

    def _meet(
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
        """Set up the sides, and record how that was done along with what else is `recorded`."""
        self._sides = Sides(
            env.metadata or {}, env_xp, target_xp, env_device, target_device, **options
        )
        self._converted: dict[str, Any] = {}
        self._forget_ways()
        self._number: Any = int
        like = options.pop("like", None)
        target = self._sides.target_backend
        if like is not None and target is not None:
            target_xp, target_device = target, self._sides.target_device
        self._tell_the_truth(env)
        self._record(
            env_xp=None if env_xp is None else af.registry.backend(env_xp).name,
            target_xp=None if target_xp is None else af.registry.backend(target_xp).name,
            env_device=env_device,
            target_device=target_device,
            **options,
            **(recorded or {}),
        )

    def _tell_the_truth(self, env: Any) -> None:
        """Say in the metadata whether this returns JAX arrays, as those who look there take it."""
        target = self._sides.target_backend
        before = bool((env.metadata or {}).get("jax", False))
        if target is not None and before != (target.name == "jax"):
            self.metadata = {**(env.metadata or {}), "jax": not before}

    def _record(self, **kwargs: Any) -> None:
        """Record how this wrapper was made, in words that JSON can hold, for `spec`."""
        defaults: dict[str, Any] = {"narrowing": "checked", "scalars": "keep", "convert_info": True}
        for name in ("env_device", "target_device", "device"):
            if name in kwargs:
                kwargs[name] = spelled(kwargs[name])
        if kwargs.get("info_xp") is not None:
            kwargs["info_xp"] = af.registry.backend(kwargs["info_xp"]).name
        if hasattr(self, "_saved_kwargs") and not self._recorded:
            return  # a subclass has recorded its own
        self._recorded = True
        kwargs.pop("like", None)
        self._saved_kwargs = {n: x for n, x in kwargs.items() if defaults.get(n) is not x}

    @property
    def env_backend(self) -> af.Backend:
        """What the environment speaks, as far as is known now."""
        return self._sides.env_backend

    @property
    def target_backend(self) -> af.Backend | None:
        """What the agent speaks, None before it has been seen."""
        return self._sides.target_backend

    def _space(self, name: str) -> Any:
        """The converted space for one of the environment's, made anew if that was exchanged."""
        original = getattr(self.env, name)
        found = self._converted.get(name)
        if found is None or found.original is not getattr(original, "original", original):
            if not isinstance(original, Space):
                return original
            found = self._converted[name] = converted_space(original, self._sides)
        return found

    def _act(self, action: Any) -> Any:
        """Give an action the form that the environment means."""
        if type(action) in self._plain:
            value = action.item()
            if type(value) is int:
                return self._number(value)
        elif type(action) is self._settled:
            try:
                converted = self._sides.env(action)
                if self._dtype is None or converted.dtype == self._dtype:
                    return converted
            except Exception:  # which the careful way words
                pass
        return self._act_with_care(action)

    def _act_with_care(self, action: Any) -> Any:
        self._forget_ways()
        space = self.env.action_space
        try:
            converted = self._sides.to_env(action)
            backend = self._sides.env_backend
            if backend.name != "numpy":
                fitted = fit_array(converted, space, backend)
                self._settle(action, fitted, None if not isinstance(space, spaces.Box) else fitted)
                return fitted
            converted = fit_numpy(converted, space)
        except af.ConversionError as error:
            if "action" not in error.reason:
                error.reason = f"an action for the space {space}: {error.reason}"
            raise
        if isinstance(space, spaces.Discrete) and _is_plain(type(action)):
            self._plain = frozenset((type(action),))
            self._number = space.dtype.type
        else:
            self._settle(action, converted, converted)
        return converted

    def _settle(self, action: Any, fitted: Any, like: Any) -> None:
        """Remember that actions of this type need no more than to be converted, if of this dtype."""
        if _is_plain(type(action)) and hasattr(fitted, "dtype"):
            self._settled = type(action)
            self._dtype = getattr(like, "dtype", None)

    def _forget_ways(self) -> None:
        self._plain = frozenset()
        self._settled = None
        self._dtype = None

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert the options of a reset, keeping what cannot be converted."""
        self._sides.forget()
        if not options:
            return options
        backend = self._sides.env_backend
        converted: dict[str, Any] = af.convert(options, backend, unsupported="keep")
        return converted

    def _see(self, observation: Any) -> None:
        """Look at what the environment returned, for what it speaks."""
        before = self._sides.env_backend
        self._sides.see(observation)
        if self._sides.env_backend is not before:
            self._forget_ways()


def truthful_space(name: str) -> property:
    """Make the property for one of the spaces: the environment's, converted, unless one was set."""

    def get(self: Any) -> Any:
        own = getattr(self, f"_{name}")
        return self._space(name) if own is None else own

    def put(self: Any, space: Any) -> None:
        setattr(self, f"_{name}", space)

    return property(get, put, doc=f"The environment's {name}, for the agent's arrays.")


def _is_plain(cls: type) -> bool:
    """Whether `item()` of an array of this type gives its number, and nothing is lost by that."""
    return cls.__module__.partition(".")[0] in ("numpy", "torch", "jaxlib") and cls.__name__ in (
        "ndarray",
        "int64",
        "int32",
        "Tensor",
        "ArrayImpl",
    )
