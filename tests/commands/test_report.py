"""Reports of real runs, of tables alone, and of what can't be used."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from lit_cory.__main__ import main

FILES = {
    *("results.csv", "table.csv", "pareto.csv", "hypervolume.csv", "curves.csv", "matched.csv"),
    *("pareto.png", "curves.png", "commands.txt", "index.md"),
}


def runs_of(folder: Path) -> list[str]:
    """All runs below a folder."""
    return sorted(str(path.parent) for path in folder.glob("*/*/summary.json"))


def test_runs_become_a_page_with_its_files(
    small_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert main(["report", *runs_of(small_runs), "--out", str(out)]) == 0
    assert "index.md" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == FILES
    table = pd.read_csv(out / "table.csv")
    assert table[["method", "kl_coef", "seeds"]].to_numpy().tolist() == [["cory", 0.05, 2], ["ppo", 0.05, 2]]
    page = (out / "index.md").read_text()
    for part in ("## Table", "## Reward against KL", "## Hypervolume", "## Curves", "## KL at matched reward"):
        assert part in page
    for picture in ("pareto.png", "curves.png"):
        assert f"]({picture})" in page
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    assert page.count(f"python -m lit_cory report {runs_of(small_runs)[0]}") == 5, "a command for every figure"
    mean, low, high = (float(table[name].iloc[0]) for name in ("score", "score low", "score high"))
    assert f"| {mean:.4g} [{low:.4g}, {high:.4g}] |" in page


def test_a_report_is_made_again_from_its_own_files(small_runs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["report", *runs_of(small_runs), "--out", str(first)]) == 0
    assert main(["report", str(first), "--out", str(second)]) == 0
    for name in FILES - {"index.md"}:
        assert (second / name).read_bytes() == (first / name).read_bytes(), name
    before = {path.name: path.read_bytes() for path in second.iterdir()}
    assert main(["report", str(first), "--out", str(second)]) == 0
    assert {path.name: path.read_bytes() for path in second.iterdir()} == before


def test_a_report_of_a_part(small_runs: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert main(["report", *runs_of(small_runs), "--out", str(whole)]) == 0
    assert main(["report", str(whole), "--where", "name=[ppo]", "seed=[1]", "kl_coef=[0.05]", "--out", str(part)]) == 0
    assert pd.read_csv(part / "results.csv")[["name", "seed"]].to_numpy().tolist() == [["ppo", 1]]
    assert set(pd.read_csv(part / "curves.csv")["seed"]) == {1}


def test_a_table_alone_is_enough_for_all_but_the_curves(small_runs: Path, tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    assert main(["report", *runs_of(small_runs), "--out", str(whole)]) == 0
    shutil.copy(whole / "results.csv", tmp_path / "mine.csv")
    assert main(["report", str(tmp_path / "mine.csv"), "--out", str(alone)]) == 0
    assert {path.name for path in alone.iterdir()} == FILES - {"curves.csv", "curves.png", "matched.csv"}
    for name in ("table.csv", "pareto.csv", "hypervolume.csv", "results.csv"):
        assert (alone / name).read_bytes() == (whole / name).read_bytes()
    section = [(folder / "index.md").read_text().split("## ")[1].splitlines()[2:6] for folder in (whole, alone)]
    assert section[0] == section[1], "the page's table"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nowhere", "--out", "out"], "nowhere: there is no config.yaml in it"),
        (["odd.csv", "--out", "out"], "odd.csv: has no run with a held-out score and KL"),
        (["some.csv", "--where", "hue=[1]", "--out", "out"], "where hue: results.csv has no such column"),
        (["some.csv", "--where", "seed=[0, 7]", "--out", "out"], "where seed: no run has 7; there are 0, 1"),
        (["some.csv", "--where", "seed=[0]", "name=[b]", "--out", "out"], "where: no run has them all"),
        (["odd.csv"], "the following arguments are required: --out"),
        (["--out", "out"], "the following arguments are required: runs"),
    ],
)
def test_what_is_refused(
    args: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.csv").write_text("name,hash,seed\na,b,0\n")
    figures = "kl_coef,agents,val/mean/score,val/mean/ref_kl"
    Path("some.csv").write_text(f"name,hash,seed,{figures}\na,a,0,0.1,1,0.5,1\nb,b,1,0.1,1,0.5,1\n")
    assert main(["report", *args]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert expected in printed[0]
    assert not Path("out").exists()
