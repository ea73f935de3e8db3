"""A run that is stopped and resumed equals the unbroken one, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from lightning.pytorch.cli import LightningArgumentParser

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.errors import Interrupted
from tests.test_cli import place, tiny

__all__ = ["place"]


def options(base: Path, **more: Any) -> list[str]:
    """Six rollouts, each saved; roles are exchanged after the second, fourth and sixth."""
    usual = {"model__rollouts": 6, "checkpoint__every_n_rollouts": 1, "trainer__val_check_interval": 3}
    return tiny(base, **(usual | more))


def state(run: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return saved


def assert_equal_runs(one: Path, other: Path) -> None:
    """Weights, optimizer moments, controllers, roles, and every scalar but the seconds."""
    a, b = state(one), state(other)
    assert a["state_dict"].keys() == b["state_dict"].keys()
    assert all(torch.equal(a["state_dict"][name], b["state_dict"][name]) for name in a["state_dict"])
    for left, right in zip(a["optimizer_states"], b["optimizer_states"], strict=True):
        for index, moments in left["state"].items():
            again = right["state"][index]
            assert all(torch.equal(torch.as_tensor(x), torch.as_tensor(again[key])) for key, x in moments.items())
    for key in ("order", "updates", "rollouts_done"):
        assert a["cory"][key] == b["cory"][key]
    frames = [read_scalars(run) for run in (one, other)]
    kept = [f[~f["tag"].str.startswith("time/")][["tag", "step", "value"]].reset_index(drop=True) for f in frames]
    pd.testing.assert_frame_equal(kept[0], kept[1])
    for name in ("summary.csv", "answers.csv"):
        assert (one / name).read_text() == (other / name).read_text()


class StopError(RuntimeError):
    """The stop."""


def stop_after(rollouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run die while the rollout after this many is under way."""
    from lit_cory.module import CoryLightningModule

    step = CoryLightningModule.training_step

    def dying(self: CoryLightningModule, queries: Any, batch_idx: int) -> None:
        if self.rollouts_done == rollouts:
            raise StopError
        step(self, queries, batch_idx)

    monkeypatch.setattr(CoryLightningModule, "training_step", dying)


@pytest.mark.parametrize(
    ("agents", "more"),
    [
        (2, {"model.kl.adaptive": True, "model.score_scaling": "normalize", "model.lr_schedule": "linear"}),
        (1, {"model.update.epochs": 2, "model.update.minibatch_size": 3}),
        (3, {}),
        (2, {"model.policy": "full", "model.lr": 1e-3}),
    ],
)
def test_a_resumed_run_equals_the_unbroken_one(
    agents: int, more: dict[str, Any], place: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(gpt2_base, model__agents=agents, **more)
    assert main(["fit", *given, "--run_folder=whole"]) == 0
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(StopError):
            main(["fit", *given, "--run_folder=broken"])
    assert state(place / "broken")["cory"]["rollouts_done"] == 3
    assert main(["fit", "--resume", "broken"]) == 0
    assert_equal_runs(place / "whole", place / "broken")
    assert {"config.yaml", "config-1.yaml"} <= set(os.listdir(place / "broken"))


def test_a_killed_process_resumes(place: Path, gpt2_base: Path) -> None:
    given = options(gpt2_base)
    assert main(["fit", *given, "--run_folder=whole"]) == 0
    command = [sys.executable, "-m", "lit_cory", "fit", *given, "--run_folder=killed"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not (place / "killed" / "checkpoints" / "last.ckpt").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert main(["fit", "--resume", "killed"]) == 0
    assert_equal_runs(place / "whole", place / "killed")


def test_a_folder_without_a_run_is_refused(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "empty").mkdir()
    assert main(["fit", "--resume", "empty"]) == 2
    assert "resume=empty: there is no empty/checkpoints/last.ckpt" in capfd.readouterr().err


def test_what_is_typed_wins_and_is_reported(place: Path, gpt2_base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = options(gpt2_base, model__rollouts=2, run_folder="run", model__lr_schedule="linear")
    assert main(["fit", *given]) == 0
    capsys.readouterr()
    typed = ["--model.rollouts=4", "--model.lr=0.005", "--model.kl.coef=0.7", "--data.val_size=5"]
    assert main(["fit", *given, *typed, "--ckpt_path=run/checkpoints/last.ckpt", "--run_folder=more"]) == 0
    printed = capsys.readouterr().out
    for line in ("model.rollouts: 2 -> 4", "model.lr: 0.01 -> 0.005", "model.kl.coef: 0.05 -> 0.7"):
        assert f"changed since the checkpoint: {line}\n" in printed
    scalars = read_scalars(place / "more").set_index(["tag", "step"])["value"]
    for agent in ("agent_0", "agent_1"):
        # Linear over 2 rollouts it had come to 0; over 4, two and one of four parts of the new rate are left.
        assert scalars[f"train/{agent}/lr", 3] == pytest.approx(0.005 / 2)
        assert scalars[f"train/{agent}/lr", 4] == pytest.approx(0.005 / 4)
        assert scalars[f"train/{agent}/kl_coef", 4] == pytest.approx(0.7)
    assert ("train/agent_0/score", 2) not in scalars.index
    summary = pd.read_csv(place / "more" / "summary.csv")
    assert summary["queries"].tolist()[0] == 5
    assert "gain" not in summary, "the start was measured on other queries"


def test_a_configuration_that_a_signal_cuts_off_is_none(
    place: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(gpt2_base, model__rollouts=3)
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(StopError):
            main(["fit", *given, "--run_folder=run"])

    def cut_off(self: LightningArgumentParser, config: Any, path: str, **more: Any) -> None:
        Path(path).write_text("")
        raise Interrupted(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(LightningArgumentParser, "save", cut_off)
        assert main(["fit", "--resume", "run"]) == 128 + signal.SIGTERM
    assert main(["fit", "--resume", "run"]) == 0
    assert {path.name for path in (place / "run").glob("*config*.yaml")} == {"config.yaml", "config-1.yaml"}
