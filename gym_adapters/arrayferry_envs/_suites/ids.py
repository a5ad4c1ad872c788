"""Ids of environments, `suite/name`: looks up the suite, and makes the environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv

import arrayferry as af
from arrayferry.extending import PLUGINS_VARIABLE, chosen_plugins, describe_error
from arrayferry_envs._contract.errors import UnknownEnvError
from arrayferry_envs._contract.functional_env import FunctionalEnv

from .suite import Suite

PLUGIN = "suites"
"""The name of the plugin that provides the suites of arrayferry itself."""


def all_suites() -> Any:
    """Return all suites by name."""
    return af.registry.parts("arrayferry_suites")


class EnvId(NamedTuple):
    """An id that was looked up.

    Attributes:
        text: the id.
        suite: the suite, whose package is installed.
        name: the part of the id after the first slash.
    """

    text: str
    suite: Suite
    name: str

    def load(self, *args: Any, **options: Any) -> Any:
        """Make the environment: a `FunctionalEnv`, an `Env` or a `VectorEnv`.

        Raises:
            UnknownEnvError: the suite raised an error, and does not list the name.
            arrayferry.OptionError: the suite does not accept an option.
        """
        try:
            self.suite._check_options(self.suite.load, 1 + len(args), options)
            env = self.suite.load(self.name, *args, **options)
            if isinstance(env, type) and issubclass(env, FunctionalEnv):
                env = env()
            is_env = isinstance(env, (FunctionalEnv, gym.Env, VectorEnv))
            return env if is_env else self.suite.adapt(env)
        except Exception as error:
            try:
                names = self.suite.listed()
            except af.PluginError:
                names = [self.name]
            # of a name such as "module:Env-v0", only the part after the colon is listed
            is_listed = self.name.rpartition(":")[2] in names
            if not is_listed and not isinstance(error, af.BackendUnavailableError):
                near_names = difflib.get_close_matches(self.name, names, 1)
                raise _unknown(
                    f"{self.text!r} cannot be made ({describe_error(error)}), and the suite {self.suite.name!r} does not "
                    "list it",
                    self.text,
                    [f"{self.suite.name}/{near_name}" for near_name in near_names],
                    f"suites({self.suite.name!r}) lists its ids.",
                ) from error
            options_text = f" with {', '.join(options)}" if options else ""
            error.add_note(f"This happened when {self.text!r} was made{options_text}.")
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return find_id, (self.text,)


def find_id(env_id: Any) -> EnvId:
    """Look up an id.

    Raises:
        TypeError: the id is not a string.
        UnknownEnvError: there is no such suite.
        arrayferry.BackendUnavailableError: the suite's package is not installed.
    """
    if not isinstance(env_id, str):
        raise TypeError(
            f'the id of an environment is needed, such as "gymnax/CartPole-v1", but got {env_id!r:.80}. '
            "A FunctionalEnv itself has make() and make_vec(); from_env converts environments of other libraries."
        )
    suite_name, separator, env_name = env_id.partition("/")
    if not separator or not env_name:
        guesses = [f"gymnasium/{env_id}"] if env_id in gym.registry else []
        reason, remedy = "names no suite", 'Write the suite first: "gymnax/CartPole-v1".'
        if suite_name in all_suites():
            reason = "names a suite, but none of its environments"
            remedy = f"Add a slash and a name. suites({suite_name!r}) lists its ids."
        raise _unknown(f"{env_id!r} {reason}", env_id, guesses, remedy)
    return EnvId(env_id, named_suite(suite_name, env_id), env_name)


def named_suite(name: str, env_id: str) -> Suite:
    """Return the suite of a name, and check that its package is installed.

    Args:
        name: the name of the suite.
        env_id: the id of the environment, for messages.

    Raises:
        UnknownEnvError: there is no such suite.
        arrayferry.BackendUnavailableError: the suite's package is not installed.
    """
    suites = all_suites()
    if name in suites:
        suite: Suite = suites[name]
        suite.needed()
        return suite
    near_names = difflib.get_close_matches(name, suites, 1)
    guesses = [near_names[0] + env_id.removeprefix(name)] if near_names else []
    if env_id in gym.registry:
        guesses = [f"gymnasium/{env_id}"]
    remedy = f"The suites are {', '.join(suites) or 'none'}."
    if PLUGIN not in (chosen_plugins() or [PLUGIN]):
        remedy = f"{PLUGINS_VARIABLE} leaves out the plugin {PLUGIN!r}, which has the suites of arrayferry. {remedy}"
    raise _unknown(f"there is no suite {name!r}", env_id, guesses, remedy)


def _unknown(reason: str, name: str, nearest: Iterable[str], remedy: str) -> UnknownEnvError:
    guesses = tuple(nearest)
    hint = f"Did you mean {guesses[0]!r}? " if guesses else ""
    return UnknownEnvError(reason, remedy=f"{hint}{remedy}", name=name, nearest=guesses)
