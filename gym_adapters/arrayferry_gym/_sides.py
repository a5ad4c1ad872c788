"""The two sides of an adapter: what the environment speaks, and what the agent speaks.

Both are either stated, or seen at run time: the environment's in what it returns, and in its
metadata before it has returned anything; the agent's in the action that it passes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import arrayferry as af
from arrayferry import Backend, Conversion

__all__ = ["Sides", "Target", "spelled"]

Target = str | ModuleType | Backend


class Sides:
    """Converts between an environment and its agent.

    Args:
        metadata: the environment's, looked at before it has returned anything.
        env_xp: what the environment speaks, None to see it at run time.
        target_xp: what the agent speaks, None to see it in its actions.
        env_device: where the environment's arrays shall lie, None for where its own are seen to lie.
        target_device: where the agent's arrays shall lie.
        like: an array, a module with parameters, or any tree with an array, in place of
            `target_xp` and `target_device`.
        info_xp: what infos are converted to, None for what the agent speaks.
        convert_info: whether infos are converted at all.
        options: the options `copy`, `narrowing` and `scalars` of `arrayferry.convert`.

    Raises:
        arrayferry.ArrayFerryError: a side or a device is unknown or not usable here.
    """

    def __init__(
        self,
        metadata: dict[str, Any],
        env_xp: Target | None,
        target_xp: Target | None,
        env_device: Any,
        target_device: Any,
        *,
        like: Any = None,
        info_xp: Target | None = None,
        convert_info: bool = True,
        scalars: str = "keep",
        **options: Any,
    ) -> None:
        if like is not None:
            target_xp, target_device = _likeness(like, target_xp, target_device)
        self._options = options
        self._scalars = scalars
        self._env_device = env_device
        self._target_device = target_device
        self._info_xp = None if info_xp is None else af.registry.backend(info_xp).name
        self._convert_info = convert_info
        self._env_stated = env_xp is not None
        self._target_stated = target_xp is not None
        self.seen: type | None = None
        self._spoken: type | None = None
        self._device_seen = env_device is not None
        if env_xp is None:
            env_xp = "jax" if metadata.get("jax", False) else "numpy"
        self._speak_to_env(env_xp, env_device)
        self.target: Conversion | None = None
        self._info: Conversion | None = None
        if target_xp is not None:
            self._speak_to_agent(target_xp)

    def _speak_to_env(self, to: Target, device: Any) -> None:
        self.env = af.converter(to, device=device, **self._options)

    def _speak_to_agent(self, to: Target) -> None:
        device = self._target_device
        self.target = af.converter(to, device=device, scalars="convert", **self._options)
        infos = self._info_xp or to
        device = device if self._info_xp is None else None
        self._info = af.converter(
            infos,
            device=device,
            scalars=self._scalars,  # type: ignore[arg-type]
            unsupported="keep",
            **self._options,
        )

    @property
    def env_backend(self) -> Backend:
        """What the environment speaks, as far as is known now."""
        return self.env.target

    @property
    def target_device(self) -> Any:
        """Where the agent's arrays shall lie, None for wherever they are."""
        return self._target_device

    @property
    def target_backend(self) -> Backend | None:
        """What the agent speaks, None before it has been seen."""
        return None if self.target is None else self.target.target

    def to_env(self, value: Any) -> Any:
        """Convert what the agent passes; what it speaks is seen in it, if that was not stated."""
        if not self._target_stated and type(value) is not self._spoken:
            self._spoken = type(value)
            _, backend = af.first_array(value)
            if backend is not None and (
                self.target is None or backend.name != self.target.target.name
            ):
                self._speak_to_agent(backend)
            if isinstance(value, (dict, list, tuple)):
                self._spoken = None  # what is inside may change
        return self.env(value)

    def see(self, observation: Any) -> None:
        """Look at what the environment speaks in what it returned, and where its arrays lie."""
        if type(observation) is self.seen:
            return
        self.seen = type(observation)
        array, backend = af.first_array(observation)
        if backend is None:
            return
        if self._env_stated and backend.name != self.env.target.name:
            return
        device = self._env_device
        if not self._device_seen and not backend.is_traced(array):
            self._device_seen = True
            device = backend.device_of(array)
            device = None if device == "cpu" else device
        if device != self._env_device or backend.name != self.env.target.name:
            self._env_device = device
            self._speak_to_env(backend, device)

    def forget(self) -> None:
        """Look anew at what the environment speaks, as when it was reset."""
        self.seen = None

    def to_agent(self, value: Any) -> Any:
        """Convert an observation, or all that a vector environment returns but its infos."""
        return value if self.target is None else self.target(value)

    def inform(self, infos: Any) -> Any:
        """Convert infos; what cannot be converted in them is kept."""
        if not infos or not self._convert_info:
            return infos
        if self._info is None:
            return infos if self._info_xp is None else af.convert(infos, self._info_xp)
        return self._info(infos)


def _likeness(like: Any, target_xp: Any, target_device: Any) -> tuple[Any, Any]:
    if target_xp is not None or target_device is not None:
        raise af.OptionError(
            "like= was given together with a target or its device",
            remedy="Pass either like=, or target_xp and target_device.",
        )
    example = like
    if callable(getattr(like, "parameters", None)):  # a module of PyTorch, or one that is like it
        example = next(iter(like.parameters()), None)
    array, backend = af.first_array(example)
    if backend is None:
        raise af.NotAnArrayError(
            f"like= was given a {type(like).__name__} that holds no array",
            remedy="Pass an array, a module with parameters, or a tree with an array.",
        )
    return backend, backend.device_of(array)


def spelled(device: Any) -> str | None:
    """Give a device object of any framework as text, so that it can stand in a specification."""
    if device is None or isinstance(device, str):
        return device
    platform = getattr(device, "platform", None)
    if platform is not None:  # JAX's
        return f"{platform}:{device.id}"
    return str(device)
