"""Reports arrive as they were sent."""

from __future__ import annotations

import json

import pytest

from arrayferry_cli._messages import as_message, from_message
from arrayferry_cli._reports import (
    Facts,
    PluginOrigin,
    RouteReport,
    RouteStep,
    Survey,
)
from arrayferry_cli._reports import Part as PartOfPlugin
from arrayferry_cli._reports import Plugin as PluginReport

ORIGIN = PluginOrigin("torch", "arrayferry_plugins.torch_", None, None)
STEPS = [
    RouteStep("a", "cpu", "b", "cpu", "copy", "converter", "AToB", ORIGIN, ["AToB.convert"]),
    RouteStep("b", "cpu", "c", "cpu", "copy", "host", None, None, ["C.from_numpy"]),
]


@pytest.mark.parametrize(
    "report",
    [
        Facts(),
        Facts(["cpu"], True, "1.0", "a problem", "a remedy"),
        RouteReport("a", "c", "cpu", "cpu", True, 0, False, STEPS, "a -> c"),
        Survey(
            [PluginReport("a", None, None, "1.0", backends=["a"])],
            ["a warning"],
            [PartOfPlugin("a", ["a.np", ""], "a", None, False, "pip install a")],
            [],
        ),
    ],
    ids=lambda report: type(report).__name__,
)
def test_reports_arrive_as_they_were_sent(report):
    assert from_message(json.loads(json.dumps(as_message(report)))) == report


@pytest.mark.parametrize(
    "message",
    [
        5,
        [],
        None,
        "text",
        {},
        {"type": "Facts"},
        {"type": "Other", "value": {}},
        {"type": "Facts", "value": []},
        {"type": "Facts", "value": {"unknown": 1}},
        {"type": ["Facts"], "value": {}},
    ],
)
def test_what_is_no_report_is_an_error(message):
    with pytest.raises(ValueError, match="is no message"):
        from_message(message)
