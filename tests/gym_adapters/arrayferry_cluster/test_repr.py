"""Adapters, environments and collectors whose constructor failed are written."""

import pytest

from arrayferry_cluster import Collector
from arrayferry_envs import FunctionalSingleEnv, FunctionalVectorEnv
from arrayferry_gym import ArrayConversion, vector

SERVED = FunctionalSingleEnv, FunctionalVectorEnv


@pytest.mark.parametrize("cls", [ArrayConversion, vector.ArrayConversion, *SERVED, Collector])
def test_an_object_whose_constructor_failed(cls):
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"
