"""The trainings of the page on saving go on after a kill as if there had been none."""

import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-save-watch.md"
SECTION = r"^## (PyTorch|JAX)\n\n```python\n(.*?)```"
SCRIPTS = dict(re.findall(SECTION, PAGE.read_text(), re.MULTILINE | re.DOTALL))
KILL = "os.kill(os.getpid(), 9)"
BEFORE = f"os.replace = lambda *_: {KILL}"
AFTER = f"replace = os.replace; os.replace = lambda *names: (replace(*names), {KILL})"


def run(script, folder, killed=""):
    done = subprocess.run([sys.executable, "-c", f"import os\n{killed}\n{script}"], cwd=folder)
    assert done.returncode == (-signal.SIGKILL if killed else 0)


@pytest.mark.long
@pytest.mark.parametrize("library", ["PyTorch", "JAX"])
def test_a_training_that_was_killed_goes_on(library, tmp_path):
    script = re.sub(r"\b(1000|500)$", "60", SCRIPTS[library], flags=re.MULTILINE)  # fewer updates
    script = script.replace("% 100 ", "% 10 ")
    assert script.count("% 10 ") == script.count(" 60\n") == 1
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    whole.mkdir()
    resumed.mkdir()
    run(script, whole)
    for killed in (BEFORE, AFTER, AFTER, BEFORE, ""):  # each time at the first file that is written
        run(script, resumed, killed)
    if library == "PyTorch":
        found = [torch.load(x / "training.pt", weights_only=False) for x in (whole, resumed)]
        for saved in found:
            saved["envs"] = [*saved["envs"].state]
    else:
        found = [pickle.loads((x / "training.pickle").read_bytes()) for x in (whole, resumed)]
    ours, others = map(jax.tree.leaves, found)
    assert len(ours) == len(others) > 10
    assert all(
        np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(ours, others, strict=True)
    )
