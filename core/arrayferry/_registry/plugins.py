"""`PluginManager`: the pluggy manager of a registry. It calls each plugin alone, so a faulty one affects no other."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import pluggy

from arrayferry._errors import PluginError
from arrayferry._plugin import hookspecs
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._plugin.origin import NEVER_CAUGHT
from arrayferry._utilities.text import type_name

from .discovery import (
    CHOICE,
    Installed,
    announced_hooks,
    describe_failure,
    describe_plugin,
    import_plugins,
    is_ours,
    trust,
)

_NONE: Mapping[str, object] = MappingProxyType({})
_MARK = f"{hookspecs.PROJECT}_impl"
"""The attribute of a function in which pluggy's `hookimpl` stores its options."""
_FUNCTIONS = (FunctionType, MethodType, staticmethod, classmethod)
"""The types of objects that pluggy accepts as hooks."""


class Contribution(NamedTuple):
    """One part of a plugin.

    Attributes:
        hook: the name of the hook that returned the part.
        part: the backend, converter, container or source, or the part of a layer's hook.
        plugin: the name of the plugin.
        point: the entry point of the plugin, or None if the plugin was registered at run time.
        priority: a sort key for the order in which parts claim names and types: built-in plugins first, then other
            installed plugins by `tryfirst`, `trylast` and name, then plugins registered at run time, oldest first.
        kind: the class of the parts of the hook, or None for the hook of a layer.
    """

    hook: str
    part: Any
    plugin: str
    point: EntryPoint | None = None
    priority: tuple[int, int, str] = (0, 0, "")
    kind: type[Any] | None = None

    @property
    def name(self) -> str:
        """The `name` of the part, or the name of its class for a part without `name`, such as a container."""
        return str(getattr(self.part, "name", type(self.part).__qualname__))

    def __str__(self) -> str:
        role = self.kind.__name__.lower() if self.kind else f"part of {self.hook} for"
        return f"the {role} {self.name!r} of {describe_plugin(self.plugin, self.point)}"


class LeftOut(NamedTuple):
    """An installed plugin that is not used, or a part of a plugin that is not used.

    Attributes:
        name: the name of the plugin or of the part.
        why: the reason.
        plugin: the name of the plugin.
        broken: whether the reason is a fault. If False, the plugin is blocked, or the part is replaced.
    """

    name: str
    why: str
    plugin: str
    broken: bool = True


class _Registered(NamedTuple):
    """A registered plugin.

    Attributes:
        original: the object that was passed to `register`: a plugin, or a single part.
        stand_in: the object that is registered in pluggy: `original`, or a module with the hooks of `original`.
        point: the entry point of the plugin, or None if it was registered at run time.
        priority: the first number in `Contribution.priority`: 0 for a built-in plugin, 1 for another installed plugin,
            and 2 or more for a plugin registered at run time.
        parts: the parts of the plugin.
    """

    original: Any
    stand_in: Any
    point: EntryPoint | None
    priority: int
    parts: list[Contribution]


LayerCall = tuple[str, pluggy.HookImpl, _Registered]
"""A function that a plugin has for the hook of a layer: the name of the hook, the function, and the plugin."""


