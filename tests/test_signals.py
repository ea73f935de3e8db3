"""Signals at the worst moments of a run: it ends with a whole rollout saved, and goes on from there bit for bit."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lit_cory.__main__ import main
from tests.test_cli import place
from tests.test_resume import assert_equal_runs, options, state

__all__ = ["place"]

SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130}


def send(number: int, at: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send this process a signal while the second agent of the third rollout learns, or in the evaluation after it."""
    from lit_cory.module import CoryLightningModule
    from lit_cory.update import AgentUpdate

    learn, validate, calls = AgentUpdate.learn, CoryLightningModule.validation_step, [0]

    def learning(self: AgentUpdate, *args: Any) -> Any:
        calls[0] += 1
        if at == "update" and calls[0] == 2 * 3:
            for _ in range(times):
                os.kill(os.getpid(), number)
        return learn(self, *args)

    def validating(self: CoryLightningModule, *args: Any) -> None:
        if at == "evaluation" and self.rollouts_done == 3:
            os.kill(os.getpid(), number)
        validate(self, *args)

    monkeypatch.setattr(AgentUpdate, "learn", learning)
    monkeypatch.setattr(CoryLightningModule, "validation_step", validating)


@pytest.mark.parametrize(
    ("number", "at", "times", "saved"),
    [(signal.SIGTERM, "update", 1, 3), (signal.SIGINT, "update", 2, 2), (signal.SIGTERM, "evaluation", 1, 3)],
)
def test_a_signal_leaves_a_whole_rollout(
    number: signal.Signals,
    at: str,
    times: int,
    saved: int,
    place: Path,
    gpt2_base: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    given = options(gpt2_base, model__rollouts=4, trainer__val_check_interval=3, checkpoint__every_n_rollouts=10)
    assert main(["fit", *given, "--run_folder=whole"]) == 0
    with monkeypatch.context() as patch:
        send(number, at, times, patch)
        assert main(["fit", *given, "--run_folder=broken"]) == SIGNALS[number]
    printed = capfd.readouterr().err
    said = f"lit_cory: {number.name}: rollout 3 will be finished and saved first; Ctrl-C again ends at once\n"
    assert (said in printed) == (at == "update")
    assert f"broken/checkpoints/last.ckpt ({saved} rollouts); go on with: python -m lit_cory fit --resume" in printed
    assert "Traceback" not in printed
    assert state(place / "broken")["cory"]["rollouts_done"] == saved
    assert main(["fit", "--resume", "broken"]) == 0
    assert_equal_runs(place / "whole", place / "broken")
    assert [signal.getsignal(each) for each in SIGNALS] == before
