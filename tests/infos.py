"""An environment that tells different things at each step and each reset, for bridges to trainers."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Tells(gym.Env):
    """Its infos have keys of resets only, of steps only, of both and of some, all with numbers of their own.

    Args:
        number: of the environment, after whose number of steps plus 2 episodes end.
    """

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, number=0):
        self.number, self.episode, self.told = number, 0, 0

    def _info(self, kind):
        self.told += 1
        info = {kind: self.told, "both": 100 + self.told, 7: self.told}
        info["inside"] = {kind: 200 + self.told}
        if self.told % 3 == 0:
            info[f"rare of {kind}"] = info["rare"] = f"{self.told}"
        if self.told % 4 == 0:
            info["inside"]["rare"] = np.full(2, self.told)
        return info

    def _observed(self):
        return np.float32([self.episode, self.count])

    def reset(self, *, seed=None, options=None):
        self.episode, self.count = self.episode + 1, 0
        return self._observed(), self._info("begun")

    def step(self, action):
        self.count += 1
        over = self.count == 2 + self.number
        odd = self.number % 2 == 1
        return self._observed(), 1.0, over and not odd, over and odd, self._info("stepped")
