"""The picture of learning curves that examples draw."""

import pytest
import report
from report import Line, draw


@pytest.fixture
def made(monkeypatch):
    """The figures that are saved."""
    made = []

    class Figure(report.Figure):
        def savefig(self, path):
            made.append(self)
            super().savefig(path)

    monkeypatch.setattr(report, "Figure", Figure)
    return made


@pytest.mark.parametrize(
    ("units", "scale"), [((1.0, 100.0), "log"), ((1.0, 2.0), "linear"), ((3.0,), "linear")]
)
def test_lines_that_take_very_different_times_share_a_logarithmic_axis(
    tmp_path, made, units, scale
):
    curve = [10.0, float("nan"), 20.0, 30.0]
    draw(str(tmp_path / "curves.png"), [Line("x", unit, [curve] * 2) for unit in units], "seconds")
    (axes,) = made[0].axes
    assert axes.get_xscale() == scale
    assert ("logarithmic" in axes.get_xlabel()) is (scale == "log")
    assert [list(line.get_ydata()) for line in axes.lines] == [[10.0, 20.0, 30.0]] * 2 * len(units)
    assert len(made[0].legends[0].get_texts()) == len(units)
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_lines_begin_after_compilation(tmp_path, made):
    curve = [float("nan"), 20.0, 30.0]
    lines = [Line("x", 1.0, [curve]), Line("y", 100.0, [curve] * 2, start=5.0)]
    draw(str(tmp_path / "curves.png"), lines, "seconds")
    (axes,) = made[0].axes
    assert axes.get_xscale() == "linear"
    found = [(list(line.get_xdata()), line.get_linestyle()) for line in axes.lines]
    assert found == [
        ([2.0, 3.0], "-"), ([205.0, 305.0], "--"), ([0.0, 205.0], ":"), ([205.0, 305.0], "--"),
    ]  # fmt: skip
