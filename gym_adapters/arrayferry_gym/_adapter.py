"""The common part of the adapters for single and for vector environments."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, wrappers
from gymnasium.utils import RecordConstructorArgs

import arrayferry as af
from arrayferry.adapting import never_raises, observed_read, observers

from ._actions import Fitter, LibraryFitter
from ._libraries import Libraries, Target, device_text, dtype_name
from ._quick import NOT_QUICK, Quick, find_quick, item
from ._spaces import converted_space

__all__ = ["Adapter", "converted_space_property"]


class Adapter(RecordConstructorArgs):
    """Holds the two libraries, converts actions, and converts spaces."""

    libraries_in_name: bool = False
    """Whether the libraries are in the name of the class, so that they are no options."""

    env: Any
    metadata: dict[str, Any]
    _libraries: Libraries
    _recorded = False
    _check_actions: bool
    _quick: Quick

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
        for name, flag in {
            "check_actions": check_actions,
            "convert_info": options.get("convert_info", True),
            "stack_final": (recorded or {}).get("stack_final", False),
        }.items():
            if type(flag) is not bool:
                raise af.OptionError(
                    f"{name}={flag!r:.80} is not valid", remedy="Pass True or False."
                )
        self._check_actions = check_actions
        self._libraries = Libraries(
            env.metadata or {}, env_xp, target_xp, env_device, target_device, **options
        )
        target = self._libraries.target_backend
        if env_xp is None and target is not None and _agrees(env, target, self._libraries):
            self._libraries.speak(target)
        self._converted: dict[str, Any] = {}
        self._quick = NOT_QUICK
        like = options.pop("like", None)
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
            "unknown": "keep",
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

    @never_raises
    def __repr__(self) -> str:
        libraries = self._libraries
        own, target = libraries.env_backend.name, libraries.target_backend
        device = libraries.target_device
        sides = f"{own} -> {'the library of the actions' if target is None else target.name}"
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
        quick = self._quick
        cls = type(action)
        try:
            if cls is quick.cls:
                if quick.valid is None:
                    converted = self._libraries.env(action)
                    if (
                        converted.dtype == quick.dtype
                        and converted.shape == quick.shape
                        and (quick.test is None or quick.test(action, converted))
                    ):
                        return converted if quick.wider is None else converted.astype(quick.wider)
                elif quick.given is None or action.dtype == quick.given:
                    value = (
                        action
                        if cls is int
                        else observed_read(item, action)
                        if observers
                        else action.item()
                    )
                    if type(value) is int and value in quick.valid:
                        return quick.number(value)
        except Exception:  # fitting it completely raises an error that explains it
            pass
        return self._fit(action)

    def _fit(self, action: Any) -> Any:
        """Convert and check an action completely, and find a quick way for the next of its type."""
        self._quick = NOT_QUICK
        space, libraries = self.env.action_space, self._libraries
        try:
            converted = libraries.to_env(action)
            backend = libraries.env_backend
            if backend.name == "numpy":
                fitter = Fitter("an action", bounds=self._check_actions)
            else:
                fitter = LibraryFitter(backend, "an action", bounds=self._check_actions)
            fitted = fitter.fit(converted, space)
        except af.ConversionError as error:
            if "cannot be one of the space" not in error.reason:
                error.reason = f"an action for the space {space}: {error.reason}"
            raise
        self._quick = find_quick(action, converted, fitted, space, fitter, libraries)
        return fitted

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_quick": NOT_QUICK}

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert the options of a reset. What cannot be converted is kept."""
        if self._quick.space is not None and self._quick.space is not self.env.action_space:
            self._quick = NOT_QUICK
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
            self._quick = NOT_QUICK


_TRANSPARENT = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)
"""Wrappers of `gymnasium.make`, which do not look into arrays."""


def _agrees(env: Any, target: af.Backend, libraries: Libraries) -> bool:
    """Ask an environment that belongs to no library whether it speaks that of the agent from now on."""
    while type(env) in _TRANSPARENT:
        env = env.env
    use = getattr(type(env), "use_library", None)
    return use is not None and bool(use(env, target, libraries.target_device))


def converted_space_property(name: str) -> property:
    """Make the property for one of the spaces: the environment's, converted, unless another was set."""

    def get(self: Any) -> Any:
        own = getattr(self, f"_{name}")
        return self._space(name) if own is None else own

    def put(self: Any, space: Any) -> None:
        setattr(self, f"_{name}", space)

    return property(get, put, doc=f"The environment's {name}, for arrays of the agent's library.")
