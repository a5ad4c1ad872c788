"""An environment of XLand-MiniGrid, as arrayferry calls it. Its own limit of steps truncates."""

from gymnasium.spaces import Discrete

from arrayferry_envs import JaxEnv


class XLandEnv(JaxEnv):
    """One environment."""

    def actions(self, example):
        return Discrete(self.env.num_actions(self.default_params))

    def begin(self, key, params):
        return self.env.reset(params, key)

    def advance(self, key, kept, action, params):
        after = self.env.step(params, kept, action)
        terminated = after.last() & (after.discount == 0)
        return after, after.reward, terminated, after.last() & ~terminated

    def observation_of(self, kept, params):
        return kept.observation
