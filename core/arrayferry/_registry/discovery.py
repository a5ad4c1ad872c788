"""Discovery of plugins in the entry-point group `arrayferry`, each isolated from the others.

If a plugin fails at import or in a hook, even by `sys.exit`, only that plugin is left out, with a
`PluginWarning` that names its entry point, its distribution and the cause.

What the plugins of this distribution bring is built in. That is recorded here, and does not depend on anything
that a plugin says about itself, such as the names of its classes and modules.
"""

from __future__ import annotations

import os
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pluggy

from arrayferry._errors import PluginError, PluginWarning, describe_error
from arrayferry._plugin import hookspecs
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.container import Container
from arrayferry._plugin.converter import Converter
from arrayferry._plugin.origin import Source

from .checks import check_part

__all__ = [
    "CHOICE",
    "DISABLE",
    "GROUP",
    "HOOKS",
    "Answer",
    "LeftOut",
    "Plugin",
    "chosen_plugins",
    "contributions",
    "describe_failure",
    "discover",
    "is_built_in",
    "is_disabled",
    "is_ours",
]

GROUP = "arrayferry"
DISTRIBUTION = "arrayferry"
HOME = "arrayferry_plugins"
CHOICE = "ARRAYFERRY_PLUGINS"
DISABLE = "ARRAYFERRY_DISABLE_AUTOLOAD"

HOOKS: dict[str, type[Any]] = {
    "arrayferry_backends": Backend,
    "arrayferry_converters": Converter,
    "arrayferry_containers": Container,
    "arrayferry_sources": Source,
}
"""The hooks, and the type of what each returns."""


class _PluginManager(pluggy.PluginManager):
    """Accepts a function with the name of a hook as its implementation, marked or not."""

    def __init__(self) -> None:
        super().__init__(hookspecs.PROJECT)
        self.add_hookspecs(hookspecs)
        self._registering: str | None = None

    def register(self, plugin: object, name: str | None = None) -> str | None:
        self._registering = name
        return super().register(plugin, name)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if isinstance(plugin, ModuleType) and not name.startswith("arrayferry_"):
            # most names of a module are skipped here, since pluggy takes long to look at them
            attribute = vars(plugin).get(name)
            if not isinstance(attribute, FunctionType) or not hasattr(attribute, "arrayferry_impl"):
                return None
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith("arrayferry_"):
            attribute = getattr(plugin, name, None)
            if callable(attribute) and not isinstance(attribute, type):
                options = pluggy.HookimplOpts(
                    wrapper=False,
                    hookwrapper=False,
                    optionalhook=False,
                    tryfirst=False,
                    trylast=False,
                    specname=None,
                )
        if options is not None and (options["wrapper"] or options["hookwrapper"]):
            wrapper = "wrapper" if options["wrapper"] else "hookwrapper"
            raise PluginError(
                f"{name}() of the plugin {self._registering!r} is marked with {wrapper}=True, but the hooks of each "
                "plugin are called separately, so there is nothing to wrap",
                remedy=f"Remove {wrapper}=True from its hookimpl, and return what the plugin brings.",
            )
        return options


class Answer(NamedTuple):
    """What one implementation of a hook returned.

    Attributes:
        hook: the name of the hook.
        parts: the backends, converters, containers or sources.
        rank: -1 if the implementation is marked with `tryfirst`, 1 if with `trylast`, else 0.
    """

    hook: str
    parts: list[Any]
    rank: int = 0


def contributions(plugin: object, name: str, manager: _PluginManager | None = None) -> list[Answer]:
    """Call the hooks of one plugin and check what they return.

    Args:
        plugin: the plugin.
        name: how messages refer to it.
        manager: one that no plugin is registered with. If this raises, do not use it again.

    Returns:
        What they return, in order of their ranks.

    Raises:
        PluginError: it implements no hook, an unknown one, or one that returns something wrong.
    """
    manager = manager or _PluginManager()
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        message = " ".join(str(error).split())
        raise PluginError(
            f"it does not fit the hooks: {message}", remedy=f"The hooks are {', '.join(HOOKS)}."
        ) from error
    answers = []
    implemented = False
    for hook, expected in HOOKS.items():
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            implemented = True
            answer = implementation.function()
            if answer is not None:
                rank = implementation.trylast - implementation.tryfirst
                answers.append(Answer(hook, list(_checked(answer, hook, expected)), rank))
    if not implemented:
        raise PluginError(
            f"{plugin!r:.80} is not a Backend, Converter, Container or Source, and implements no hook",
            remedy=f"Register an instance of one, or a plugin with the hooks {', '.join(HOOKS)}.",
        )
    manager.unregister(plugin)
    return sorted(answers, key=lambda answer: answer.rank)


