"""The suite of this package: a module beside it, so that conversions do not import the environments."""

from pkgutil import resolve_name

import arrayferry as af


@af.hookimpl(optionalhook=True)
def arrayferry_suites():
    """Return the suite."""
    from arrayferry_envs import Suite

    class ClassicSuite(Suite):
        name, package = "classic", "arrayferry_classic"

        def ids(self):
            from arrayferry_classic import PATHS

            return list(PATHS)

        def load(self, name, **options):
            from arrayferry_classic import PATHS

            return resolve_name(PATHS[name])(**options)

    return [ClassicSuite()]
