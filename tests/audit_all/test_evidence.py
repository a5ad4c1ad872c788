"""A small sample of `make audit-all`, `make curves` and `make trainers`, and the form of what they rest on."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import arrayferry_audit.pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPTS = sorted((HERE / "reproduced").glob("*.py"))


def load(path):
    """Import a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_each_script_has_ten_lines_without_arrayferry(script):
    text = script.read_text(encoding="utf-8")
    assert "arrayferry" not in text
    assert "assert" in text
    code = text.split('"""', 2)[2].splitlines()
    assert len([line for line in code if line.strip()]) <= 10


def test_each_verdict_is_of_a_check_and_shown_by_a_script():
    names = arrayferry_audit.pytest.NAMES
    verdicts = load(HERE / "verdicts.py").VERDICTS
    assert {each.check for each in verdicts} <= {*names}
    assert {each.script for each in verdicts} == {script.stem for script in SCRIPTS}
    assert {each.verdict for each in verdicts} == {"fault", "by design", "not declared"}
    rows = load(HERE / "implementations.py").ROWS
    assert all(any(row.startswith(each.row) for row in rows) for each in verdicts)


@pytest.mark.long
def test_rows_of_gymnasium(tmp_path):
    tool = load(ROOT / "tools/audit_all.py")
    result = tmp_path / "audit.json"
    assert tool.run(result, ["SyncVectorEnv (SAME_STEP)", "CartPoleJaxVectorEnv"]) == 0
    right, wrong = tool.json.loads(result.read_text()).values()
    assert right["found"] == []
    assert {
        tool.verdict_of("CartPoleJaxVectorEnv", check).verdict for check, *_ in wrong["found"]
    } == {"fault"}
    with pytest.raises(LookupError, match="is not judged"):
        tool.verdict_of("SyncVectorEnv", "calls_can_be_read")


def test_a_script_shows_what_it_says():
    subprocess.run([sys.executable, HERE / "reproduced" / "phys2d_mode.py"], check=True)


@pytest.mark.long
@pytest.mark.parametrize("arm", ["true last", "extra steps"])
def test_a_training_is_measured(arm, monkeypatch):
    curves = load(ROOT / "benchmarks/curves.py")
    for name, value in {"UPDATES": 2, "ENVS": 2, "LENGTH": 8, "MINIBATCHES": 2, "AFTER": 5}.items():
        monkeypatch.setattr(curves, name, value)
    result = curves.train("CartPole, limit 50", arm, np.arange(2))
    assert {name: x.shape for name, x in result.items()} == {
        "curve": (2, 2), "ended": (2, 2), "return": (2,), "true": (2,), "error": (2,)
    }  # fmt: skip
    assert np.isfinite(result["return"]).all()


@pytest.mark.long
@pytest.mark.parametrize("trainer", ["Stable-Baselines3", "a loop"])
def test_a_trainer_stops_and_is_measured(trainer, monkeypatch):
    trainers = load(ROOT / "benchmarks/trainers.py")
    monkeypatch.setattr(trainers, "MOST", 600)
    found = trainers.train(trainer, "arrayferry, numpy", 0)
    assert (found["reached"], found["steps"]) == (False, 600)
    assert found["wall"] > 0
    assert found["processor"] > 0
