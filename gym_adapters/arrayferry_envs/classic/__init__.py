"""Reference environments: those of classic control, with the dynamics of Gymnasium's.

The dynamics are from Sutton and Barto, Reinforcement Learning: An Introduction, and the sources named in each module.
"""

from .acrobot import Acrobot, AcrobotParams
from .cart_pole import CartPole, CartPoleParams
from .mountain_car import MountainCar, MountainCarContinuous, MountainCarParams
from .pendulum import Pendulum, PendulumParams

__all__ = [
    "Acrobot",
    "AcrobotParams",
    "CartPole",
    "CartPoleParams",
    "MountainCar",
    "MountainCarContinuous",
    "MountainCarParams",
    "Pendulum",
    "PendulumParams",
]
