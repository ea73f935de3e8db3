"""Sweeps of tiny runs in real processes: rows, resumption, failures, and what is refused before any run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lit_cory.__main__ import main
from lit_cory.analysis.runs import CHANGING, put, read_config, read_table, run_row, write_table
from lit_cory.commands.cells import Cell, read_grid
from lit_cory.commands.sweep import Sweep, terminated_as_interrupted
from lit_cory.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(gpt2_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configuration of a run of seconds, in which runs find the tests' task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    model = {
        "base": str(gpt2_base),
        "rollouts": 40,
        "agents": 1,
        "lora": {"r": 2},
        "lr": 0.02,
        "response_tokens": [3, 5],
        "task": "tests.agents.LetterTask",
        "dtype": "float32",
    }
    config = {
        "model": model,
        "data": {
            "class_path": "lit_cory.data.ImdbDataModule",
            "init_args": {"source": "bundled:openings", "batch_size": 4, "val_size": 6},
        },
        "trainer": {"accelerator": "cpu"},
        "samples": {"every_n_rollouts": 0},
        "checkpoint": {"every_n_rollouts": 1},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def test_a_sweep_goes_on_where_it_was_stopped_and_past_what_fails(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One cell runs through and one fails; in another folder the first is stopped on the way, and its row is equal."""
    grid = ["--config", "tiny.yaml", "--grid", "data.init_args.source=[bundled:openings, nowhere.csv]"]
    assert main(["sweep", *grid, "--seeds", "3", "--jobs", "2", "--out", "one"]) == 1
    printed = capfd.readouterr().out
    assert re.search(r"one/tiny/\w{10}-3: failed: .*nowhere\.csv.*\(see one/tiny/\w{10}-3\.log\)", printed)
    assert "1 of 2 runs done, 1 failed" in printed
    (whole,) = pd.read_csv("one/results.csv").to_dict("records")
    assert (whole["name"], whole["seed"], whole["agents"], whole["rollouts"]) == ("tiny", 3, 1, 40)
    assert whole["data.init_args.source"] == "bundled:openings"
    run = place / "one" / "tiny" / f"{whole['hash']}-3"
    finished = (run / "summary.json").stat().st_mtime_ns

    one_cell = ["--config", "tiny.yaml", "--grid", "data.init_args.source=[bundled:openings]", "--seeds", "3"]
    command = [sys.executable, "-m", "lit_cory", "sweep", *one_cell, "--out", "two"]
    checkpoint = place / "two" / "tiny" / run.name / "checkpoints" / "last.ckpt"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + 300
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        told = process.stdout.read()
    assert process.returncode == 130, told
    assert "stopped; the same command goes on" in told
    assert not (place / "two" / "results.csv").exists()
    assert main(["sweep", *one_cell, "--out", "two"]) == 0
    assert {"config.yaml", "config-1.yaml"} <= set(os.listdir(place / "two" / "tiny" / run.name)), "it was resumed"
    (resumed,) = pd.read_csv("two/results.csv").to_dict("records")
    kept = [{k: v for k, v in row.items() if k not in CHANGING and v == v} for row in (whole, resumed)]
    assert kept[0] == kept[1]

    assert main(["sweep", *grid, "--seeds", "3", "--out", "one"]) == 1
    assert (run / "summary.json").stat().st_mtime_ns == finished, "what is done is skipped"
    assert len(Path("one/commands.txt").read_text().splitlines()) == 2
    assert main(["report", "one", "--out", "page"]) == 0
    assert "python -m lit_cory sweep --config tiny.yaml" in Path("page/index.md").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_interrupt_a_sweep_and_then_mean_what_they_did(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_rows_outlive_folders_and_learn_new_keys(small_runs: Path, tmp_path: Path) -> None:
    """A run whose folder was removed counts as done by its row; one that is complete without a row gets one.

    What a row without a folder lacks comes from a cell of its configuration.
    """
    made = [run_row(small_runs / "ppo" / seed) for seed in "01"]
    folders = [tmp_path / "ppo" / f"{row['hash']}-{row['seed']}" for row in made]
    for seed, folder in zip("01", folders, strict=True):
        shutil.copytree(small_runs / "ppo" / seed, folder)
    cells = [Cell([], int(row["seed"]), read_config(run), run) for row, run in zip(made, folders, strict=True)]
    table = tmp_path / "results.csv"
    write_table(put(pd.DataFrame(), made[:1]), table)
    assert Sweep(tmp_path, ["model.lr"]).run([], 1) == {}
    assert read_table(table)["model.lr"].tolist() == ["0.05"]
    shutil.rmtree(folders[0])
    assert Sweep(tmp_path, ["model.lora.r"]).run(cells, 1) == {}
    rows = read_table(table)
    assert rows["seed"].tolist() == [0, 1]
    assert rows["model.lr"].tolist() == ["0.05", "0.05"]
    assert rows["model.lora.r"].tolist() == ["2", "2"]
    assert not folders[0].exists()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["model.lr"], r"must be key=\[value"),
        (["model.lr=[]"], "one value at least"),
        (["model.lr=1e-4"], r"must be key=\[value"),
        (["model.lr=[1"], r"must be key=\[value"),
        (["model.lr=[1, 1]"], "stands there twice"),
        (["model.lr=[1]", "model.lr=[2]"], "stands there twice"),
        (["seed_everything=[1]"], "use --seeds"),
        (["run_folder=[a]"], "use --out"),
        (["config=[a.yaml]"], "use --config"),
    ],
)
def test_grids_that_are_none(entries: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        read_grid(entries)


def test_a_grid_is_read_as_one_types_values() -> None:
    assert read_grid(["a.b=[1e-5, 0.1, true, null, text]", "c=[[1, 2], {x: 1}]"]) == {
        "a.b": ["1e-5", "0.1", "true", "null", "text"],
        "c": ["[1, 2]", '{"x": 1}'],
    }


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--grid", "model.agents=[1]", "model.kll=[1]"], r"model\.kll"),
        (["--grid", "model.rollouts=[2, 0]"], r"model\.rollouts=0: must be at least 1"),
        (["--grid", "model.lr=[0.1, 1e-1]"], "come to the same configuration"),
        (["--seeds", "1", "1"], "name each once"),
        (["--jobs", "0"], "jobs=0: must be at least 1"),
        (["--seeds", "one"], "invalid int value"),
    ],
)
def test_what_cannot_run_is_refused_before_any_run(
    args: list[str], expected: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--config", "tiny.yaml", *args, "--out", "out"]) == 2
    error = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(error) == 1
    assert re.search(expected, error[0])
    assert sorted(os.listdir(place)) == ["tiny.yaml"]


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert "sweep" in printed
    assert "report" in printed
    for command, expected in (("sweep", "--jobs"), ("report", "--out")):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out
