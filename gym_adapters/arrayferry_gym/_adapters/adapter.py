"""`Adapter`, the base class of the adapters for single environments and for vector environments."""

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
    """Return Gymnasium's class `ArrayConversion`. The adapters derive from it, so that `isinstance` accepts them.

    Args:
        module: the name of the module of Gymnasium that has the class.
        otherwise: the class to return if the module cannot be imported or has no `ArrayConversion`.
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
    """Define, by its signature, the arguments of the constructors of all adapters and their defaults."""


_PARAMETERS = inspect.signature(_everything).parameters
_DEFAULTS = {name: parameter.default for name, parameter in _PARAMETERS.items()}
_CONVERTING = {*inspect.signature(Libraries).parameters, *af.Options._fields}
"""The arguments of adapters that are passed to `Libraries`."""


def takes(*left_out: str) -> Callable[[Any], Any]:
    """Return a decorator for constructors with `**options`.

    The decorator sets the signature to all arguments of adapters except those in `left_out`.
    """

    def decorate(init: Any) -> Any:
        parameters = (parameter for name, parameter in _PARAMETERS.items() if name not in left_out)
        init.__signature__ = inspect.Signature([*parameters])
        return init

    return decorate


def arguments_of(base: type, adapter: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a constructor, except the environment, as a dict that includes defaults.

    Args:
        base: the class that defines the constructor.
        adapter: the new adapter. Errors name the class of the adapter.
        args: the positional arguments after the environment.
        options: the keyword arguments.

    Raises:
        arrayferry.OptionError: a name in `options` is not an argument of the constructor.
    """
    signature = inspect.signature(base.__init__)  # type: ignore[misc]
    unknown = {name: value for name, value in options.items() if name not in signature.parameters}
    refuse_unknown(unknown, base, type(adapter))
    bound = signature.bind(None, None, *args, **options)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name not in ("self", "env")}


class Adapter(Copied, RecordConstructorArgs, Judge):
    """The base class of adapters. It detects both libraries, fits actions and converts spaces."""

    fixed_options: tuple[str, ...] = ()
    """The names of the options that the class sets itself. Its constructor refuses them."""

    env: Any
    metadata: dict[str, Any]
    """The environment's metadata, except that the entry `"jax"` tells whether the adapter returns JAX arrays."""
    device: Any
    """The device that observations and infos are copied to, or None to leave them on their device."""
    _recorded = False
    _expected: tuple[Any, Any] = (None, None)
    """The action space of the environment, and the space that its actions are fitted to."""
    _note: str | None = None
    """The reason why the last action does not fit, if it was passed on to the environment. Otherwise None."""

    def _setup(self, env: Any, **arguments: Any) -> None:
        """Set up the libraries, and record the arguments."""
        for name, default in _DEFAULTS.items():
            if type(default) is bool:
                check_flag(name, arguments.get(name, default))
        check = arguments["check_actions"] = check_actions_of(arguments["check_actions"])
        if isinstance(env, ServesFunctional) and env.check_actions == "strict":
            check = "off"  # the environment itself refuses what an adapter would refuse
        self._check = check
        self._convert_render = arguments.get("convert_render", False)
        options = {name: value for name, value in arguments.items() if name in _CONVERTING}
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
        """Record the arguments of the constructor for `spec`, as values that JSON supports."""
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
        """The library of the environment.

        Before the first observation, it is `env_xp` or, if `env_xp` is None, JAX for an environment with the metadata
        `{"jax": True}` and NumPy for any other environment.
        """
        return self._libraries.env.target

    @property
    def target_backend(self) -> af.Backend | None:
        """The library of the agent, or None until it is known."""
        return self._libraries.target_backend

    def _space(self, name: str) -> Any:
        """Return the converted space of an attribute of the environment, such as `action_space`.

        A space that the environment has replaced is converted again.
        """
        original = self._original(name)
        converted = self._converted.get(name)
        if converted is None or converted.original is not getattr(original, "original", original):
            if not isinstance(original, Space):
                return original
            converted = self._converted[name] = converted_space(original, self._libraries)
        return converted

    def _original(self, name: str) -> Any:
        """Return a space of the environment without a conversion."""
        return getattr(self.env, name)

    def _fit(self, action: AnyTree) -> Any:
        """Convert an action and fit it with all checks. If possible, store a quick way for later actions."""
        __tracebackhide__ = True
        libraries = self._libraries
        if self._check == "off":
            return libraries.to_env(action)
        space = self._expected_space()
        num_envs = self.env.num_envs if isinstance(self.env, VectorEnv) else None
        strict = self._check == "strict"
        backend_before = libraries.target_backend
        try:
            converted = libraries.to_env(action)
            # quick ways do not detect libraries, so those for the agent's former library are deleted
            if libraries.target_backend is not backend_before:
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
            serves_functional = isinstance(self.env, ServesFunctional)
            way = quick_way(action, fitted, space, libraries.env, any_library=serves_functional)
            self._quick.learn(action, fitted, way)
        return fitted

    def _expected_space(self) -> Any:
        """Return the space that actions are fitted to. In a vector environment, it contains batches of actions."""
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
        """Add a note to an error of the environment if the last action was passed on although it does not fit."""
        if self._note is not None:
            error.add_note(self._note)

    def render(self) -> Any:
        """Render the environment. The frames are converted if the option `convert_render` is True."""
        frames = self.env.render()
        return self._libraries.to_agent(frames) if self._convert_render else frames

    def _has_begun(self) -> bool:
        return self._libraries.observed is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_converted": {}}

    def _reset_options(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Convert a reset's options to the environment's library, except values that cannot be converted."""
        self._libraries.observed = None  # it is detected again
        if not options:
            return options
        backend = self._libraries.env.target
        converted: dict[str, Any] = af.convert(options, backend, unsupported="keep")
        return converted

    def _check_space(self) -> None:
        """Delete the quick ways if the environment has replaced its action space."""
        space_before = self._expected[0]
        if space_before is not None and space_before is not self._original("action_space"):
            self._forget_ways()

    def _observe(self, observation: AnyTree) -> None:
        """Detect the library of the environment from an observation."""
        conversion_before = self._libraries.env
        self._libraries.observe(observation)
        if self._libraries.env is not conversion_before:
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
    """A `NamedPair` whose constructor has the argument `device`, for agents in PyTorch."""

    fixed_options: tuple[str, ...] = (*NamedPair.fixed_options, "target_device")

    def __init__(self, env: Any, device: Device = None, **options: Any) -> None:
        refuse_fixed(type(self), options)
        super(NamedPair, self).__init__(env, *self._pair, target_device=device, **options)  # type: ignore[call-arg]
        self._record(device=device, **options)


def _library_name(library: Target | None) -> str | None:
    return None if library is None else af.registry.backend(library).name


_AS_TEXT: dict[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(("env_xp", "target_xp", "info_xp"), _library_name),
    **dict.fromkeys(("env_device", "target_device", "device"), device_text),
    "reward_dtype": reward_dtype_of,
}
"""For each argument that is recorded as text, the function that converts it to text."""


def converted_space_property(name: str) -> property:
    """Return a property for a space. Its value is the assigned space or, by default, the environment's, converted."""

    def get(self: Any) -> Any:
        assigned = getattr(self, f"_{name}")
        return self._space(name) if assigned is None else assigned

    def put(self: Any, space: Any) -> None:
        setattr(self, f"_{name}", space)

    return property(get, put, doc=f"The environment's {name}, for arrays of the agent's library.")
