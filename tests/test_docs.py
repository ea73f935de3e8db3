import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_test_that_the_documents_name_exists() -> None:
    named = {name for page in (ROOT / "docs").glob("*.md") for name in re.findall(r"`(test_\w+)`", page.read_text())}
    there = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert len(named) > 40
    assert named <= there, named - there
