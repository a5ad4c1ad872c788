"""The tool that compares translated environments with JAX runs with environments of suites."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools/translated.py"


def test_an_environment_of_gymnax_is_compared(tmp_path):
    path = tmp_path / "results.json"
    command = [sys.executable, str(TOOL), "run", str(path), "gymnax/Catch-bsuite"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = json.loads(path.read_text())
    assert found["why"] == ""
    assert (found["numpy"]["free"], found["torch"]["free"]) == ([0, 0.0], [0, 0.0])
    assert "Catch-bsuite; " in done.stdout
