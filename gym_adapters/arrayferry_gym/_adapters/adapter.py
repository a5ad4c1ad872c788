"""The common part of the adapters for single and for vector environments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gymnasium import Space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.options import check_actions_of, check_flag
from arrayferry._utilities.text import never_raises
from arrayferry.typing import AnyTree, Device, Target
from arrayferry_gym._actions.fitter import Fitter
from arrayferry_gym._actions.quick import Judge, quick_way
from arrayferry_gym._copies import Copied
from arrayferry_gym._episodes import ServesFunctional
from arrayferry_gym._options.libraries import Libraries, device_text, reward_dtype_of
from arrayferry_gym._options.refusals import refuse_fixed, refuse_unknown
from arrayferry_gym._spaces.batches import batch_of_actions

from .spaces import converted_space

if TYPE_CHECKING:
    from arrayferry.typing import Narrowing, Scalars, Sparse, Unknown
    from arrayferry_gym.typing import CheckActions


def gymnasium_class(module: str, otherwise: type) -> Any:
    """Return Gymnasium's `ArrayConversion`. Our adapters derive from it, so that they are instances of it.

    Args:
        module: the name of its module.
        otherwise: the class to return if Gymnasium has no `ArrayConversion`, or it cannot be imported.
    """
    try:
        return importlib.import_module(module).ArrayConversion
    except Exception:  # the module or one of its dependencies is missing
        return otherwise


def _everything(
    self: Any,
    env: Any,
    env_xp: Target | None = None,
    target_xp: Target | None = None,
    env_device: Device = None,
    target_device: Device = None,
    *,
    like: Any = None,
    info_xp: Target | None = None,
    convert_info: bool = True,
    stack_final: bool = False,
    reward_dtype: Any = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    scalars: Scalars = "keep",
    unknown: Unknown = "keep",
    sparse: Sparse = "dense",
    check_actions: CheckActions = "fit",
    convert_render: bool = False,
) -> None:
    """Define the arguments of the constructors of all adapters, and their defaults."""


_PARAMETERS = inspect.signature(_everything).parameters
_DEFAULTS = {name: parameter.default for name, parameter in _PARAMETERS.items()}
_CONVERTING = {*inspect.signature(Libraries).parameters, *af.Options._fields}
"""The arguments of adapters that `Libraries` receives."""


def takes(*left_out: str) -> Callable[[Any], Any]:
    """Return a decorator for constructors with `**options`.

    It sets their signature to all arguments of adapters except those in `left_out`.
    """

    def decorate(init: Any) -> Any:
        parameters = (x for name, x in _PARAMETERS.items() if name not in left_out)
        init.__signature__ = inspect.Signature([*parameters])
        return init

    return decorate


def arguments_of(base: type, adapter: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a constructor as a dict with defaults, without the environment.

    Args:
        base: the class that defines the constructor.
        adapter: the new adapter.
        args: the positional arguments after the environment.
        options: the keyword arguments.

    Raises:
        arrayferry.OptionError: the constructor has no option of one of these names.
    """
    signature = inspect.signature(base.__init__)  # type: ignore[misc]
    others = {name: x for name, x in options.items() if name not in signature.parameters}
    refuse_unknown(others, base, type(adapter))
    bound = signature.bind(None, None, *args, **options)
    bound.apply_defaults()
    return {name: x for name, x in bound.arguments.items() if name not in ("self", "env")}


