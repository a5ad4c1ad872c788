"""Adapters, environments and collectors whose constructor failed are written."""

import pytest

import arrayferry_gym
from arrayferry_cluster import Collector
from arrayferry_envs import FunctionalSingleEnv, FunctionalVectorEnv
from arrayferry_gym import vector


@pytest.mark.parametrize(
    "cls",
    [
        arrayferry_gym.ArrayConversion,
        vector.ArrayConversion,
        FunctionalSingleEnv,
        FunctionalVectorEnv,
        Collector,
    ],
)
def test_an_object_whose_constructor_failed(cls):
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"
