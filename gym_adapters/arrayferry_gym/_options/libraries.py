"""The two libraries of an adapter: the environment's and the agent's.

Each is stated or detected. The environment's library is detected from its results, and before the first result from its
metadata. The agent's library is detected from its actions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import arrayferry as af
from arrayferry import Backend, Conversion
from arrayferry._utilities.caller import caller_level
from arrayferry.extending import dtype_name, observed_read, observers
from arrayferry.typing import AnyTree, Device, Target

if TYPE_CHECKING:
    from arrayferry.typing import Scalars


class Libraries:
    """Converts between an environment and its agent.

    Args:
        metadata: the metadata of the environment, used before it has returned anything.
        env_xp: the library of the environment, or None to detect it.
        target_xp: the library of the agent, or None to detect it from its actions.
        env_device: the device of arrays for the environment, or None for the device of the arrays that it returns.
        target_device: the device of arrays for the agent.
        like: an array, a module with parameters, or any tree with an array, instead of `target_xp`
            and `target_device`.
        info_xp: the library that infos are converted to, or None for the agent's.
        convert_info: whether infos are converted at all.
        options: the options `copy`, `narrowing`, `scalars`, `unknown` and `sparse` of
            `arrayferry.convert`.

    Attributes:
        target_device: the device of arrays for the agent, or None to keep their device.
        observed: the type of the last observation, or None before the first of an episode.
        check_flags: called with flags that have dimensions, or None for no check.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or not usable here.
    """

    _warned: frozenset[str] = frozenset()

    def __init__(
        self,
        metadata: dict[str, Any],
        env_xp: Target | None,
        target_xp: Target | None,
        env_device: Device,
        target_device: Device,
        *,
        like: Any = None,
        info_xp: Target | None = None,
        convert_info: bool = True,
        scalars: Scalars = "keep",
        **options: Any,
    ) -> None:
        if like is not None:
            target_xp, target_device = target_like(like, target_xp, target_device)
        af.Options(scalars=scalars, **options)  # this call checks all options
        self._options: Any = options
        self._scalars: Scalars = scalars
        self._env_device = env_device
        self.target_device = target_device
        self._convert_info = convert_info
        self._env_stated = env_xp is not None
        self._target_stated = target_xp is not None
        self.observed: type | None = None
        self._last_action_type: type | None = None
        self._device_known = env_device is not None
        if env_xp is None:
            env_xp = "jax" if metadata.get("jax", False) else "numpy"
        self._set_env(env_xp, env_device)
        self.target: Conversion | None = None
        self.check_flags: Callable[[Any], None] | None = None
        self._info: Conversion | None = None
        self._info_stated = info_xp is not None
        if info_xp is not None:
            self._set_info(info_xp, None)
        if target_xp is not None:
            self._set_agent(target_xp)

    def __str__(self) -> str:
        target = "the library of the actions" if self.target is None else self.target.target.name
        device = "" if self.target_device is None else f", {device_text(self.target_device)}"
        return f"{self.env.target.name} -> {target}{device}"

    def _set_env(self, to: Target, device: Device) -> None:
        self.env: Conversion = af.converter(to, device=device, **self._options)

    def _set_agent(self, to: Target) -> None:
        device = self.target_device
        self.target = af.converter(to, device=device, scalars="convert", **self._options)
        if not self._info_stated:
            self._set_info(to, device)

    def _set_info(self, to: Target, device: Device) -> None:
        self._info = af.converter(
            to, device=device, scalars=self._scalars, unsupported="keep", **self._options
        )

    @property
    def target_backend(self) -> Backend | None:
        """The library of the agent, or None until it is known."""
        return None if self.target is None else self.target.target

    def to_env(self, value: AnyTree) -> Any:
        """Convert a value to the environment's library. Detect the agent's library if it was not stated."""
        if not self._target_stated and type(value) is not self._last_action_type:
            self._last_action_type = type(value)
            _, backend = af.first_array(value)
            current = self.target_backend
            if backend is not None and (current is None or backend.name != current.name):
                self._set_agent(backend)
            if isinstance(value, (dict, list, tuple)):
                self._last_action_type = None  # the types inside a tree may change
        try:
            return self.env(value)
        except af.UnsupportedDtypeError:
            # a fitter can read such values, for example an object array of numbers
            options = {**self._options, "unsupported": "keep"}
            return af.convert(value, self.env.target, device=self._env_device, **options)

    def observe(self, observation: AnyTree) -> None:
        """Detect the library and the device of the environment from an observation."""
        if type(observation) is self.observed:
            return
        self.observed = type(observation)
        array, backend = af.first_array(observation)
        if backend is None:
            return
        if self._env_stated and backend.name != self.env.target.name:
            self._warn_of(backend)
            return
        device = self._env_device
        if not self._device_known and not backend.is_traced(array):
            self._device_known = True
            device = backend.device_of(array)
            device = None if device == "cpu" else device
        if device != self._env_device or backend.name != self.env.target.name:
            self._env_device = device
            self._set_env(backend, device)

    def _warn_of(self, detected: Backend) -> None:
        """Warn once that the environment uses another library than stated."""
        stated = self.env.target.name
        agent = stated if self.target is None else self.target.target.name
        self.warn_once(
            "library",
            f"the library of the environment was stated as {stated!r}, but its observations are of "
            f"{detected.name!r}. Its actions will be of {stated!r}. If that is wrong, write ArrayConversion(env, "
            f"env_xp={detected.name!r}, target_xp={agent!r})",
        )

    def warn_once(self, topic: str, message: str) -> None:
        """Warn, unless there was a warning on the same topic before."""
        if topic not in self._warned:
            self._warned |= {topic}
            warnings.warn(message, stacklevel=caller_level())

    def to_agent(self, value: AnyTree) -> Any:
        """Convert an observation, or all results of a vector environment except infos, to the agent's library."""
        try:
            return value if self.target is None else self.target(value)
        except af.ConversionError as error:
            explain(error)
            raise

    def to_number(self, value: AnyTree, kind: type) -> Any:
        """Convert a reward or flag of a single environment: to a number, or to arrays if it has dimensions."""
        if isinstance(value, (Mapping, list, tuple)) or getattr(value, "ndim", 0) != 0:
            if kind is bool and self.check_flags is not None:
                self.check_flags(value)
            return self.to_agent(value)
        return observed_read(kind, value) if observers else kind(value)

    def convert_infos(self, infos: AnyTree) -> Any:
        """Convert infos. Values that cannot be converted stay unchanged."""
        if not infos or not self._convert_info or self._info is None:
            return infos
        try:
            return self._info(infos)
        except af.ConversionError as error:
            if type(error) is not af.ConversionError:
                raise
            return self._convert_each(infos, "")

    def _convert_each(self, infos: AnyTree, path: str) -> Any:
        """Convert infos one by one. Arrays that conversion would change, such as masked arrays, stay as they are."""
        convert: Any = self._info
        converted = {}
        for key, value in infos.items():
            try:
                converted[key] = convert({key: value})[key]
            except af.ConversionError as error:
                if type(error) is not af.ConversionError:
                    raise
                place = f"{path}[{key!r}]"
                if type(value) is dict:
                    converted[key] = self._convert_each(value, place)
                    continue
                converted[key] = value
                self.warn_once(
                    "info",
                    f"info{place} was left unchanged: {error.reason}. Convert it in the environment, "
                    "or pass convert_info=False",
                )
        return converted