class Adapter(Copied, RecordConstructorArgs, Judge):
    """The base class of adapters: detects the two libraries, fits actions and converts spaces."""

    fixed_options: tuple[str, ...] = ()
    """The names of the options that the class sets itself. Its constructor refuses them."""

    env: Any
    metadata: dict[str, Any]
    """The entry `"jax"` tells whether the adapter returns JAX arrays."""
    device: Any
    """The device of observations and infos, or None to keep their device."""
    _recorded = False
    _expected: tuple[Any, Any] = (None, None)
    """The action space of the environment, and the space that its actions are fitted to."""
    _note: str | None = None
    """The reason why the last action does not fit, if it was passed on. Else None."""

    def _setup(self, env: Any, **arguments: Any) -> None:
        """Set up the libraries, and record the arguments."""
        for name, default in _DEFAULTS.items():
            if type(default) is bool:
                check_flag(name, arguments.get(name, default))
        check = arguments["check_actions"] = check_actions_of(arguments["check_actions"])
        if isinstance(env, ServesFunctional) and env.check_actions == "strict":
            check = "off"  # this environment refuses every action that an adapter would refuse
        self._check = check
        self._convert_render = arguments.get("convert_render", False)
        options = {name: x for name, x in arguments.items() if name in _CONVERTING}
        metadata = getattr(env, "metadata", None) or {}
        self._libraries = Libraries(metadata, **options)
        target: Any = self._libraries.target_backend
        self.device = self._libraries.target_device
        self._converted: dict[str, Any] = {}
        self._forget_ways()
        in_jax = bool(metadata.get("jax", False))
        if target is not None and in_jax != (target.name == "jax"):
            self.metadata = {**metadata, "jax": not in_jax}
        if arguments.get("like") is not None:
            arguments.update(target_xp=target, target_device=self.device)
        self._record(**arguments)

    def _record(self, **arguments: Any) -> None:
        """Record the arguments of this wrapper for `spec`, as values that JSON supports."""
        if hasattr(self, "_saved_kwargs") and not self._recorded:
            return  # a user's subclass has recorded its own arguments
        self._recorded = True
        arguments.pop("like", None)
        for name in arguments.keys() & _AS_TEXT.keys():
            arguments[name] = _AS_TEXT[name](arguments[name])
        self._saved_kwargs = {
            name: value for name, value in arguments.items() if value != _DEFAULTS.get(name)
        }

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self._libraries}){self.env}>"

    @property
    def env_backend(self) -> af.Backend:
        """The library of the environment. It is NumPy or JAX, by the metadata, until results show the library."""
        return self._libraries.env.target

    @property
    def target_backend(self) -> af.Backend | None:
        """The library of the agent, or None until it is known."""
        return self._libraries.target_backend

    def _space(self, name: str) -> Any:
        """Return the converted space for an attribute of the environment. If the attribute changed, convert it again."""
        original = self._original(name)
        converted = self._converted.get(name)
        if converted is None or converted.original is not getattr(original, "original", original):
            if not isinstance(original, Space):
                return original
            converted = self._converted[name] = converted_space(
                original, self._libraries, observed="observation" in name
            )
        return converted

    def _original(self, name: str) -> Any:
        """Return a space of the environment, unconverted."""
        return getattr(self.env, name)

    def _fit(self, action: AnyTree) -> Any:
        """Convert an action, fit it with all checks, and store the quick way for later actions like it."""
        __tracebackhide__ = True
        libraries = self._libraries
        if self._check == "off":
            return libraries.to_env(action)
        space = self._expected_space()
        num_envs = self.env.num_envs if isinstance(self.env, VectorEnv) else None
        strict = self._check == "strict"
        agent = libraries.target_backend
        try:
            converted = libraries.to_env(action)
            # stored quick ways would not notice actions of the agent's former library
            if libraries.target_backend is not agent:
                self._forget_ways()
            fitter = Fitter(space, libraries.env.target, strict=strict, num_envs=num_envs)
            fitted = fitter.fit(converted, action)
        except af.ConversionError as error:
            if "is not valid for the space" not in error.reason:
                error.reason = f"an action for the space {space}: {error.reason}"
            raise
        if fitter.passed_on is not None:
            self._note = f"an action for the space {space} was passed on though it does not fit: {fitter.passed_on}"
            libraries.warn_once("action", f"{self._note}. Pass actions as the space samples them")
        elif not strict and hasattr(fitted, "dtype"):
            serves = isinstance(self.env, ServesFunctional)
            way = quick_way(action, fitted, space, libraries.env, any_library=serves)
            self._quick.learn(action, fitted, way)
        return fitted

    def _expected_space(self) -> Any:
        """Return the space that actions are fitted to. For a vector environment, it is the space of the batch."""
        space = self._original("action_space")
        if space is not self._expected[0]:
            expected = space
            if isinstance(self.env, VectorEnv):
                single, n = getattr(self.env, "single_action_space", None), self.env.num_envs
                if single is None or single == space:  # `action_space` is that of one environment
                    expected = batch_of_actions(space, n)
                elif isinstance(single, Space) and batch_space(single, n) == space:
                    expected = batch_of_actions(single, n)
            self._expected = space, expected
        return self._expected[1]

    def _explain(self, error: Exception) -> None:
        """If the last action was passed on although it does not fit, say so in a note of the environment's error."""
        if self._note is not None:
            error.add_note(self._note)

    def render(self) -> Any:
        """Render the environment. The frames are converted if `convert_render` was set."""
        frames = self.env.render()
        return self._libraries.to_agent(frames) if self._convert_render else frames

    def _has_begun(self) -> bool:
        return self._libraries.observed is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_converted": {}}

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert the options of a reset. Values that cannot be converted stay unchanged."""
        self._libraries.observed = None  # it is detected again
        if not options:
            return options
        backend = self._libraries.env.target
        converted: dict[str, Any] = af.convert(options, backend, unsupported="keep")
        return converted

    def _check_space(self) -> None:
        """Delete the quick ways if the reset has replaced the action space."""
        before = self._expected[0]
        if before is not None and before is not self._original("action_space"):
            self._forget_ways()

    def _observe(self, observation: AnyTree) -> None:
        """Detect the library of the environment from an observation."""
        before = self._libraries.env
        self._libraries.observe(observation)
        if self._libraries.env is not before:
            self._forget_ways()


class NamedPair(Adapter):
    """A mixin for adapters between two fixed libraries, such as `JaxToTorch`."""

    _pair: tuple[str, str]
    """The library of the environment and the library of the agent."""
    fixed_options: tuple[str, ...] = ("env_xp", "target_xp", "like")

    def __init__(self, env: Any, **options: Any) -> None:
        refuse_fixed(type(self), options)
        super().__init__(env, *self._pair, **options)  # type: ignore[call-arg]
        self._record(**options)


class NamedPairOnDevice(NamedPair):
    """A `NamedPair` whose constructor has a `device`, for agents in PyTorch."""

    fixed_options: tuple[str, ...] = (*NamedPair.fixed_options, "target_device")

    def __init__(self, env: Any, device: Device = None, **options: Any) -> None:
        refuse_fixed(type(self), options)
        super(NamedPair, self).__init__(env, *self._pair, target_device=device, **options)  # type: ignore[call-arg]
        self._record(device=device, **options)


def _library_name(library: Target | None) -> str | None:
    return None if library is None else af.registry.backend(library).name


_AS_TEXT: dict[str, Callable[[Any], str | None]] = {
    "env_xp": _library_name,
    "target_xp": _library_name,
    "info_xp": _library_name,
    "env_device": device_text,
    "target_device": device_text,
    "device": device_text,
    "reward_dtype": reward_dtype_of,
}
"""For each argument that is recorded as text, the function that returns the text."""


def converted_space_property(name: str) -> property:
    """Return a property for a space: the assigned space or, without one, the converted space of the environment."""

    def get(self: Any) -> Any:
        assigned = getattr(self, f"_{name}")
        return self._space(name) if assigned is None else assigned

    def put(self: Any, space: Any) -> None:
        setattr(self, f"_{name}", space)

    return property(get, put, doc=f"The environment's {name}, for arrays of the agent's library.")