class PluginManager(pluggy.PluginManager):
    """The plugins of a registry, as pluggy manages them: `arrayferry.registry.manager`.

    Its methods are those of `pluggy.PluginManager`. A change takes effect at once, also in existing conversions. A
    single backend, converter, container or source can be registered too. pluggy gets a module whose hook returns it.

    Args:
        registry: the registry, whose lock is held during a change.
        autoload: whether to look for installed plugins.

    Attributes:
        layers: for each hook that an installed layer announces, the entry point of the class of its parts.
        left_out: the installed plugins that could not be registered.
        warn: a function that issues a warning. It issues each text only one time.

    Examples:
        >>> import arrayferry as af
        >>> manager = af.Registry().manager
        >>> manager.get_plugin("scipy").__name__
        'arrayferry_plugins.scipy_'
        >>> manager.set_blocked("scipy")
        >>> manager.has_plugin("scipy"), manager.unblock("scipy"), manager.has_plugin("scipy")
        (False, True, True)
    """

    def __init__(self, registry: Any, autoload: bool) -> None:
        super().__init__(hookspecs.PROJECT)
        self.add_hookspecs(hookspecs)
        self._registry = registry
        self._autoload = autoload
        self.warn: Callable[[str], None] = registry.warn
        self._registered: dict[str, _Registered] = {}
        self._unfinished: set[str] = set()  # the names of plugins that are being registered
        self.layers: Mapping[str, EntryPoint] = {}
        self.left_out: list[LeftOut] = []
        self._user_blocked: set[str] = set()
        self._priorities = itertools.count(2)

    def register(
        self, plugin: Any, name: str | None = None, parts: Mapping[str, object] | None = None
    ) -> str | None:
        """Register a plugin, or a single part.

        Args:
            plugin: a module or object with hooks, or a part.
            name: the name of the plugin. Default: the name of the module or class, with a number if that name is taken.
            parts: further parts of the plugin, by the name of the layer's hook.

        Returns:
            The name, or None if nothing was registered because the name is blocked.

        Raises:
            PluginError: the plugin is faulty or registered already, or a name or type is taken.
        """
        _ = self._registry.catalog  # this loads the installed plugins first
        if not isinstance(name, str | None):
            raise PluginError(f"the name of a plugin must be a string, and not {name!r:.80}")
        with self._registry.lock:
            name = name or self.get_canonical_name(plugin)
            if self.is_blocked(name):
                return None
            self.add(plugin, name, parts=parts or {})
            return name

    def unregister(self, plugin: Any = None, name: str | None = None) -> Any:
        """Unregister a plugin, and return it. Pass the plugin or its name.

        If the plugin is installed, `Registry.refresh` loads it again.
        """
        with self._registry.lock:
            registered_name = self.get_name(plugin) if name is None else name
            if registered_name is None or not self.has_plugin(registered_name):
                return super().unregister(plugin, name)
            self._registry.invalidate()
            try:
                return self._forget(registered_name)
            except BaseException:  # an interrupt may leave the plugin half removed: remove the rest
                self._forget(registered_name)
                raise

    def set_blocked(self, name: str) -> None:
        """Unregister the plugin with a name. No plugin with this name can be registered until `unblock` is called."""
        with self._registry.lock:
            self._registry.invalidate()
            self._user_blocked.add(name)
            super().set_blocked(name)

    def unblock(self, name: str) -> bool:
        """Undo `set_blocked`, and load an installed plugin of that name, unless `ARRAYFERRY_PLUGINS` leaves it out.

        Returns:
            Whether the name was blocked.
        """
        with self._registry.lock:
            self._user_blocked.discard(name)
            was_blocked = super().unblock(name)
        if was_blocked:
            self._registry.refresh()
        return was_blocked

    def get_name(self, plugin: Any) -> str | None:
        """Return the name of a plugin or of a part that was registered alone, or None if it is not registered."""
        for name, registered in list(self._registered.items()):
            if plugin is not None and (
                plugin is registered.original or plugin is registered.stand_in
            ):
                return name
        return None

    def is_registered(self, plugin: Any) -> bool:
        """Return whether a plugin, or a part that was registered alone, is registered."""
        return self.get_name(plugin) is not None

    def is_at_run_time(self, name: str) -> bool:
        """Return whether the plugin of a name was registered at run time."""
        return name in self._registered and self._registered[name].point is None

    def get_canonical_name(self, plugin: Any) -> str:
        """Return a name for a plugin: the name of its module or class, with a number if that name is taken."""
        name = getattr(plugin, "__name__", None)
        if not name or not isinstance(name, str):
            name = type(plugin).__qualname__
        taken_names = {taken for taken, _ in self.list_name_plugin()}
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        return next(each for each in itertools.chain([name], numbered) if each not in taken_names)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a hook, or None for an attribute that is no hook.

        A hook is a function that is marked by `hookimpl`, or whose name, `arrayferry_...`, is the name of a hook.
        """
        members = vars(plugin) if isinstance(plugin, ModuleType) else _NONE
        value = members[name] if name in members else inspect.getattr_static(plugin, name, None)
        if not isinstance(value, _FUNCTIONS):  # for example a property, which is not evaluated here
            meant_as_hook = name in HOOKS or _MARK in getattr(value, "__dict__", ())
            if meant_as_hook and callable(value) and not isinstance(value, type):
                raise PluginError(  # without this error, pluggy would silently leave the hook out
                    f"the hook {name} of {plugin!r:.80} is a {type_name(type(value))}, which pluggy would not call, "
                    "since it only calls functions",
                    remedy=f"Write a function that calls the object: def {name}(): return ...",
                )
            return None
        # the options of a method are an attribute of its function, where pluggy 1.5 does not look
        function = getattr(value, "__func__", None)
        options: Any = getattr(value, _MARK, None) or getattr(function, _MARK, None)
        if options is None and not name.startswith("arrayferry_"):
            return None
        if options is None and name not in HOOKS and name not in self.layers:
            problem = (
                f"arrayferry does not use {name}() of {plugin!r:.80}, since there is no such hook. "
            )
            self.warn(problem + self.advice(name))
            return None
        return cast(pluggy.HookimplOpts, {**(options or {}), "specname": None})

    def advice(self, name: str = "") -> str:
        """Return a text that lists all hooks. If `name` is similar to that of a hook, the text suggests that hook."""
        import difflib

        nearest_hooks = difflib.get_close_matches(name, [*HOOKS, *self.layers], n=1)
        hint = f"Did you mean {nearest_hooks[0]}? " if nearest_hooks else ""
        layer_hooks = ", ".join(sorted(self.layers)) or "none"
        return f"{hint}The hooks are {', '.join(HOOKS)}, and those of layers: {layer_hooks}. They take no arguments."

    def check_pending(self, plugin: object = None) -> None:
        """Check that each function marked as a hook has the name of a hook, except those with `optionalhook=True`.

        Args:
            plugin: the plugin whose functions are checked, or None for all.

        Raises:
            PluginError: a function does not have the name of a hook.
        """
        for hook, impl in self._calls(list(vars(self.hook)), plugin):
            if hook not in HOOKS and hook not in self.layers and not impl.optionalhook:
                raise PluginError(
                    f"unknown hook {hook!r} in {impl.plugin!r:.80}",
                    remedy=f"{self.advice(hook)} If the package that calls this hook may be missing, mark the function "
                    "with hookimpl(optionalhook=True).",
                )

    def add(
        self,
        plugin: Any,
        name: str,
        point: EntryPoint | None = None,
        parts: Mapping[str, object] = _NONE,
    ) -> list[Contribution]:
        """Register a plugin, and return its parts. After an error, nothing of the plugin is registered.

        Args:
            plugin: the plugin, or a single part.
            name: the name of the plugin.
            point: the entry point of an installed plugin, or None for a plugin registered at run time. With None, a new
                catalog is made.
            parts: further parts of the plugin, by the name of the layer's hook.

        Raises:
            PluginError: the plugin is faulty or registered already, or a name or type is taken.
        """
        if name in self._registered:
            other_plugin = self._registered[name].original
            raise PluginError(
                f"the name {name!r} is taken by {other_plugin!r:.80}", remedy="Use another name."
            )
        if (registered_name := self.get_name(plugin)) is not None:
            raise PluginError(f"{plugin!r:.80} is already registered, as {registered_name!r}")
        catalog_before = self._registry.current
        try:
            self._unfinished.add(name)
            stand_in = _as_plugin(plugin, name, parts)
            priority = next(self._priorities) if point is None else int(not is_ours(point))
            added = self._registered[name] = _Registered(plugin, stand_in, point, priority, [])
            super().register(stand_in, name)
            self.check_pending(stand_in)
            impls = self._calls(list(vars(self.hook)), stand_in)
            if not impls:
                raise PluginError(
                    f"{plugin!r:.80} is not a Backend, Converter, Container or Source and implements no hook, "
                    "so it is no plugin",
                    remedy=f"Register an instance of one of these classes, or a plugin with hooks. {self.advice()}",
                )
            # `filter`, since an interrupt in a comprehension may skip `except` in Python 3.12 and newer
            added.parts.extend(self._ask(added, list(filter(lambda pair: pair[0] in HOOKS, impls))))
            if point is None:
                self._registry.update(name, parts)
        except BaseException as error:
            self._forget(name)
            if self._registry.current is not catalog_before:
                self._registry.invalidate()
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(" ".join(str(error).split()), remedy=self.advice()) from error
            raise
        finally:
            self._unfinished.discard(name)
        return added.parts

    def load(self, point: EntryPoint) -> list[Contribution]:
        """Load an installed plugin without making a new catalog, and return its parts.

        Raises:
            PluginError: the plugin is faulty, or raised any error, even `SystemExit`. The reason names the line that
                failed.
        """
        try:
            return self.add(point.load(), point.name, point)
        except NEVER_CAUGHT:
            raise
        except BaseException as error:
            raise PluginError(describe_failure(error, point)) from error

    def _ask(
        self, plugin: _Registered, calls: Iterable[tuple[str, pluggy.HookImpl]], kind: type = object
    ) -> list[Contribution]:
        """Call some hooks of one plugin alone, and check the parts that they return.

        Parts of built-in plugins are not checked, since tests check them.

        Args:
            plugin: the plugin.
            calls: pairs of the name of a hook and the function of the plugin for this hook.
            kind: the class of the parts of a layer's hook.
        """
        contributions: list[Contribution] = []
        silent_hook = (
            ""  # the name of a hook that returned None, which pluggy leaves out of results
        )
        for hook, impl in calls:
            for mark in ("wrapper", "hookwrapper"):
                if getattr(impl, mark):
                    raise PluginError(
                        f"{hook}() of the plugin {impl.plugin_name!r} is marked with {mark}=True, which is not "
                        "supported, since each plugin is called separately",
                        remedy=f"Remove {mark}=True from its hookimpl, and return the parts of the plugin.",
                    )
            # call this plugin alone, since the hook itself would call all registered plugins
            results: Any = self._hookexec(hook, [impl], {}, False)
            if not results:
                silent_hook = hook
                continue
            priority = (plugin.priority, impl.trylast - impl.tryfirst, impl.plugin_name)
            part_type = HOOKS.get(hook)
            for part in _of_kind(results[0], hook, part_type or kind):
                new_part = Contribution(
                    hook, part, impl.plugin_name, plugin.point, priority, part_type
                )
                contributions.append(new_part)
        if silent_hook and not contributions:
            _of_kind(None, silent_hook, HOOKS.get(silent_hook, kind))
        if plugin.priority == 0:
            trust(contribution.part for contribution in contributions)
            return contributions
        from .checks import check_part, near_misses

        for contribution in contributions:
            check_part(contribution.part, kind)
            for warning in near_misses(contribution.part, kind):
                self.warn(warning)
        return contributions

    def layer_calls(self) -> list[LayerCall]:
        """Return the functions for the hooks of layers, in the order in which pluggy calls them."""
        impls = self._calls(self.layers)
        return [(hook, impl, self._registered[impl.plugin_name]) for hook, impl in impls]

    def of_layer(
        self, hook: str, calls: Iterable[LayerCall], kind: type, refuse: str
    ) -> list[Contribution]:
        """Call the functions of plugins for a layer's hook one by one, and return the parts in the order of the calls.

        A plugin that fails, even by `SystemExit`, is left out with a warning.

        Args:
            hook: the name of the hook.
            calls: the functions of plugins for the hooks of all layers. Those for other hooks are skipped.
            kind: the class of the parts of the hook.
            refuse: the name of a plugin, or "". If this plugin fails, its error is raised.
        """
        contributions: list[Contribution] = []
        for _, impl, plugin in [call for call in calls if call[0] == hook]:
            try:
                contributions += self._ask(plugin, [(hook, impl)], kind)
            except NEVER_CAUGHT:
                raise
            except BaseException as error:
                if impl.plugin_name == refuse:
                    raise
                label = describe_plugin(impl.plugin_name, plugin.point)
                reason = describe_failure(error, plugin.point)
                self.warn(f"arrayferry left out {hook} of {label}: {reason}")
        return contributions

    def _forget(self, name: str) -> Any:
        """Remove a plugin without making a new catalog, and return the object that was registered."""
        plugin = super().unregister(name=name)
        for hook, hook_caller in list(vars(self.hook).items()):
            if not hook_caller.has_spec() and not hook_caller.get_hookimpls():
                delattr(self.hook, hook)
        registered = self._registered.pop(name, None)
        return plugin if registered is None else registered.original

    def forget_unfinished(self) -> None:
        """Remove the plugins that another thread was registering when the process forked."""
        while self._unfinished:
            self._forget(self._unfinished.pop())

    def find(self) -> Installed:
        """Import the installed plugins, and look up the hooks of layers. See `import_plugins`."""
        entries = entry_points()
        self.layers = announced_hooks(entries, self.warn)
        if not self._autoload:
            return Installed([], set(), set())
        return import_plugins(entries, self._user_blocked, self.warn)

    def take_choices(self, other: PluginManager) -> None:
        """Copy from another manager which plugins were registered at run time, and which names users blocked.

        Installed plugins are loaded later.
        """
        self._autoload = other._autoload
        self._registered = dict(other._registered)
        self._user_blocked = set(other._user_blocked)

    def reload(self, installed: Installed) -> None:
        """Register the installed plugins again, and after them the plugins that were registered at run time."""
        # copied now, since an installed plugin may register another plugin while it is loaded
        at_run_time = {name: each for name, each in self._registered.items() if each.point is None}
        for name, plugin in self.list_name_plugin():
            if plugin is not None:
                super().unregister(name=name)
            elif name not in self._user_blocked:
                super().unblock(name)
        plugins_before = [registered.original for registered in self._registered.values()]
        self._registered, self.left_out = dict(at_run_time), []
        for point, plugin, error in installed.plugins:
            self._registry.partial = None
            if self.is_blocked(point.name):
                continue
            try:
                if error is not None:
                    raise error
                with self._without_history(any(plugin is original for original in plugins_before)):
                    self.add(plugin, point.name, point)
            except NEVER_CAUGHT:
                raise
            except BaseException as raised:
                label, details = describe_plugin(point.name, point), describe_failure(raised, point)
                warning = f"arrayferry left out {label} ({point.value}): {details}"
                self.left_out.append(LeftOut(point.name, warning, point.name))
                self.warn(warning)
        for name in installed.blocked - self._registered.keys():
            super().set_blocked(name)
        for name, registered in at_run_time.items():
            with self._without_history(True):
                super().register(registered.stand_in, name)

    @contextmanager
    def _without_history(self, again: bool) -> Iterator[None]:
        """Return a context for registering a plugin. If `again` is true, pluggy does not call historic hooks for it."""
        historic_hooks = [hook for hook in vars(self.hook).values() if again and hook.is_historic()]
        histories = [hook._call_history for hook in historic_hooks]
        try:
            for hook in historic_hooks:
                hook._call_history = []
            yield
        finally:
            for hook, history in zip(historic_hooks, histories, strict=True):
                hook._call_history = history

    def blocked(self) -> Iterator[LeftOut]:
        """Yield the plugins that are blocked, by the user or by the environment variable."""
        for name, plugin in self.list_name_plugin():
            if plugin is None:
                unnamed_text = f"installed, but {CHOICE} does not name it"
                reason = "blocked" if name in self._user_blocked else unnamed_text
                yield LeftOut(name, f"the plugin of that name is {reason}", name, broken=False)

    def contributions(self) -> list[Contribution]:
        """Return the parts of all plugins, in the order in which pluggy calls their hooks."""
        return [
            contribution
            for hook, impl in self._calls(HOOKS)
            for contribution in self._registered[impl.plugin_name].parts
            if contribution.hook == hook
        ]

    def _calls(
        self, hooks: Iterable[str], plugin: object = None
    ) -> list[tuple[str, pluggy.HookImpl]]:
        """Return pairs of a hook's name and a function, of one plugin or all, in the order in which pluggy calls."""
        return [
            (hook, impl)
            for hook in hooks
            if (hook_caller := getattr(self.hook, hook, None)) is not None
            for impl in hook_caller.get_hookimpls()[::-1]
            if plugin is None or impl.plugin is plugin
        ]


