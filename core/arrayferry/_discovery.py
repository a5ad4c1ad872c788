"""Finding plugins: the entry-point group `arrayferry`, each plugin guarded from the others.

Whatever a plugin does at import or in a hook, even `sys.exit`, only that plugin is left out, with
a `PluginWarning` that names its entry point, its distribution and the cause.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from . import _hookspecs
from ._backend import Backend
from ._container import Container
from ._converter import Converter
from ._errors import PluginError, PluginWarning

__all__ = ["GROUP", "HOOKS", "check_part", "contributions", "discover"]

GROUP = "arrayferry"
HOME = "arrayferry_plugins"

HOOKS: dict[str, type[Any]] = {
    "arrayferry_backends": Backend,
    "arrayferry_converters": Converter,
    "arrayferry_containers": Container,
}
"""The hooks, and what each gives."""


class _PluginManager(pluggy.PluginManager):
    """Takes a function of the name of a hook for its implementation, marked or not."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith("arrayferry_"):
            found = getattr(plugin, name, None)
            if callable(found) and not isinstance(found, type):
                return pluggy.HookimplOpts(
                    wrapper=False,
                    hookwrapper=False,
                    optionalhook=False,
                    tryfirst=False,
                    trylast=False,
                    specname=None,
                )
        return options


def contributions(plugin: object, name: str) -> dict[str, list[Any]]:
    """Ask one plugin what it gives, and look it over.

    Raises:
        PluginError: it implements no hook, one that there is not, or one that answers nonsense.
    """
    manager = _PluginManager(_hookspecs.PROJECT)
    manager.add_hookspecs(_hookspecs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        message = " ".join(str(error).split())
        raise PluginError(
            f"it does not fit the hooks: {message}", remedy=f"The hooks are {', '.join(HOOKS)}."
        ) from error
    given: dict[str, list[Any]] = {}
    implemented = False
    for hook, expected in HOOKS.items():
        answers: list[Any] = []
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            implemented = True
            answer = implementation.function()
            if answer is not None:
                answers.extend(_looked_over(answer, hook, expected))
        given[hook] = answers
    if not implemented:
        raise PluginError("it implements no hook", remedy=f"The hooks are {', '.join(HOOKS)}.")
    return given


def _looked_over(answer: object, hook: str, expected: type[Any]) -> Iterator[Any]:
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise PluginError(
            f"{hook} answered {answer!r:.80}, where a list of {expected.__name__} is expected"
        )
    for item in answer:
        if not isinstance(item, expected):
            raise PluginError(
                f"{hook} gave {item!r:.80}, where a {expected.__name__} is expected",
                remedy=f"Give an instance of a subclass of arrayferry.{expected.__name__}.",
            )
        check_part(item)
        yield item


def check_part(item: Any) -> None:
    """Look over one backend, converter or container that a plugin gave.

    Raises:
        PluginError: it lacks something, or something has the wrong type.
    """
    kind = type(item).__qualname__
    required = {Backend: ("name", "package"), Converter: ("source", "target")}
    for base, names in required.items():
        for name in names if isinstance(item, base) else ():
            value = getattr(item, name, None)
            if not isinstance(value, str) or not value:
                raise PluginError(
                    f"{base.__name__} {kind} has no {name}", remedy=f"Set {name} to a text."
                )
    if isinstance(item, Backend):
        types = getattr(item, "array_types", None)
        if (
            not isinstance(types, tuple)
            or not types
            or not all(isinstance(t, str) and "." in t for t in types)
        ):
            raise PluginError(
                f"Backend {kind} has array_types {types!r:.80}",
                remedy='Set array_types to dotted paths, such as ("torch.Tensor",).',
            )
        if item.memory not in ("writable", "immutable", "lazy", "unknown"):
            raise PluginError(
                f"Backend {kind} has memory {item.memory!r:.80}",
                remedy='Set memory to "writable", "immutable", "lazy" or "unknown".',
            )
    if isinstance(item, Converter) and item.cost not in ("share", "copy", "transfer", "compute"):
        raise PluginError(
            f"Converter {kind} has cost {item.cost!r:.80}",
            remedy='Set cost to "share", "copy", "transfer" or "compute".',
        )


def discover(add: Callable[[dict[str, list[Any]], object], None]) -> None:
    """Load the plugins of the entry-point group and hand on what each gives.

    Args:
        add: called for each plugin with what it gives and what names it in messages, the built-in ones
            first, then by name.
    """
    if os.environ.get("ARRAYFERRY_DISABLE_AUTOLOAD", "") not in ("", "0"):
        return
    points = sorted(
        set(entry_points(group=GROUP)), key=lambda point: (not _built_in(point), point.name)
    )
    wanted = os.environ.get("ARRAYFERRY_PLUGINS")
    if wanted is not None:
        names = [name.strip() for name in wanted.split(",") if name.strip()]
        _warn_of_unknown(names, [point.name for point in points])
        points = [point for point in points if point.name in names]
    for point in points:
        who = _Plugin(point)
        try:
            given = contributions(point.load(), point.name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            cause = (
                str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
            )
            warnings.warn(
                f"arrayferry left out {who} ({point.value}): {cause}",
                PluginWarning,
                stacklevel=2,
            )
            continue
        add(given, who)


def _built_in(point: EntryPoint) -> bool:
    return point.module.partition(".")[0] == HOME


class _Plugin:
    """Names a plugin in messages. Its distribution is looked up only for that, since it takes a while."""

    def __init__(self, point: EntryPoint) -> None:
        self.point = point

    def __str__(self) -> str:
        dist = self.point.dist
        home = f"the distribution {dist.name}" if dist is not None else "an unknown distribution"
        return f"the plugin {self.point.name!r} of {home}"


def _warn_of_unknown(names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            import difflib

            nearest = difflib.get_close_matches(name, known, n=1)
            guess = f" Did you mean {nearest[0]!r}?" if nearest else ""
            warnings.warn(
                f"ARRAYFERRY_PLUGINS names {name!r}, and no plugin of that name is installed.{guess}",
                PluginWarning,
                stacklevel=3,
            )
