"""`Suite`: the environments of another project, declared by a plugin."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any, Literal

import arrayferry as af
from arrayferry._utilities.packages import is_installed
from arrayferry._utilities.text import never_raises
from arrayferry.extending import Part, describe_error


class Suite(Part):
    """Environments of another project. Plugins subclass `Suite`, and return instances from the hook `arrayferry_suites`.

    `name`, `package`, `ids` and `load` are required. Methods are called only when a user names the suite, so a suite
    should import its package in its methods.

    Attributes:
        name: the part of an id before the first slash.
        package: the name of the package that is imported, such as `"gymnax"`.
        install: the command that installs the package, such as `"pip install gymnax six"`, or None for
            `pip install` and the name of the package.
        gives: the type of environment that `load` returns: "functional", a `FunctionalEnv` or an environment that `adapt`
            converts to one; "env", an `Env` of Gymnasium; "vector", a `VectorEnv`.
        env_types: the classes of environments that `adapt` accepts, by dotted paths such as `"pgx.core.Env"`.
        seeds: "construction" if `reset(seed=)` constructs new environments, which takes longer; otherwise "reset".
        pickles: whether environments can be copied and pickled.

    Examples:
        >>> from arrayferry_envs import CartPole, Pendulum, Suite
        >>> class Mine(Suite):
        ...     name = "mine"
        ...     package = "arrayferry_envs"
        ...     def ids(self):
        ...         return ["CartPole", "Pendulum"]
        ...     def load(self, name, **options):
        ...         return {"CartPole": CartPole, "Pendulum": Pendulum}[name](**options)
        >>> Mine().load("Pendulum")
        <Pendulum>
    """

    package: str = ""
    install: str | None = None
    gives: Literal["functional", "env", "vector"] = "functional"
    env_types: Sequence[str] = ()
    seeds: Literal["reset", "construction"] = "reset"
    pickles: bool = True

    def ids(self) -> Iterable[str]:
        """Return the names that `load` accepts, as far as they can be listed."""
        raise NotImplementedError

    def load(self, name: str, *args: Any, **options: Any) -> Any:
        """Make an environment.

        Args:
            name: the part of an id after the first slash.
            *args: the number of environments, which only suites of vector environments receive.
            **options: the user's options other than those of `make` and `make_vec`. Options that are not in the
                signature raise an error before the call. A suite of single or vector environments also receives
                `max_episode_steps` and `render_mode`, if the user passed them, and a suite of vector environments
                receives `autoreset_mode`.
        """
        raise NotImplementedError

    def adapt(self, env: Any, **options: Any) -> Any:
        """Convert an environment of the project to a `FunctionalEnv`, or a batch to a `VectorEnv`, for `from_env`."""
        raise NotImplementedError

    @property
    def installed(self) -> bool:
        """Whether the package is installed, without importing it."""
        return is_installed(self.package)

    @property
    def _top(self) -> str:
        return self.package.partition(".")[0]

    @property
    def version(self) -> str | None:
        """The version of the package, or None if it is not installed or its version is unknown."""
        try:
            return version(self._top)
        except (PackageNotFoundError, ValueError):
            # the distribution has another name than the package, or does not exist
            distributions = packages_distributions().get(self._top)
            return version(distributions[0]) if distributions else None

    @property
    def install_line(self) -> str:
        """The command that installs the package."""
        return self.install or f"pip install {self._top.replace('_', '-')}"

    def needed(self) -> None:
        """Check that the package is installed.

        Raises:
            arrayferry.BackendUnavailableError: the package is not installed. The remedy is the command that installs it.
            arrayferry.PluginError: `package` is empty, or `gives` is not one of its three values.
        """
        if self.gives not in (kinds := ("functional", "env", "vector")):
            raise af.PluginError(
                f"the suite {self.name!r} has gives={self.gives!r}",
                remedy=f"Set `gives` to one of {kinds}.",
            )
        if not self.package:
            raise af.PluginError(
                f"the suite {self.name!r} states no package", remedy="Set its attribute `package`."
            )
        if not self.installed:
            raise af.BackendUnavailableError(
                f"the suite {self.name!r} needs the package {self.package}, which is not installed",
                remedy=f"Run: {self.install_line}",
                backend=self.package,
            )

    def listed(self) -> list[str]:
        """Return the names in `ids()` as a list.

        Raises:
            arrayferry.PluginError: `ids` fails, or returns anything other than strings.
        """
        try:
            names = list(self.ids())
        except Exception as error:
            raise af.PluginError(f"ids() of {self!r} failed: {describe_error(error)}") from error
        wrong_names = [name for name in names if not isinstance(name, str)]
        if wrong_names:
            raise af.PluginError(
                f"ids() of {self!r} returned {wrong_names[0]!r:.80}, but names must be strings"
            )
        return names

    def _check_options(
        self, function: Any, positional: int, options: Iterable[str], whose: str = ""
    ) -> None:
        """Refuse options that are not in the signature of a function of the suite.

        Args:
            function: the function that receives the options.
            positional: the number of positional arguments that the function receives.
            options: the names of the options.
            whose: what the error names as the object without the option. The default is the suite.

        Raises:
            arrayferry.OptionError: the function does not accept one of the options.
        """
        try:
            # follow_wrapped is False, since a decorator may add options to those of the function
            signature = inspect.signature(function, follow_wrapped=False)
        except (TypeError, ValueError):  # a builtin may have no signature
            return
        parameters = [*signature.parameters.values()]
        names = [x.name for x in parameters[positional:] if x.kind is not x.VAR_POSITIONAL]
        unknown_options = [name for name in options if name not in names]
        if unknown_options and all(x.kind is not x.VAR_KEYWORD for x in parameters):
            raise af.OptionError(
                f"{unknown_options[0]} was passed, but {whose or f'the suite {self.name!r}'} has no such option",
                remedy=f"The options are {', '.join(names)}." if names else "Leave it out.",
            )

    @never_raises
    def __repr__(self) -> str:
        state = self.version or ("" if self.installed else f"not installed: {self.install_line}")
        return f"<Suite {self.name:.80} {state}".rstrip() + ">"