def _as_plugin(plugin: Any, name: str, parts: Mapping[str, object]) -> Any:
    """Return the object that is registered in pluggy for a plugin.

    This is the plugin itself, or a module with its hooks. A module is needed for a single part, for a plugin with
    further parts, and for a plugin that defines `__eq__` or `__hash__`, since pluggy stores plugins in sets.
    """
    hooks: list[str] = [hook for hook, part_type in HOOKS.items() if isinstance(plugin, part_type)]
    methods = getattr(type(plugin), "__eq__", None), getattr(type(plugin), "__hash__", None)
    compares_identity: bool = methods == (object.__eq__, object.__hash__)
    if not hooks and not parts and plugin is not None and compares_identity:
        return plugin
    module = ModuleType(name)
    for attr_name in dir(plugin) if not hooks else ():
        attr_value = inspect.getattr_static(plugin, attr_name, None)
        if attr_name[:2] != "__":
            is_function = isinstance(attr_value, _FUNCTIONS)
            setattr(module, attr_name, getattr(plugin, attr_name) if is_function else attr_value)
    for hook, part in [*((hook, plugin) for hook in hooks), *parts.items()]:
        setattr(module, hook, hookspecs.hookimpl(lambda part=part: [part]))
    return module


def _of_kind(parts: object, hook: str, kind: type) -> list[Any]:
    """Return a list of the parts that a hook returned. Raise an error if a part is not of the class `kind`."""
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        raise PluginError(
            f"{hook} returned {parts!r:.80}, where a list of {kind.__name__} is expected",
            remedy="Write return before the list of parts, or return [] if there are none.",
        )
    part_list = list(parts)
    for part in part_list:
        if not isinstance(part, kind):
            raise PluginError(
                f"{hook} returned {part!r:.80}, where a {kind.__name__} is expected",
                remedy=f"Return instances of subclasses of {kind.__module__.partition('.')[0]}.{kind.__name__}.",
            )
    return part_list
