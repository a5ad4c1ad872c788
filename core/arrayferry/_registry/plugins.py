"""`PluginManager`: pluggy's, for one registry. It asks each plugin alone for its parts, so that a faulty one affects no other."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import pluggy

from arrayferry._errors import PluginError
from arrayferry._plugin import hookspecs
from arrayferry._plugin.hookspecs import HOOKS

from .checks import check_part, near_misses
from .discovery import CHOICE, describe_failure, describe_plugin, installed_plugins, is_ours, trust

_ADVICE = f"The hooks are {', '.join(HOOKS)}, without arguments."
FUNCTIONS = (FunctionType, MethodType, staticmethod, classmethod)
"""What pluggy takes for a hook."""


class Contribution(NamedTuple):
    """One part of a plugin.

    Attributes:
        hook: the name of the hook that returned it.
        part: the backend, converter, container or source.
        plugin: the name of the plugin.
        point: the entry point of the plugin, None if it was registered at run time.
        turn: sorts parts that claim names and types. Those of built-in plugins come first, then those of other
            installed ones, by `tryfirst`, `trylast` and name, and then those registered at run time, in this order.
    """

    hook: str
    part: Any
    plugin: str
    point: EntryPoint | None = None
    turn: tuple[int, int, str] = (0, 0, "")

    @property
    def name(self) -> str:
        """The name of a backend or source, or of the class of a container."""
        return str(getattr(self.part, "name", type(self.part).__qualname__))

    def __str__(self) -> str:
        role = HOOKS[self.hook].__name__.lower()
        return f"the {role} {self.name!r} of {describe_plugin(self.plugin, self.point)}"


class LeftOut(NamedTuple):
    """An installed plugin that is not used, or a part of a plugin that is not used.

    Attributes:
        name: the name of the plugin or of the part.
        why: the reason.
        plugin: the name of the plugin.
        broken: whether the reason is a fault, not a choice of the user.
    """

    name: str
    why: str
    plugin: str
    broken: bool = True


class PluginManager(pluggy.PluginManager):
    """The plugins of a registry, as pluggy manages them: `arrayferry.registry.manager`.

    Its methods are those of `pluggy.PluginManager`. A change takes effect at once, also in converters that exist. A
    single backend, converter, container or source can be registered too, as a module whose hook returns it.

    Args:
        registry: the registry, whose lock is held during a change.

    Attributes:
        at_run_time: what was registered at run time, by its name.
        left_out: the installed plugins that are not used.

    Examples:
        >>> import arrayferry as af
        >>> manager = af.Registry().manager
        >>> manager.get_plugin("scipy").__name__
        'arrayferry_plugins.scipy_'
        >>> manager.set_blocked("scipy")
        >>> manager.has_plugin("scipy"), manager.unblock("scipy"), manager.has_plugin("scipy")
        (False, True, True)
    """

    def __init__(self, registry: Any) -> None:
        super().__init__(hookspecs.PROJECT)
        self.add_hookspecs(hookspecs)
        self._registry = registry
        self._parts: dict[str, list[Contribution]] = {}
        self.at_run_time: dict[str, Any] = {}
        self.left_out: list[LeftOut] = []
        self._blocked: set[str] = set()
        self._turns = itertools.count(2)

    def register(self, plugin: Any, name: str | None = None) -> str | None:
        """Register a plugin, or a single part.

        Args:
            plugin: a module or object with hooks, or a part.
            name: its name. By default, it is made of the name of the module or the class.

        Returns:
            The name; None if it is blocked, so that nothing was registered.

        Raises:
            PluginError: the plugin is faulty or registered already, or a name or type is taken.
        """
        with self._registry.lock:
            _ = self._registry.catalog  # installed plugins come first
            name = name or self.get_canonical_name(plugin)
            if self.is_blocked(name):
                return None
            self.add(plugin, name)
            return name

    def unregister(self, plugin: Any = None, name: str | None = None) -> Any:
        """Unregister a plugin by itself or by its name, and return it. `refresh` loads an installed one again."""
        with self._registry.lock:
            known = self.get_name(plugin) if name is None else name
            if known is None or not self.has_plugin(known):
                return super().unregister(plugin, name)
            self._registry.invalidate()
            try:
                return self._forget(known)
            except BaseException:  # an interrupt
                self._forget(known)
                raise

    def set_blocked(self, name: str) -> None:
        """Unregister the plugin of a name, and register none of that name until `unblock`."""
        with self._registry.lock:
            self._registry.invalidate()
            self._blocked.add(name)
            super().set_blocked(name)

    def unblock(self, name: str) -> bool:
        """Undo `set_blocked`, and load an installed plugin of that name, unless `ARRAYFERRY_PLUGINS` leaves it out.

        Returns:
            Whether the name was blocked.
        """
        with self._registry.lock:
            self._blocked.discard(name)
            blocked = super().unblock(name)
            if blocked:
                self._registry.refresh()
            return blocked

    def get_name(self, plugin: Any) -> str | None:
        """Return the name of a plugin or of a part that was registered alone, None if it is not registered."""
        for name, known in self.list_name_plugin():
            if plugin is not None and (plugin is known or plugin is self.at_run_time.get(name)):
                return name
        return None

    def get_canonical_name(self, plugin: Any) -> str:
        """Return a name for a plugin: that of its module or class, with a number if it is taken."""
        name = getattr(plugin, "__name__", None) or type(plugin).__qualname__
        taken = {known for known, _ in self.list_name_plugin()}
        names = (f"{name}-{number}" for number in itertools.count(2))
        return next(each for each in itertools.chain([name], names) if each not in taken)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a function that is marked as a hook, or whose name begins with `arrayferry_`."""
        if not _is_function(plugin, name):
            return None
        options: Any = super().parse_hookimpl_opts(plugin, name)
        if options is None and not name.startswith("arrayferry_"):
            return None
        return cast(pluggy.HookimplOpts, {**(options or {}), "specname": None})

    def add(self, plugin: Any, name: str, point: EntryPoint | None = None) -> list[Contribution]:
        """Register a plugin, and return its parts. If it fails, nothing of it is left.

        Args:
            plugin: the plugin, or a single part.
            name: its name.
            point: its entry point. If it is given, no new catalog is made.

        Raises:
            PluginError: the plugin is faulty or registered already, or a name or type is taken.
        """
        known = self.get_plugin(name) or self.at_run_time.get(name)
        if known is not None:
            raise PluginError(f"the name {name!r} is taken by {known!r:.80}", remedy="Use another.")
        before = self._registry.current
        try:
            held = _as_plugin(plugin, name)
            try:
                super().register(held, name)
                self.check_pending()
            except (ValueError, pluggy.PluginValidationError) as error:
                reason = " ".join(str(error).partition("\n{")[0].split())
                remedy = "" if isinstance(error, ValueError) else _ADVICE
                raise PluginError(reason, remedy=remedy) from error
            self._parts[name] = parts = self._ask(held, name, point)
            if point is None:
                self.at_run_time[name] = plugin
                self._registry.update(name)
        except BaseException:
            self._forget(name)
            if self._registry.current is not before:
                self._registry.invalidate()
            raise
        return parts

    def load(self, point: EntryPoint) -> list[Contribution]:
        """Load an installed plugin without a new catalog, and return its parts.

        Raises:
            PluginError: it is faulty, or raised any error, even `SystemExit`. The reason names the line.
        """
        try:
            return self.add(point.load(), point.name, point)
        except (KeyboardInterrupt, PluginError):
            raise
        except BaseException as error:
            raise PluginError(describe_failure(error, point)) from error

    def _ask(self, plugin: Any, name: str, point: EntryPoint | None) -> list[Contribution]:
        """Call the hooks of one plugin, and check the parts. Those of built-in plugins are checked by tests instead."""
        built_in = point is not None and is_ours(point)
        group = next(self._turns) if point is None else int(not built_in)
        others = [each for each in self.get_plugins() if each is not plugin]
        calls = [(hook, call) for hook, call in self._calls() if call.plugin is plugin]
        if not calls:
            raise PluginError(
                f"{plugin!r:.80} is not a Backend, Converter, Container or Source, and implements no hook",
                remedy=f"Register an instance of one, or a plugin with hooks. {_ADVICE}",
            )
        found: list[Contribution] = []
        silent: list[str] = []  # the hooks that returned None, which pluggy ignores
        for hook, call in calls:
            if call.wrapper or call.hookwrapper:
                mark = "wrapper=True" if call.wrapper else "hookwrapper=True"
                raise PluginError(
                    f"{hook}() of the plugin {name!r} is marked with {mark}, but the hooks of each plugin are called "
                    "separately, so there is nothing to wrap",
                    remedy=f"Remove {mark} from its hookimpl, and return what the plugin brings.",
                )
            turn = (group, call.trylast - call.tryfirst, name)
            results = self.subset_hook_caller(hook, others)()
            silent += [] if results else [hook]
            parts = itertools.chain(*(_of_kind(each, hook) for each in results))
            found += [Contribution(hook, part, name, point, turn) for part in parts]
        if silent and not found:
            raise PluginError(
                f"{silent[0]} returned None, where a list of {HOOKS[silent[0]].__name__} is expected",
                remedy="Write return before the list, and return [] for none.",
            )
        for each in found:
            if built_in:
                trust(each.part)
                continue
            check_part(each.part)
            for text in near_misses(each.part):
                self._registry.warn(text)
        return found

    def _forget(self, name: str) -> Any:
        """Remove a plugin without a new catalog, and return what was registered."""
        plugin = super().unregister(name=name)
        for hook, caller in list(vars(self.hook).items()):
            if not caller.has_spec() and not caller.get_hookimpls():
                delattr(self.hook, hook)
        plugin = self.at_run_time.pop(name, plugin)
        self._parts.pop(name, None)
        return plugin

    def reload(self) -> None:
        """Load the installed plugins. Those registered at run time come after them, as before."""
        for name, plugin in self.list_name_plugin():
            if plugin is not None:
                super().unregister(name=name)
            elif name not in self._blocked:
                super().unblock(name)
        kept = self.at_run_time.copy()  # a plugin that is being loaded may register more
        self._parts = {name: self._parts[name] for name in kept}
        self.left_out = []
        for point, allowed in installed_plugins(self._registry.warn):
            name = point.name
            if allowed and name not in self._blocked:
                try:
                    self.load(point)
                except PluginError as error:
                    home, text = describe_plugin(name, point), str(error).rstrip(".")
                    why = f"arrayferry left out {home} ({point.value}): {text}"
                    self.left_out.append(LeftOut(name, why, name))
                    self._registry.warn(why)
            elif name not in self.at_run_time:
                super().set_blocked(name)
        for name, plugin in kept.items():
            super().register(_as_plugin(plugin, name), name)

    def blocked(self) -> Iterator[LeftOut]:
        """Yield the plugins that are blocked, by the user or by the environment variable."""
        for name, plugin in self.list_name_plugin():
            if plugin is None:
                not_named = f"installed, but {CHOICE} does not name it"
                why = "blocked" if name in self._blocked else not_named
                yield LeftOut(name, f"the plugin of that name is {why}", name, broken=False)

    def contributions(self) -> list[Contribution]:
        """Return the parts of all plugins, in the order in which pluggy calls their hooks."""
        return [
            each
            for hook, call in self._calls()
            for each in self._parts.get(call.plugin_name, ())
            if each.hook == hook
        ]

    def _calls(self) -> Iterator[tuple[str, pluggy.HookImpl]]:
        """Yield the functions of all plugins with their hooks, in the order in which pluggy calls them."""
        for hook in HOOKS:
            for call in reversed(getattr(self.hook, hook).get_hookimpls()):
                yield hook, call


