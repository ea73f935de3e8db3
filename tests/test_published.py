"""What `results/` shows comes from the rows that it holds."""

from pathlib import Path

import pandas as pd
import pytest

from lit_cory.__main__ import main
from lit_cory.analysis.runs import IDENTITY

RESULTS = Path(__file__).resolve().parents[1] / "results"


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report made again."""
    out = tmp_path_factory.mktemp("again") / "results"
    assert main(["report", str(RESULTS), f"--out={out}"]) == 0
    return out


@pytest.mark.parametrize("name", [path.name for path in sorted(RESULTS.glob("*.csv"))])
def test_tables(name: str, again: Path) -> None:
    assert (again / name).read_bytes() == (RESULTS / name).read_bytes()


def test_the_page(again: Path) -> None:
    pages = [(folder / "index.md").read_text().split("## ") for folder in (RESULTS, again)]
    tables = [[[line for line in part.splitlines() if line.startswith("|")] for part in page] for page in pages]
    assert tables[0] == tables[1]
    assert sum(map(len, tables[0])) > 4


def test_each_row_is_a_run_of_its_own() -> None:
    rows = pd.read_csv(RESULTS / "results.csv")
    assert not rows.duplicated(IDENTITY).any()
    assert not rows["revision"].str.contains("dirty").any()
    assert (rows["queries"] >= 300).all()
