"""Data sets of Minari from the segments of a collector."""

import pytest
import remote_workers
from walks import Walk, check_walks, policy

from arrayferry_cluster import Collector
from arrayferry_envs import to_minari


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_episodes_are_joined_in_each_group(mode, monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    options = {"num_envs": 4, "num_steps": 5, "seed": 1, "groups": 2, "mode": mode}
    with (
        remote_workers.connected(processes=False) as client,
        Collector(Walk, policy, None, client=client, **options) as collector,
    ):
        parts = [next(collector) for _ in range(12 if mode == "sync" else 24)]
    stored = to_minari(parts, "walk-v0", env=Walk())
    check_walks(minari.load_dataset("walk-v0"))
    assert stored.steps + stored.steps_left_out == 12 * 5 * 4
    assert stored.begun_before == 0
    assert stored.unfinished <= 4
