"""Checkpoints of real runs: always of whole rollouts, always loadable, few, and the best among them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.checkpoint_file import PART, SaveError, write_checkpoint
from tests.test_cli import place, tiny
from tests.test_resume import assert_equal_runs, options, state

__all__ = ["place"]


def kept(run: Path) -> dict[int, float]:
    """Rollouts and value of each of the best that were kept."""
    names = [path.name for path in (run / "checkpoints").iterdir() if path.name != "last.ckpt"]
    found = [re.fullmatch(r"rollout-(\d+)\.\w+=([-+.e\d]+)\.ckpt", name) for name in names]
    assert all(found), names
    return {int(match[1]): float(match[2]) for match in found if match}


def combined(run: Path) -> dict[int, float]:
    """The held-out metric by rollout, averaged over both agents, as the event file has it."""
    frame = read_scalars(run)
    frame = frame[frame["tag"].str.fullmatch(r"val/agent_\d/combined") & (frame["step"] > 0)]
    return {int(str(step)): float(value) for step, value in frame.groupby("step")["value"].mean().items()}


def test_the_best_stand_beside_the_last_and_can_be_gone_on_from(place: Path, gpt2_base: Path) -> None:
    given = options(gpt2_base, model__rollouts=4, trainer__val_check_interval=1, checkpoint__keep=2)
    assert main(["fit", *given, "--checkpoint.best_by=ref_kl", "--run_folder=no"]) == 2, "the least would be the start"
    assert main(["fit", *given, "--run_folder=whole"]) == 0
    values = combined(place / "whole")
    assert len(values) == 4
    best = sorted(values, key=lambda step: (-values[step], step))[:2]
    assert kept(place / "whole") == pytest.approx({step: values[step] for step in best}, rel=1e-4, abs=1e-9)
    for path in (place / "whole" / "checkpoints").glob("rollout-*"):
        assert torch.load(path, weights_only=True)["cory"]["rollouts_done"] == int(path.name[8:].split(".")[0])
    one = next((place / "whole" / "checkpoints").glob(f"rollout-{min(best)}.*"))
    assert main(["fit", "--config=whole/config.yaml", f"--ckpt_path={one}", "--run_folder=again"]) == 0
    a, b = state(place / "whole"), state(place / "again")
    assert all(torch.equal(a["state_dict"][name], b["state_dict"][name]) for name in a["state_dict"])
    later = {step: value for step, value in values.items() if step >= min(best)}
    assert combined(place / "again") == later, "what was evaluated after it is evaluated again"


def test_a_metric_that_is_not_measured_is_refused_before_training(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *tiny(gpt2_base, checkpoint__best_by="accuracy", run_folder="run")]) == 2
    printed = capfd.readouterr()
    assert "error: checkpoint.best_by=accuracy: held-out evaluation does not measure it" in printed.err
    assert "rollout 1/" not in printed.out


class BrokenError(Exception):
    """Of the test's own."""


def break_in(what: str, rollout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the task, or the second agent's optimizer, fail in this rollout."""
    from lit_cory.module import CoryLightningModule
    from lit_cory.tasks import SentimentTask

    step = CoryLightningModule.training_step
    now: dict[str, int] = {"rollout": 0, "steps": 0}

    def counting(self: CoryLightningModule, queries: Any, batch_idx: int) -> None:
        now.update(rollout=self.rollouts_done + 1, steps=0)
        step(self, queries, batch_idx)
        now.update(rollout=0)

    score, adam = SentimentTask.score, torch.optim.Adam.step

    def scoring(self: SentimentTask, *args: Any) -> list[float]:
        if now["rollout"] == rollout and what == "task":
            raise BrokenError
        return score(self, *args)

    def stepping(self: torch.optim.Adam, *args: Any, **kwargs: Any) -> Any:
        now["steps"] += 1
        if now["rollout"] == rollout and what == "optimizer" and now["steps"] == 2:
            raise BrokenError
        return adam(self, *args, **kwargs)

    monkeypatch.setattr(CoryLightningModule, "training_step", counting)
    monkeypatch.setattr(SentimentTask, "score", scoring)
    monkeypatch.setattr(torch.optim.Adam, "step", stepping)


@pytest.mark.parametrize(
    ("what", "policy", "saved"), [("optimizer", "shared_lora", 3), ("task", "full", 3), ("optimizer", "full", 2)]
)
def test_an_exception_leaves_the_last_whole_rollout(
    what: str, policy: str, saved: int, place: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    period = {"checkpoint.every_n_rollouts": 2, "model.policy": policy, "model.lr": 1e-3}
    given = options(gpt2_base, model__rollouts=4, model__score_scaling="normalize", **period)
    assert main(["fit", *given, "--run_folder=whole"]) == 0
    with monkeypatch.context() as patch:
        break_in(what, 4, patch)
        try:
            status = main(["fit", *given, "--run_folder=broken"])
        except BrokenError:
            status = 1
    assert status
    assert state(place / "broken")["cory"]["rollouts_done"] == saved
    assert main(["fit", "--resume", "broken"]) == 0
    assert_equal_runs(place / "whole", place / "broken")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--ckpt_path=last", "ckpt_path=last: the last of which run? Give --resume RUN_FOLDER"),
        ("--ckpt_path last --run_folder nowhere", "resume=nowhere: there is no nowhere/checkpoints/last.ckpt"),
        ("--resume", "resume=.: there is no checkpoints/last.ckpt"),
    ],
)
def test_the_last_of_no_run_is_refused(
    given: str, expected: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *given.split()]) == 2
    assert expected in capfd.readouterr().err


def test_a_failed_write_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "last.ckpt"
    write_checkpoint({"weights": torch.arange(3)}, path)
    with pytest.raises(SaveError, match=r"last\.ckpt: can't be written"):
        write_checkpoint({"weights": torch.arange(3), "odd": Unwritable()}, path)
    assert torch.load(path, weights_only=True)["weights"].tolist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


class Unwritable:
    """Fails half-way into a file, as a disk does."""

    def __reduce__(self) -> Any:
        raise OSError(28, "No space left on device")


def test_the_last_of_a_run_by_name_and_a_half_written_file(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *options(gpt2_base, run_folder="run", model__rollouts=1)]) == 0
    (place / "run" / "checkpoints" / PART).write_bytes(b"PK half a file")
    assert main(["fit", "--ckpt_path=last", "--run_folder=run", "--model.rollouts=2"]) == 0
    assert state(place / "run")["cory"]["rollouts_done"] == 2
    assert not (place / "run" / "checkpoints" / PART).exists()
