"""The two libraries of an adapter: the environment's and the agent's.

Each library is stated by the user or detected. The environment's library is detected from its observations. Before the
first observation, the metadata tell whether it is JAX or NumPy. The agent's library is detected from its actions.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
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
    """The two libraries of an adapter, and the conversions between them.

    Args:
        metadata: the metadata of the environment. Until the first observation, `metadata["jax"]` tells whether the
            environment uses JAX.
        env_xp: the library of the environment, or None to detect it.
        target_xp: the library of the agent, or None to detect it from the agent's actions.
        env_device: the device of arrays for the environment, or None for the device of the observations.
        target_device: the device of arrays for the agent, or None to keep their device.
        like: an array, a module with parameters, or any tree with an array. Pass `like` instead of `target_xp` and
            `target_device`, to use the library and the device of this array.
        info_xp: the library that infos are converted to, or None for the agent's library.
        convert_info: False to leave infos unchanged.
        options: the options `copy`, `narrowing`, `scalars`, `unknown` and `sparse` of
            `arrayferry.convert`.

    Attributes:
        target_device: the device of arrays for the agent, or None to keep their device.
        observed: the type of the last observation, or None before the first observation of an episode.
        check_flags: a function that raises an error for the flags of several environments, or None for no check.

    Raises:
        arrayferry.ArrayFerryError: a library or a device is unknown or unavailable.
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
        af.Options(scalars=scalars, **options)  # this call refuses invalid options
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
        self.env: Conversion = af.converter(env_xp, device=env_device, **self._options)
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
        device_suffix = "" if self.target_device is None else f", {device_text(self.target_device)}"
        return f"{self.env.target.name} -> {target}{device_suffix}"

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
            agent_lib = self.target_backend
            if backend is not None and (agent_lib is None or backend.name != agent_lib.name):
                self._set_agent(backend)
            if isinstance(value, (dict, list, tuple)):
                self._last_action_type = None  # the next tree may be of another library
        try:
            return self.env(value)
        except af.UnsupportedDtypeError:
            # keep unsupported dtypes, since a `Fitter` can read object arrays of numbers
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
            self.env = af.converter(backend, device=device, **self._options)

    def _warn_of(self, detected: Backend) -> None:
        """Warn, at most once, that observations are of another library than the stated `env_xp`."""
        stated_name = self.env.target.name
        target_name = stated_name if self.target is None else self.target.target.name
        self.warn_once(
            "library",
            f"the library of the environment was stated as {stated_name!r}, but its observations are of "
            f"{detected.name!r}. Its actions will be of {stated_name!r}. If that is wrong, write ArrayConversion(env, "
            f"env_xp={detected.name!r}, target_xp={target_name!r})",
        )

    def warn_once(self, topic: str, message: str) -> None:
        """Warn, unless an earlier warning had the same topic."""
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
        """Convert a reward or flag of a single environment to `float` or `bool`.

        Rewards and flags that have axes are converted to arrays of the agent's library instead.
        """
        if isinstance(value, (Mapping, list, tuple)) or getattr(value, "ndim", 0) != 0:
            if kind is bool and self.check_flags is not None:
                self.check_flags(value)
            return self.to_agent(value)
        return observed_read(kind, value) if observers else kind(value)

    def convert_infos(self, infos: AnyTree, path: str = "") -> Any:
        """Convert infos to `info_xp` or the agent's library.

        If one of them cannot be converted, such as a masked array, each info is converted separately, and this one stays
        unchanged.

        Args:
            infos: a dict of infos.
            path: the path of the dict inside the infos, for warnings.
        """
        if not infos or not self._convert_info or self._info is None:
            return infos
        try:
            return self._info(infos)
        except af.ConversionError as error:
            if type(error) is not af.ConversionError:
                raise
            reason = error.reason
        if len(infos) > 1:
            return {key: self.convert_infos({key: x}, path)[key] for key, x in infos.items()}
        ((key, info),) = infos.items()
        info_path = f"{path}[{key!r}]"
        if type(info) is dict:
            return {key: self.convert_infos(info, info_path)}
        self.warn_once(
            "info",
            f"info{info_path} was left unchanged: {reason}. Convert it in the environment, or pass convert_info=False",
        )
        return {key: info}


_REMEDIES = {
    'Pass unsupported="keep" to leave such arrays unchanged.': "Move it to the infos, where it stays unchanged.",
    ', or pass unsupported="keep"': "",
    'Pass scalars="keep" to leave Python numbers unchanged.': "Return numbers that fit.",
    ', or scalars="keep" to leave Python numbers unchanged': "",
    ' scalars="keep" leaves Python numbers unchanged.': "",
}
"""Remedies of `convert` that do not apply to the results of a step, and their replacements."""


def explain(error: af.ConversionError, names: Sequence[str] = ()) -> None:
    """In an error of `convert`, replace remedies that do not apply to the results of a step.

    Args:
        error: the error, which is changed in place.
        names: the names of the results, if they were converted as one tuple. In the error, the name of a result
            replaces its index in the tuple.
    """
    for remedy, replacement in _REMEDIES.items():
        error.remedy = error.remedy.replace(remedy, replacement)
    if names and (index_match := re.match(r"\[(\d+)\]", error.path)):
        error.reason = f"{names[int(index_match[1])]}: {error.reason}"
        error.path = error.path[index_match.end() :]


def target_like(like: Any, target_xp: Any, target_device: Device) -> tuple[Backend, Any]:
    """Return the library and the device of an array in `like`.

    Raises:
        arrayferry.OptionError: `target_xp` or `target_device` was passed too.
        arrayferry.NotAnArrayError: `like` has no array.
    """
    if target_xp is not None or target_device is not None:
        raise af.OptionError(
            "like= was given together with target_xp or target_device",
            remedy="Pass either like=, or target_xp and target_device.",
        )
    example = like
    if isinstance(like, type):
        raise af.NotAnArrayError(
            f"like= was given the class {like.__name__}, which holds no array",
            remedy=f"Pass an instance, such as {like.__name__}(...).",
        )
    # PyTorch modules, and other objects with a method `parameters`
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
    """Return the name of a dtype of rewards, or None if `dtype` is None.

    Args:
        dtype: the name of a dtype, a dtype of any library, or None.
        backend: the library that must have the dtype, or None if the library is not known yet.

    Raises:
        arrayferry.OptionError: the dtype does not exist, or the library does not have it.
    """
    if dtype is None:
        return None
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except (TypeError, ValueError):  # a dtype of another library, such as torch.float32
        name = dtype_name(dtype)
    if name not in {*af.STANDARD_DTYPES, "bfloat16"}:
        raise af.OptionError(
            f"reward_dtype={dtype!r} is not a dtype of numbers",
            remedy='Pass a name such as "float32", or a dtype such as numpy.float32 or torch.float32.',
        )
    available = None if backend is None else backend.dtypes()
    if backend is not None and available is not None and name not in available:
        raise af.OptionError(
            f"reward_dtype={dtype!r} is not possible, since {backend.name} does not have {name}",
            remedy=f"Pass one of {', '.join(sorted(d for d in available if 'float' in d))}.",
        )
    return name


def device_text(device: Any) -> str | None:
    """Return a device of any library as text, such as "cuda:0". An `EnvSpec` can contain only text."""
    if device is None or isinstance(device, str):
        return device
    platform = getattr(device, "platform", None)
    if platform is not None:  # a device of JAX
        return f"{platform}:{device.id}"
    return str(device)
