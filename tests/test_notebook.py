"""Runs the notebook of the documentation, and bars of progress, in a kernel of Jupyter.

In ``docs``, ``jupyter execute --inplace notebook.ipynb`` writes its outputs again.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.child_processes import ROOT

pytestmark = pytest.mark.slow
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
WIDGET, WIDGETS = (f"application/vnd.jupyter.widget-{part}+json" for part in ("view", "state"))
SILENT = """
import sys
sys.modules["ipywidgets"] = None
import nq.progress, tqdm.auto
with nq.progress.ProgressBar("predict", "windows") as bar:
    bar(1, 2)
"""


def execute(notebook: Any, folder: Path) -> Any:
    """Executes a notebook in a folder, where its kernel imports this project; returns it."""
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    return client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})


def outputs(notebook: Any) -> list[dict[str, Any]]:
    """Returns the results of the code cells by type; a cell may print nothing, nor show more."""
    results = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            *bars, result = cell.outputs
            assert result.output_type == "execute_result", result
            assert all(WIDGET in bar.get("data", ()) for bar in bars), bars
            results.append(result.data)
    return results


@pytest.mark.extended
def test_the_notebook_has_the_outputs_of_its_cells(tmp_path: Path) -> None:
    (tmp_path / "lighthouse.txt").symlink_to(ROOT / "docs" / "lighthouse.txt")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    committed = outputs(notebook)
    assert not re.search(r"/(home|root|tmp|work|Users)/", json.dumps(committed))
    fresh = outputs(execute(notebook, tmp_path))
    assert [data.keys() for data in fresh] == [data.keys() for data in committed]
    answer, probability, questions, result, *_, comparison, _ = fresh
    assert [answer, questions] == [committed[0], committed[2]]
    assert "<mark>1986</mark>" in answer["text/html"]
    assert probability["text/plain"].startswith("('1986', 0.")
    assert "<table>" in result["text/html"] and "see the run: nq ui" in result["text/html"]
    assert comparison["text/html"].count("<svg") >= 2
    widgets = notebook.metadata["widgets"][WIDGETS]["state"].values()
    states = [one["state"] for one in widgets if one["model_name"] == "FloatProgressModel"]
    assert len(states) == 2
    assert all(one["value"] == one["max"] > 1 for one in states)


def test_without_ipywidgets_a_notebook_shows_no_bar_and_no_warning(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell(SILENT)
    execute(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    assert not cell.outputs
