"""Tabular environments of Gymnasium, and environments of your own tables."""

from .blackjack import Blackjack, BlackjackParams
from .cliff_walking import CliffWalking
from .frozen_lake import FrozenLake
from .table import TabularEnv, Transitions
from .taxi import Taxi

__all__ = [
    "Blackjack",
    "BlackjackParams",
    "CliffWalking",
    "FrozenLake",
    "TabularEnv",
    "Taxi",
    "Transitions",
]
