"""Puts this project's wrappers in the place of Gymnasium's, for Gymnasium's own tests of them."""

from __future__ import annotations

import gymnasium as gym

from arrayferry_gym import wrappers

for name in wrappers.__all__:
    if hasattr(gym.wrappers, name) and name != "vector":
        setattr(gym.wrappers, name, getattr(wrappers, name))
for name in wrappers.vector.__all__:
    if hasattr(gym.wrappers.vector, name):
        setattr(gym.wrappers.vector, name, getattr(wrappers.vector, name))
