"""Every notebook runs from beginning to end, and is kept without outputs."""

import json
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from lit_cory.__main__ import main

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


PUBLISHED = FOLDER.parent / "results"
ON_PUBLISHED = ["02_pareto_front.ipynb", "03_ablations.ipynb"]


@pytest.fixture(scope="module")
def results(small_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of small runs."""
    out = tmp_path_factory.mktemp("report") / "results"
    assert (
        main(["report", *sorted(str(path.parent) for path in small_runs.glob("*/*/summary.json")), f"--out={out}"]) == 0
    )
    return out


@pytest.fixture
def this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a kernel that is the running interpreter; ``python3`` may be any other that the user has installed."""
    spec = tmp_path / "jupyter" / "kernels" / "this-python" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "this Python", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # no start-up files or history of the user's
    return spec.parent.name


def test_there_are_notebooks() -> None:
    assert "01_training_curves.ipynb" in NOTEBOOKS


@pytest.mark.parametrize(
    ("name", "published"), [*((name, False) for name in NOTEBOOKS), *((name, True) for name in ON_PUBLISHED)]
)
def test_runs_and_draws(
    name: str, published: bool, tmp_path: Path, this_python: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIT_CORY_RESULTS", str(PUBLISHED if published else results))
    copy = shutil.copytree(FOLDER, tmp_path / "notebooks")
    notebook = nbformat.read(copy / name, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells.append(nbformat.v4.new_code_cell("import sys; print(sys.executable)"))  # type: ignore[no-untyped-call]

    # The client raises with the cell and its traceback where a cell fails.
    NotebookClient(
        notebook, timeout=300, kernel_name=this_python, resources={"metadata": {"path": str(copy)}}
    ).execute()

    *own, executable = ([*cell.outputs] for cell in notebook.cells if cell.cell_type == "code")
    assert "".join(output.text for output in executable).strip() == sys.executable
    outputs = [output for cell in own for output in cell]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output.text for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_is_kept_without_outputs(name: str) -> None:
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
