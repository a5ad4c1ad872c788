"""The notebooks run as they stand, and are committed without outputs."""

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples/notebooks").glob("*.ipynb"))


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    assert {cell.get("execution_count") for cell in notebook.cells} == {None}


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": path.parent}})
    client.execute()
    found = outputs(notebook)
    assert not [output for output in found if output.get("name") == "stderr"]
    kinds = {kind for output in found for kind in output.get("data", ())}
    assert {"convert": "text/plain", "train": "image/png"}[path.stem] in kinds
    if path.stem == "train":
        scores = [int(score) for score in re.findall(r"\d+", found[-1]["text"])]
        assert len(scores) == 3
        assert min(scores) > 400
