"""Reference environments: classic control, with the dynamics of Gymnasium's environments.

The dynamics are from Sutton and Barto, Reinforcement Learning: An Introduction, and the sources named in each module.
"""

from .cart_pole import CartPole, CartPoleParams
from .pendulum import Pendulum, PendulumParams

__all__ = [
    "CartPole",
    "CartPoleParams",
    "Pendulum",
    "PendulumParams",
]
