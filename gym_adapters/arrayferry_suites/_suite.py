"""The suites of this package, with the attributes that are known before the module of a suite is imported."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import arrayferry as af
from arrayferry_envs import Suite
from arrayferry_envs.extending import usable


class BuiltInSuite(Suite):
    """A suite of this package. Its module has functions `ids` and `load`, and for a suite with `env_types`, `adapt`.

    Args:
        name: the name of the suite. The module has the same name, after an underscore.
        package: the package that the suite imports.
        **stated: the other attributes of the suite.

    Attributes:
        ids_of: the name of the function of `package` that lists ids, or "" to use the functions of the module. If the
            name is set, the function `make` of `package` replaces `load`.
    """

    ids_of = ""

    def __init__(self, name: str, package: str, **stated: Any) -> None:
        self.name, self.package = name, package
        vars(self).update(stated)

    @property
    def _module(self) -> Any:
        return import_module(f"{__package__}._{self.name}")

    def ids(self) -> Iterable[str]:
        """Return the names of environments that the project lists."""
        ids = getattr(import_module(self.package), self.ids_of) if self.ids_of else self._module.ids
        return ids()  # type: ignore[no-any-return]

    def load(self, name: str, *args: Any, **options: Any) -> Any:
        """Make an environment by the project's own function."""
        load_env = import_module(self.package).make if self.ids_of else self._module.load
        self._check_options(load_env, 1 + len(args), options)
        return load_env(name, *args, **options)

    def adapt(self, env: Any, **options: Any) -> Any:
        """Convert an environment of the project to a `FunctionalEnv` or a vector environment."""
        if self.gives != "vector":
            usable(af.registry.backend("jax"))
        convert, type_name = self._module.adapt, f"{type(env).__module__}.{type(env).__qualname__}"
        options = {name: value for name, value in options.items() if value is not None}
        self._check_options(convert, 1, options, type_name)
        try:
            return convert(env, **options)
        except Exception as error:
            if self.gives == "vector" or isinstance(error, af.ArrayFerryError):
                raise
            import jax

            error_text = textwrap.shorten(str(error), 200, placeholder="...")
            raise af.OptionError(
                f"{type_name} fails with JAX {jax.__version__} ({type(error).__name__}: {error_text})",
                remedy="If the environment and its parameters are correct, install the package versions "
                "that its library requires, or a newer release of the library.",
            ) from error


_CRAFTAX = "craftax.environment_base.environment_bases"
SUITES = [
    BuiltInSuite("arrayferry", "arrayferry_envs"),
    BuiltInSuite("gymnax", "gymnax", install="pip install gymnax six", env_types=[
        # the base class of environments of gymnax and Kinetix
        "gymnax.environments.environment.Environment",
        f"{_CRAFTAX}.EnvironmentAutoReset",
        f"{_CRAFTAX}.EnvironmentNoAutoReset",
    ]),
    BuiltInSuite("brax", "brax", env_types=["brax.envs.base.Env"]),
    BuiltInSuite("playground", "mujoco_playground", install="pip install playground",
                 env_types=["mujoco_playground._src.mjx_env.MjxEnv"]),
    BuiltInSuite("pgx", "pgx", ids_of="available_envs", env_types=["pgx.core.Env"]),
    BuiltInSuite("jumanji", "jumanji", ids_of="registered_environments",
                 env_types=["jumanji.env.Environment"]),
    BuiltInSuite("navix", "navix", ids_of="registry",
                 env_types=["navix.environments.environment.Environment"]),
    BuiltInSuite("envpool", "envpool", gives="vector", seeds="construction", pickles=False,
                 env_types=["envpool.python.envpool.EnvPoolMixin"]),
    BuiltInSuite("mjlab", "mjlab", gives="vector", seeds="construction", pickles=False,
                 env_types=["mjlab.envs.manager_based_rl_env.ManagerBasedRlEnv"]),
    BuiltInSuite("ale", "ale_py", gives="vector", pickles=False),
    BuiltInSuite("gymnasium", "gymnasium", gives="env",
                 env_types=["gymnasium.experimental.functional.FuncEnv"]),
]  # fmt: skip
"""All suites of this package."""
