"""The contributions of a plugin: its hooks are called, and their results are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from arrayferry._errors import PluginError
from arrayferry._plugin.hooks import HOOKS

from .checks import check_part


class Plugin(NamedTuple):
    """A plugin, as messages name it.

    Attributes:
        name: the name of its entry point, or the name under which it was registered at run time.
        point: its entry point, None if it was registered at run time.
        built_in: whether it is included in arrayferry.
    """

    name: str
    point: EntryPoint | None = None
    built_in: bool = False

    def __str__(self) -> str:
        if self.point is None:
            return self.name
        dist = self.point.dist  # looked up only now, since that takes a while
        home = f"the distribution {dist.name}" if dist is not None else "an unknown distribution"
        return f"the plugin {self.name!r} of {home}"


class Contribution(NamedTuple):
    """One part of a plugin.

    Attributes:
        hook: the name of the hook that returned it.
        part: the backend, converter, container or source.
        plugin: the plugin.
        rank: -1 if the implementation of the hook is marked with `tryfirst`, 1 if with `trylast`, else 0.
    """

    hook: str
    part: Any
    plugin: Plugin
    rank: int = 0

    def __str__(self) -> str:
        return f"the {self.part.role.lower()} {self.part.name!r} of {self.plugin}"


class LeftOut(NamedTuple):
    """An installed plugin that is not used, or a backend or source of a plugin that is not used.

    Attributes:
        name: the name of the plugin or of the part.
        why: the reason.
        plugin: the plugin.
        broken: whether the reason is a fault, not a choice of the user.
    """

    name: str
    why: str
    plugin: Plugin
    broken: bool = True


def contributions(plugin: object, known: Plugin) -> list[Contribution]:
    """Call the hooks of a plugin and check their results. The parts of built-in plugins are checked by tests instead.

    Args:
        plugin: a module or object that implements hooks, or a single part.
        known: the plugin, as messages name it.

    Returns:
        The parts, in order of rank.

    Raises:
        PluginError: it implements no hook, an unknown one, or one that returns something wrong.
    """
    found = [
        Contribution(hook, plugin, known)
        for hook, kind in HOOKS.items()
        if isinstance(plugin, kind)
    ]
    if found:
        check_part(plugin)
        return found
    implementations = list(_implementations(plugin, known.name))
    if not implementations:
        raise PluginError(
            f"{plugin!r:.80} is not a Backend, Converter, Container or Source, and implements no hook",
            remedy=f"Register an instance of one, or a plugin with the hooks {', '.join(HOOKS)}.",
        )
    silent: list[str] = []  # the hooks that returned None: nothing, as for pluggy
    for hook in HOOKS:
        for rank, implemented, function in implementations:
            if implemented != hook:
                continue
            parts = function()
            if parts is None:
                silent.append(hook)
            else:
                found += [Contribution(hook, part, known, rank) for part in _of_kind(parts, hook)]
    if silent and not found:
        raise PluginError(
            f"{silent[0]} returned None, where a list of {HOOKS[silent[0]].__name__} is expected",
            remedy="Write return before the list, and return [] for none.",
        )
    for each in found if not known.built_in else ():
        check_part(each.part)
    return sorted(found, key=lambda each: each.rank)


def _implementations(plugin: object, name: str) -> Iterator[tuple[int, str, Callable[[], Any]]]:
    """Yield the rank, hook and function of each function that is marked as a hook or named like one."""
    for attribute in dir(plugin):
        function: Any = getattr(plugin, attribute, None)
        is_function = isinstance(function, (FunctionType, MethodType))
        options = getattr(function, "arrayferry_impl", None) if is_function else None
        if options is None:
            named = attribute.startswith("arrayferry_")
            if not named or not callable(function) or isinstance(function, type):
                continue
            options = {}
        hook: str = options.get("specname") or attribute
        for wrapper in ("wrapper", "hookwrapper"):
            if options.get(wrapper):
                raise PluginError(
                    f"{attribute}() of the plugin {name!r} is marked with {wrapper}=True, but the hooks of each "
                    "plugin are called separately, so there is nothing to wrap",
                    remedy=f"Remove {wrapper}=True from its hookimpl, and return what the plugin brings.",
                )
        try:
            inspect.signature(function).bind()
        except TypeError:
            raise PluginError(
                f"{attribute}() of the plugin {name!r} takes arguments, but hooks are called without any",
                remedy="Remove them.",
            ) from None
        if hook in HOOKS:
            yield options.get("trylast", False) - options.get("tryfirst", False), hook, function
        elif not options.get("optionalhook"):
            raise PluginError(
                f"it does not fit the hooks: unknown hook {hook!r} in the plugin {name!r}",
                remedy=f"The hooks are {', '.join(HOOKS)}.",
            )


def _of_kind(parts: object, hook: str) -> Iterator[Any]:
    """Yield the parts that a hook returned. An error is raised for a part of another type."""
    expected = HOOKS[hook]
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        raise PluginError(
            f"{hook} returned {parts!r:.80}, where a list of {expected.__name__} is expected"
        )
    for part in parts:
        if not isinstance(part, expected):
            raise PluginError(
                f"{hook} returned {part!r:.80}, where a {expected.__name__} is expected",
                remedy=f"Return an instance, {part.__name__}()."
                if isinstance(part, type) and issubclass(part, expected)
                else f"Return an instance of a subclass of arrayferry.{expected.__name__}.",
            )
        yield part
