"""The kernels of the wrappers, to be put around a `FunctionalEnv` by `arrayferry_gym.functional.wrap`.

Each has the name and the arguments of Gymnasium's wrapper, without the environment. Authors of wrappers subclass `Kernel`.
"""

from __future__ import annotations

from ._kernel import Kernel, Spaces, State, StepResult
from ._observations import (
    DelayObservation,
    DtypeObservation,
    FilterObservation,
    FlattenObservation,
    FrameStackObservation,
    GrayscaleObservation,
    RescaleObservation,
    ReshapeObservation,
    TimeAwareObservation,
    TransformObservation,
)
from ._others import (
    ClipAction,
    ClipReward,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    RescaleAction,
    StickyAction,
    TransformAction,
    TransformReward,
)

__all__ = [
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "Kernel",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "Spaces",
    "State",
    "StepResult",
    "StickyAction",
    "TimeAwareObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
]
