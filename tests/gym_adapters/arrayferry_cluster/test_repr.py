"""Collectors whose constructor failed are written."""

import pytest

import arrayferry_gym
from arrayferry_envs import FunctionalSingleEnv, FunctionalVectorEnv
from arrayferry_gym import vector


@pytest.mark.parametrize(
    "cls",
    [
        arrayferry_gym.ArrayConversion,
        vector.ArrayConversion,
        FunctionalSingleEnv,
        FunctionalVectorEnv,
        "Collector",
    ],
)
def test_an_object_whose_constructor_failed(cls):
    if cls == "Collector":
        cls = pytest.importorskip("arrayferry_cluster").Collector
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"
