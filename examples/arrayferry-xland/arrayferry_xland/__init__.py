"""The environments of XLand-MiniGrid for arrayferry."""

import arrayferry as af


@af.hookimpl(optionalhook=True)
def arrayferry_suites():
    """Return the suite."""
    from arrayferry_envs import Suite

    class XLandSuite(Suite):
        name, package = "xland", "xminigrid"
        env_types = ("xminigrid.environment.Environment",)

        def ids(self):
            import xminigrid

            return xminigrid.registered_environments()

        def load(self, name, **options):
            import xminigrid

            return self.adapt(*xminigrid.make(name, **options))

        def adapt(self, env, params=None):
            from .env import XLandEnv

            return XLandEnv(env, params)

    return [XLandSuite()]