def _is_function(plugin: Any, name: str) -> bool:
    """Return whether an attribute is a function, without evaluating it."""
    known = vars(plugin).get(name) if isinstance(plugin, ModuleType) else None
    return isinstance(known or inspect.getattr_static(plugin, name, None), FUNCTIONS)


def _as_plugin(plugin: Any, name: str) -> Any:
    """Return a plugin for pluggy, which keeps plugins in sets.

    A single part, or an object that defines equality, becomes a module with its hooks.
    """
    hooks: list[str] = [hook for hook, kind in HOOKS.items() if isinstance(plugin, kind)]
    by_identity: bool = getattr(type(plugin), "__eq__", None) is object.__eq__
    if not hooks and plugin is not None and by_identity:
        return plugin
    names = [each for each in dir(plugin) if _is_function(plugin, each) and each[:2] != "__"]
    module = ModuleType(name)
    vars(module).update({each: getattr(plugin, each) for each in names if not hooks})
    vars(module).update(dict.fromkeys(hooks, lambda: [plugin]))
    return module


def _of_kind(parts: object, hook: str) -> Iterator[Any]:
    """Yield the parts that a hook returned. An error is raised for a part of another type."""
    kind = HOOKS[hook]
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        raise PluginError(
            f"{hook} returned {parts!r:.80}, where a list of {kind.__name__} is expected"
        )
    for part in parts:
        if not isinstance(part, kind):
            raise PluginError(
                f"{hook} returned {part!r:.80}, where a {kind.__name__} is expected",
                remedy=f"Return instances of subclasses of arrayferry.{kind.__name__}.",
            )
        yield part
