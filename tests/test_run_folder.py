import os
from pathlib import Path

import pytest

from lit_cory.errors import UserError
from lit_cory.run_folder import make_run_folder, run_name


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


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wanted in (tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(UserError, match=f"run_folder={wanted}: can't be written") as error:
            make_run_folder(str(wanted), None)
        assert "\n" not in str(error.value)
