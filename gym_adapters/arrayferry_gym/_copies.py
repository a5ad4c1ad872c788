"""Copies of environments during an episode: some copies continue the episode, others need a reset."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import gymnasium as gym


class _Begun:
    """A marker in the state of objects whose episode has begun. In deep copies and pickles, the marker is True."""

    def __reduce__(self) -> Any:
        return bool, (True,)


class Copied:
    """The base class of wrappers. A copy needs a reset if an inner environment was constructed anew for it."""

    def _has_begun(self) -> bool:
        """Tell whether an episode has begun."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_begun_inside": _Begun()} if self._has_begun() else {**vars(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # a shallow copy has the `_Begun` object, not True: it shares the environment, and needs no reset
        if vars(self).pop("_begun_inside", None) is True:
            for prefix, layer in layers(vars(self)["env"]):
                _ask_for_reset(layer, prefix)


def layers(env: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a pair of a prefix and an environment for `env` and all environments inside it, innermost first.

    The prefix is "envs[0].", "envs[1]." and so on for environments in a batch, and otherwise "". In messages, the
    prefix precedes the name of the environment.
    """
    chain, fields = [env], getattr(env, "__dict__", {})
    # PettingZoo uses the name "aec_env". The limit ends the loop if environments contain each other
    while len(chain) < 100 and (inner_env := fields.get("env", fields.get("aec_env"))) is not None:
        chain.append(inner_env)
        fields = getattr(inner_env, "__dict__", {})
    batch = fields.get("envs")
    for index, single_env in enumerate(batch if isinstance(batch, (list, tuple)) else ()):
        yield from layers(single_env, f"{place}envs[{index}].")
    yield from ((place, layer) for layer in reversed(chain))


_NAMES = "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__deepcopy__"


def _ask_for_reset(env: Any, place: str) -> None:
    """If an environment is an `EzPickle`, whose copies lose the episode, make its steps fail until it is reset."""
    methods = [
        [getattr(cls, name, None) for name in _NAMES] for cls in (type(env), gym.utils.EzPickle)
    ]
    if methods[0] != methods[1]:
        return

    def step(*_args: Any, **_options: Any) -> Any:
        raise gym.error.ResetNeeded(
            f"Call reset(): {place}{type(env).__name__} is an EzPickle, so a copy or pickle of it loses its episode"
        )

    @functools.wraps(env.reset)
    def reset(*args: Any, **options: Any) -> Any:
        del env.step, env.reset
        return env.reset(*args, **options)

    vars(env).update(step=step, reset=reset)
