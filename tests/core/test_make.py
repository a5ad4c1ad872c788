"""`make` without a target is the help."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_lists_its_targets():
    environment = {**os.environ, "MAKEFLAGS": "", "MAKELEVEL": "0"}
    done = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [re.fullmatch(r"make (\S+) +\w.+", line)[1] for line in done.stdout.splitlines()]
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert sorted(listed) == sorted(targets.split())
