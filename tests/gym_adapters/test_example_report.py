"""The picture of learning curves that examples draw."""

from __future__ import annotations

import pytest
import report
from report import Line, draw


@pytest.mark.parametrize(
    ("units", "scale"), [((1.0, 100.0), "log"), ((1.0, 2.0), "linear"), ((3.0,), "linear")]
)
def test_lines_that_take_very_different_times_share_a_logarithmic_axis(
    tmp_path, monkeypatch, units, scale
):
    made = []

    class Figure(report.Figure):
        def savefig(self, path):
            made.append(self)
            super().savefig(path)

    monkeypatch.setattr(report, "Figure", Figure)
    curve = [10.0, float("nan"), 20.0, 30.0]
    draw(str(tmp_path / "curves.png"), [Line("x", unit, [curve] * 2) for unit in units], "seconds")
    (axes,) = made[0].axes
    assert axes.get_xscale() == scale
    assert ("logarithmic" in axes.get_xlabel()) is (scale == "log")
    assert [list(line.get_ydata()) for line in axes.lines] == [[10.0, 20.0, 30.0]] * 2 * len(units)
    assert len(made[0].legends[0].get_texts()) == len(units)
    assert (tmp_path / "curves.png").stat().st_size > 0
