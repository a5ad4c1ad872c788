"""Tracebacks: IPython and pytest leave out frames inside arrayferry, and show those of plugins."""

from pathlib import Path

import numpy as np
import pytest
from boxes import BoxBackend

import arrayferry as af

FOLDER = str(Path(af.__file__).parent)


def of_arrayferry(traceback):
    return [entry for entry in traceback if str(entry.path).startswith(FOLDER)]


SHOWN = [
    lambda: af.convert({"a": [np.array("text")]}, "torch"),
    lambda: af.convert(np.ones(2), "toch"),
    lambda: af.converter("toch"),
]


@pytest.mark.parametrize("call", SHOWN, ids=["a value", "a target", "a converter"])
def test_pytest_shows_at_most_three_frames(call):
    with pytest.raises(af.ArrayFerryError) as caught:
        call()
    shown = caught.traceback.filter(caught)
    assert 1 <= len(of_arrayferry(shown)) <= 3
    assert len(of_arrayferry(shown)) < len(of_arrayferry(caught.traceback))


class OfAnotherAuthor(BoxBackend):
    package = "numpy"

    def from_numpy(self, x, device=None):
        return helper(x)


def helper(x):
    raise RuntimeError("in a helper")


def test_frames_of_a_plugin_stay():
    with pytest.raises(af.ContractError) as caught:
        af.convert(np.ones(2), OfAnotherAuthor())
    cause = pytest.ExceptionInfo.from_exception(caught.value.__cause__)
    assert [entry.name for entry in cause.traceback.filter(cause)][-2:] == ["from_numpy", "helper"]


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor", history_length=0)
shell.run_cell("import arrayferry as af")
shell.run_cell("def mine():\\n    return af.convert(1, 'toch')\\nmine()")
"""


def test_in_ipython(run_python, tmp_path):
    pytest.importorskip("IPython")
    out = run_python(CELLS, env={"IPYTHONDIR": str(tmp_path)})
    assert ", in mine()" in out
    assert "skipping hidden" in out
    assert 1 <= out.count("\nFile ") <= 3
    assert out.count("UnknownBackendError: ") == 1