_REMEDIES = {
    'Pass unsupported="keep" to leave such arrays unchanged.': "Move it to the infos, where it stays unchanged.",
    ', or pass unsupported="keep"': "",
    'Pass scalars="keep" to leave Python numbers unchanged.': "Return numbers that fit.",
    ', or scalars="keep" to leave Python numbers unchanged': "",
    ' scalars="keep" leaves Python numbers unchanged.': "",
}
"""Remedies of `convert` that do not apply to the results of a step, and their replacements."""


def explain(error: af.ConversionError, names: Sequence[str] = ()) -> None:
    """Replace remedies in an error that do not apply to the results of a step.

    Args:
        error: the error, which is changed.
        names: the names of the results, if they were converted together. They replace the index in the error.
    """
    for remedy, other in _REMEDIES.items():
        error.remedy = error.remedy.replace(remedy, other)
    if names and (index := re.match(r"\[(\d+)\]", error.path)):
        error.reason = f"{names[int(index[1])]}: {error.reason}"
        error.path = error.path[index.end() :]


def target_like(like: Any, target_xp: Any, target_device: Device) -> tuple[Backend, Any]:
    """Return the library and the device of an example. No other target may be given."""
    if target_xp is not None or target_device is not None:
        raise af.OptionError(
            "like= was given together with a target or its device",
            remedy="Pass either like=, or target_xp and target_device.",
        )
    example = like
    if isinstance(like, type):
        raise af.NotAnArrayError(
            f"like= was given the class {like.__name__}, which holds no array",
            remedy=f"Pass an instance, such as {like.__name__}(...).",
        )
    # `like` is a PyTorch module, or is similar to one
    if callable(getattr(like, "parameters", None)):
        example = next(iter(like.parameters()), None)
    array, backend = af.first_array(example)
    if backend is None:
        raise af.NotAnArrayError(
            f"like= was given a {type(like).__name__} that holds no array",
            remedy="Pass an array, a module with parameters, or a tree with an array; or name the library "
            "by target_xp.",
        )
    return backend, backend.device_of(array)


def reward_dtype_of(dtype: Any, backend: Backend | None = None) -> str | None:
    """Return the name of a dtype, given as a name or as an object of any library.

    Args:
        dtype: the dtype of rewards, as a name or an object.
        backend: the library that must have the dtype, or None if the library is not known yet.

    Raises:
        arrayferry.OptionError: there is no such dtype, or the library does not have it.
    """
    if dtype is None:
        return None
    if isinstance(dtype, (str, ModuleType)):
        name = dtype if isinstance(dtype, str) else dtype.__name__
    else:
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError):  # NumPy does not know torch.float32, for example
            name = dtype_name(dtype)
    if name not in {*af.STANDARD_DTYPES, "bfloat16"}:
        raise af.OptionError(
            f"reward_dtype={dtype!r} is not a dtype of numbers",
            remedy='Pass a name such as "float32", or a dtype such as numpy.float32 or torch.float32.',
        )
    available = None if backend is None else backend.dtypes()
    if backend is not None and available is not None and name not in available:
        raise af.OptionError(
            f"reward_dtype={dtype!r} is not possible: {backend.name} does not have {name} here",
            remedy=f"Pass one of {', '.join(sorted(d for d in available if 'float' in d))}.",
        )
    return name


def device_text(device: Any) -> str | None:
    """Return a device object of any framework as text, so that it can be part of an `EnvSpec`."""
    if device is None or isinstance(device, str):
        return device
    platform = getattr(device, "platform", None)
    if platform is not None:  # the device is of JAX
        return f"{platform}:{device.id}"
    return str(device)