def _checked(answer: object, hook: str, expected: type[Any]) -> Iterator[Any]:
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise PluginError(
            f"{hook} returned {answer!r:.80}, where a list of {expected.__name__} is expected"
        )
    for item in answer:
        if not isinstance(item, expected):
            raise PluginError(
                f"{hook} returned {item!r:.80}, where a {expected.__name__} is expected",
                remedy=f"Return an instance, {item.__name__}()."
                if isinstance(item, type) and issubclass(item, expected)
                else f"Return an instance of a subclass of arrayferry.{expected.__name__}.",
            )
        check_part(item)
        yield item


class LeftOut(NamedTuple):
    """A plugin that is installed but not used, or a backend or source of one.

    Attributes:
        name: the name of the plugin or of the part.
        why: the reason.
        who: the plugin; what it was registered as, if that was at run time.
        broken: whether that is a fault, and not a choice of the user.
    """

    name: str
    why: str
    who: object
    broken: bool

    @property
    def point(self) -> EntryPoint | None:
        """The entry point of the plugin, None if it was registered at run time."""
        return self.who.point if isinstance(self.who, Plugin) else None


def is_disabled() -> bool:
    """Tell whether the environment says that no installed plugin is loaded."""
    return os.environ.get(DISABLE, "") not in ("", "0")


def chosen_plugins() -> list[str] | None:
    """Return the names of the plugins that the environment variables select, None for all installed plugins."""
    if is_disabled():
        return []
    names = os.environ.get(CHOICE)
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def discover(add: Callable[[Answer, object], None]) -> list[LeftOut]:
    """Load the plugins of the entry-point group.

    Args:
        add: called with what each of their hooks returns and an object that names the plugin in messages, in
            order of rank. Of equal rank, built-in plugins come first, and then the order is that of the names.

    Returns:
        The plugins that are installed but were not loaded.
    """
    if is_disabled():
        return []
    left_out: list[LeftOut] = []
    ours = is_ours()
    points = sorted(set(entry_points(group=GROUP)), key=lambda point: (not ours(point), point.name))
    names = chosen_plugins()
    if names is not None:
        installed = [point.name for point in points]
        _warn_of_unknown(names, installed)
        why = "the plugin of that name is installed, but ARRAYFERRY_PLUGINS does not name it"
        others = [point for point in points if point.name not in names]
        left_out = [LeftOut(point.name, why, Plugin(point), False) for point in others]
        points = [point for point in points if point.name in names]
    manager = _PluginManager()  # making one takes a while
    collected: list[tuple[Answer, Plugin]] = []
    for point in points:
        who = Plugin(point)
        try:
            answers = contributions(point.load(), point.name, manager)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            manager = _PluginManager()
            why = f"arrayferry left out {who} ({point.value}): {describe_failure(error, point)}"
            left_out.append(LeftOut(point.name, why, who, True))
            warnings.warn(why, PluginWarning, stacklevel=2)
            continue
        if ours(point):
            for answer in answers:
                for part in answer.parts:
                    _trust(part)
        collected += [(answer, who) for answer in answers]
    for answer, who in sorted(collected, key=lambda each: each[0].rank):
        add(answer, who)
    return left_out


def describe_failure(error: BaseException, point: EntryPoint) -> str:
    """Say why a plugin was not loaded, and which of its lines failed."""
    if isinstance(error, PluginError):
        return str(error).rstrip(".")
    top = point.module.partition(".")[0]
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == top
    ]
    where = f", at {os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""
    return f"{' '.join(describe_error(error).split()).rstrip(' .')}{where}"


_built_in: dict[int, weakref.ref[Any]] = {}
"""The parts of built-in plugins, by id, since they may define equality themselves."""


def _trust(part: object) -> None:
    """Record that a built-in plugin brought a part."""
    key = id(part)
    _built_in[key] = weakref.ref(part, lambda _: _built_in.pop(key, None))


def is_built_in(part: object) -> bool:
    """Return whether a part comes from a plugin included in arrayferry."""
    known = _built_in.get(id(part))
    return known is not None and known() is part


def is_ours() -> Callable[[EntryPoint], bool]:
    """Return a function that tells whether an entry point belongs to the distribution of arrayferry itself.

    It reads the metadata of only a few distributions, each once, since that takes a while.
    """
    known: dict[int, bool] = {}

    def ours(point: EntryPoint) -> bool:
        dist = point.dist
        if dist is None or point.module.partition(".")[0] != HOME:
            return False
        if id(dist) not in known:
            known[id(dist)] = re.sub(r"[-_.]+", "-", str(dist.name)).lower() == DISTRIBUTION
        return known[id(dist)]

    return ours


class Plugin:
    """The name of a plugin in messages. Its distribution is looked up only when needed, which takes a while."""

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
                f"ARRAYFERRY_PLUGINS names {name!r}, but no plugin of that name is installed.{guess}",
                PluginWarning,
                stacklevel=3,
            )
