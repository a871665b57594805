"""Execute the example notebook in a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paths import ROOT

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

NOTEBOOK = ROOT / "examples/notebook.ipynb"


@pytest.mark.nightly
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    shows = [cell for cell in notebook.cells if "inspector.show(" in cell.source]
    shows = [cell for cell in shows if cell.cell_type == "code"]
    assert len(shows) == 3
    for cell in shows:
        (output,) = cell.outputs
        assert output.output_type == "display_data"
        assert output.data["text/html"].startswith("<div")
        assert output.data["text/plain"].strip()
    assert "all-reduce" in notebook.cells[-1].outputs[0].data["text/plain"]


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
