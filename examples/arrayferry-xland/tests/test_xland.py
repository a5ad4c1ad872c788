import pytest

from arrayferry_audit import SuiteContract

pytest.importorskip("xminigrid")


class TestXLand(SuiteContract):
    suite = "xland"
    sample = ["MiniGrid-Empty-5x5", "XLand-MiniGrid-R1-9x9"]
    options = {"max_episode_steps": 20}
