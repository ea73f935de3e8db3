import os
from pathlib import Path

import pytest

from lit_cory.errors import UserError
from lit_cory.run_folder import make_run_folder, remove_if_empty, run_name


def test_runs_are_numbered_below_the_name_of_their_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [str(make_run_folder(None, "configs/demo.yaml")) for _ in range(2)]
    assert made == ["runs/demo/0", "runs/demo/1"]
    assert all(os.listdir(folder) == [] for folder in made)


def test_the_configuration_saved_in_a_run_keeps_the_runs_name() -> None:
    assert run_name("runs/demo/0/config.yaml") == "demo"
    assert run_name("elsewhere/mine.yaml") == "mine"
    assert run_name(None) == "default"


def test_a_named_folder_is_new_or_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert make_run_folder(str(folder), None) == folder
    assert make_run_folder(str(folder), None) == folder
    (folder / "mine").write_text("kept")
    with pytest.raises(UserError, match="already holds a run"):
        make_run_folder(str(folder), None)
    assert (folder / "mine").read_text() == "kept"


def test_an_evaluation_lies_beside_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    checkpoint = str(run / "checkpoints" / "last.ckpt")
    assert make_run_folder(None, None, "test", checkpoint) == run / "test" / "0"
    assert make_run_folder(str(run), None, "test", checkpoint) == run / "test" / "1", "the run's own name is not taken"
    assert make_run_folder("mine", None, "test", checkpoint) == Path("mine")
    elsewhere = make_run_folder(None, "my.yaml", "validate", str(run / "last.ckpt"))
    assert elsewhere == Path("runs") / "my" / "validate" / "0"


def test_empty_folders_are_removed_as_far_as_they_are_empty(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "runs" / "name" / "0"
    folder.mkdir(parents=True)
    (tmp_path / "kept" / "mine").write_text("")
    remove_if_empty(folder)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]
    full = tmp_path / "runs" / "name" / "0"
    full.mkdir(parents=True)
    (full / "events").write_text("")
    remove_if_empty(full)
    assert (full / "events").exists()


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wanted in (tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(UserError, match=f"run_folder={wanted}: can't be written") as error:
            make_run_folder(str(wanted), None)
        assert "\n" not in str(error.value)
