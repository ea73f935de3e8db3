"""What models, data and file names hold can't act on a terminal."""

from pathlib import Path

import pytest

from lit_cory.__main__ import main, warning_line
from lit_cory.evaluation import HeldOut
from lit_cory.summary import print_answers
from lit_cory.types import Query
from tests.test_cli import place, tiny

__all__ = ["place"]

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e"


def harmless(printed: str) -> bool:
    return not any(c in printed for c in EVIL if not c.isprintable()) and "owned" in printed


def test_error_lines(place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *tiny(gpt2_base, data__source=f"./{EVIL}.csv")]) == 2
    printed = capfd.readouterr().err
    assert harmless(printed)
    assert printed.count("\n") == 1


def test_column_names_in_error_lines(place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "odd.csv").write_text(f'"{EVIL}",b\n1,2\n', newline="")
    assert main(["fit", *tiny(gpt2_base, data__source="odd.csv")]) == 2
    assert harmless(capfd.readouterr().err)


def test_warnings() -> None:
    assert harmless(warning_line(f"row 3: {EVIL}"))


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rest: list[float] = [1.0]
    table = HeldOut(**dict.fromkeys(HeldOut.__dataclass_fields__, rest) | {"texts": [EVIL]})  # type: ignore[arg-type]
    print_answers([Query(EVIL, 0)], ["agent_0"], {}, {"agent_0": [table]})
    assert harmless(capsys.readouterr().out)
