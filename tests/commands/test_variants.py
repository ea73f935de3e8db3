"""Variants of a bench, each a real process."""

import json
from pathlib import Path

import pytest

from lit_cory.__main__ import main
from lit_cory.commands.variants import table
from tests.test_cli import place, tiny

__all__ = ["place"]


def test_two_configurations_are_measured_in_turn(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "two.yaml").write_text("model: {agents: 2}\n")
    (place / "one.yaml").write_text("model: {agents: 1}\n")
    files = ["two.yaml", "one.yaml"]
    assert main(["bench", "--compare", *files, *tiny(gpt2_base), "--repeat=1", "--rounds=1", "--json=all.json"]) == 0
    results = json.loads((place / "all.json").read_text())
    assert [run["agents"] for file in files for run in results[file]] == [2, 1]
    assert "observer" in results["two.yaml"][0]["roles"]
    assert "ratio to the first" in " ".join(capfd.readouterr().out.split())


def test_values_of_a_key_are_measured_and_drawn(place: Path, gpt2_base: Path) -> None:
    arguments = ["bench", "--over=data.batch_size=[2,4]", *tiny(gpt2_base), "--repeat=1", "--rounds=1"]
    assert main([*arguments, "--plot=size.png", "--json=all.json"]) == 0
    assert set(json.loads((place / "all.json").read_text())) == {"2", "4"}
    assert (place / "size.png").read_bytes().startswith(b"\x89PNG")


def test_ratios_pair_the_runs_of_a_round() -> None:
    def runs(*seconds: float) -> list[dict[str, object]]:
        return [{"seconds": {"rollout": value}, "peak_mb": {"process": 100}} for value in seconds]

    made = table({"a": runs(1.0, 2.0, 4.0), "b": runs(2.0, 3.0, 2.0)})
    cells = [list(column.cells) for column in made.columns]
    assert cells[2] == ["2.00", "2.00"]
    assert cells[3] == ["1.000", "1.500"]  # the median of 2, 1.5 and 0.5, not the ratio of the medians


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--compare", "nowhere.yaml"], "compare=nowhere.yaml: no such file"),
        (["--over=data.batch_size"], "give a key and the values to try"),
        (["--over=data.batch_size=[["], "give a key and the values to try"),
        (["--over=data.batch_size=[1]", "--compare", "a.yaml"], "either --compare A.yaml B.yaml or --over"),
        (["--over=data.batch_size=[1]", "--rounds=0"], "rounds=0: must be at least 1"),
        (["--over=data.batch_size=[0]", "--rounds=1"], "0: data.batch_size=0: must be at least 1"),
    ],
)
def test_bad_variants_give_one_line(
    options: list[str], expected: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *options]) == 2
    assert expected in capfd.readouterr().err
