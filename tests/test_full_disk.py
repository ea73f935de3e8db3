"""A disk that fills up in the middle of a run: the former checkpoint loads, and the run does as it is told."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.checkpoint_file import SaveError, replace_file, write_checkpoint
from tests.disk import fill, small_disk
from tests.test_cli import place
from tests.test_resume import options, state

__all__ = ["place", "small_disk"]


@pytest.mark.parametrize("leave", [0, 4096, 2**20])
def test_a_disk_that_fills_while_a_checkpoint_is_written(small_disk: Path, leave: int) -> None:
    path = small_disk / "checkpoints" / "last.ckpt"
    write_checkpoint({"weights": torch.arange(3)}, path)
    fill(small_disk, leave)
    large = {"weights": torch.zeros(2**20)}
    with pytest.raises(SaveError, match=rf"{path}: can't be written \(.*; 0\.\d MB are free there|1\.0 MB are free"):
        replace_file(path, lambda file: torch.save(large, file), 0)
    assert torch.load(path, weights_only=True)["weights"].tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


def test_space_is_asked_for_before_anything_is_written(small_disk: Path) -> None:
    path = small_disk / "last.ckpt"
    with pytest.raises(SaveError, match=rf"{path}: 12\.\d MB are needed and \d\.\d MB are free there"):
        write_checkpoint({"weights": torch.zeros(3 * 2**20)}, path)
    assert not list(small_disk.iterdir())


@pytest.mark.parametrize("on_full", ["go_on", "stop"])
def test_a_run_on_a_disk_that_is_full_for_two_rollouts(
    on_full: str,
    small_disk: Path,
    place: Path,
    gpt2_base: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from lit_cory.module import CoryLightningModule

    step = CoryLightningModule.training_step
    saved: dict[int, Any] = {}
    run = small_disk / "run"

    def filling(self: CoryLightningModule, queries: Any, batch_idx: int) -> None:
        if self.rollouts_done == 2:
            fill(small_disk, 2**15)
        if self.rollouts_done == 4:
            saved[4] = state(run)["cory"]["rollouts_done"]
            (small_disk / "ballast").unlink()
        step(self, queries, batch_idx)

    monkeypatch.setattr(CoryLightningModule, "training_step", filling)
    with pytest.warns(UserWarning, match="last.ckpt|the disk is full") as warned:
        status = main(["fit", *options(gpt2_base, run_folder=run, checkpoint__on_full=on_full)])
    said = [str(warning.message) for warning in warned]
    assert any(
        re.search(rf"{run}: the disk is full \(0\.0 MB free\), so that curves have a gap", line) for line in said
    )
    if on_full == "stop":
        assert status == 2
        printed = capfd.readouterr().err
        assert re.search(rf"error: checkpoint not saved: {run}/checkpoints/last\.ckpt: 0\.\d MB are needed", printed)
        assert state(run)["cory"]["rollouts_done"] == 2
        return
    assert status == 0
    assert sum("last.ckpt: 0." in line and "the run goes on" in line for line in said) >= 2
    assert saved[4] == 2, "the former checkpoint loads while the disk is full"
    assert state(run)["cory"]["rollouts_done"] == 6
    scalars = read_scalars(run)
    assert scalars[scalars["tag"] == "train/agent_0/score"]["step"].tolist() == [1, 2, 5, 6]
