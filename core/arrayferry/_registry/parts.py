"""`Parts`: the parts that plugins return for a hook of a layer. A layer is a package that builds on arrayferry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arrayferry._errors import PluginError, describe_error
from arrayferry._plugin.origin import NEVER_CAUGHT
from arrayferry._utilities.cache import Cache
from arrayferry._utilities.text import never_raises, type_name

from .owners import Owners
from .plugins import LayerCall, LeftOut, PluginManager

MAX_OWNERS = 1_000
"""The maximum number of backends, sources and containers whose parts are cached for one hook."""


class Named(dict[str, Any]):
    """A read-only dict with names as keys. A copy or a pickle of it is a plain dict."""

    def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} of a registry cannot be changed: call .copy(), and change the copy"
        )

    if not TYPE_CHECKING:  # type checkers know these methods from dict
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    @never_raises
    def __repr__(self) -> str:
        names = (
            name if _installed(part) else f"{name} (not installed)" for name, part in self.items()
        )
        return f"<{type(self).__name__}: {', '.join(names) or 'none'}>"


class Backends(Named):
    """The backends of a registry, by name."""


def _installed(part: Any) -> bool:
    try:
        return bool(getattr(part, "installed", True))
    except Exception:
        return False


class Parts(Named):
    """The parts that plugins return for one hook, by name, in the order in which pluggy calls plugins.

    Attributes:
        left_out: the parts that are not used because another part already has the same name.

    Examples:
        >>> import arrayferry as af
        >>> parts = af.registry.parts("arrayferry_gradients")
        >>> parts.of(af.backends()["torch"])
        <Autodiff torch>
        >>> parts.of(af.backends()["numpy"]) is None
        True
    """

    def __init__(self, parts: Mapping[str, Any], left_out: Sequence[LeftOut] = ()) -> None:
        super().__init__(parts)
        self.left_out = left_out
        self._known: Cache[Any, Any] = Cache(MAX_OWNERS)

    def of(self, owner: object, default: Any = None) -> Any:
        """Return the part of a backend, a source or a container.

        This is the part with the name of `owner`. If there is none, the class of `owner` and its base classes are
        searched in order for the first class whose `name` or dotted path is the name of a part.

        Args:
            owner: the backend, source or container.
            default: the result if no part is found.
        """
        key = type(owner), _text(getattr(owner, "name", None))
        part = self._known.get(key, self)
        if part is self:
            bases = type(owner).__mro__
            names = (
                key[1],
                *(name for cls in bases for name in (_text(vars(cls).get("name")), type_name(cls))),
            )
            matches = (self[name] for name in names if name is not None and name in self)
            part = self._known[key] = next(matches, None)
        return default if part is None else part


def find_parts(manager: PluginManager, calls: Iterable[LayerCall], hook: str, refuse: str) -> Parts:
    """Call the hook of a layer, and return its parts by name. A part with the name of another part is left out.

    Args:
        manager: the plugins.
        calls: the functions for the hooks of layers.
        hook: the name of the hook.
        refuse: the name of a plugin, or "". If a part of this plugin cannot be used, an error is raised.

    Raises:
        PluginError: no layer announces that hook, or the class of its parts cannot be imported.
    """
    contributions = manager.of_layer(hook, calls, load_kind(manager, hook), refuse)
    owners = Owners(contributions, refuse, manager.warn)
    positions = {id(contribution): position for position, contribution in enumerate(contributions)}
    names = sorted(owners.names, key=lambda name: positions[id(owners.names[name])])
    return Parts({name: owners.names[name].part for name in names}, owners.left_out)


def load_kind(manager: PluginManager, hook: str) -> type:
    """Import the class of the parts of a layer's hook.

    Raises:
        PluginError: no layer announces that hook, the import fails, or the imported object is not a class.
    """
    point = manager.layers.get(hook)
    if point is None:
        raise PluginError(
            f"no installed package announces a hook {hook!r}", remedy=manager.advice(hook)
        )
    try:
        kind = point.load()
    except NEVER_CAUGHT:
        raise
    except BaseException as error:
        raise PluginError(
            f"the class of the parts that {hook} returns, {point.value}, cannot be imported: {describe_error(error)}"
        ) from error
    if not isinstance(kind, type):
        raise PluginError(
            f"{point.value}, which is announced as the class for {hook}, is not a class: {kind!r:.80}"
        )
    return kind


def _text(name: Any) -> str | None:
    """Return `name` if it is a string, else None. The `name` of a container may be anything."""
    return name if isinstance(name, str) else None
