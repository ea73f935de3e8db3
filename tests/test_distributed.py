"""Runs of two processes from the command line, over gloo on the loopback interface."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from lit_cory import ranks
from lit_cory.__main__ import main
from lit_cory.callbacks import RandomState
from tests.agents import QUERIES, make_agents, make_team
from tests.pair import Pair
from tests.test_cli import place, tiny
from tests.test_resume import assert_equal_runs, state

__all__ = ["place"]

TWO = {"trainer.accelerator": "cpu", "trainer.devices": 2}


def command(base: Path, run: str, **more: Any) -> list[str]:
    """Four rollouts of five queries, three to one process and two to the other."""
    usual = {"data.batch_size": 5, "checkpoint.every_n_rollouts": 1, "model.lr": 1e-3, "run_folder": run}
    return [sys.executable, "-m", "lit_cory", "fit", *tiny(base, **(usual | TWO | more))]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=400, check=False, env=environment)


def children(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def ended(process: int) -> bool:
    """Whether it is gone, or waits only for its parent to ask how it ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state == "Z"


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 300
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def killed(arguments: list[str], first: bool, checkpoint: Path) -> str:
    """Kill one of a run's two processes once there is a checkpoint; returns what the run printed, when both ended."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        wait_for(checkpoint)
        (other,) = children(process.pid)
        os.kill(process.pid if first else other, signal.SIGKILL)
        printed = process.communicate(timeout=60)[0]
    assert ended(other)
    return printed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_a_killed_process_ends_the_other_and_the_run_resumes(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run(command(gpt2_base, "whole"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rollout 4/4") == 1, "one process speaks"
    for first, name in ((True, "killed"), (False, "killed too")):
        printed = killed(command(gpt2_base, name), first, place / name / "checkpoints" / "last.ckpt")
        assert re.search("lost another one|terminated with code -9", printed), printed
    again = run([sys.executable, "-m", "lit_cory", "fit", "--resume", "killed"])
    assert again.returncode == 0, again.stderr
    assert_equal_runs(place / "whole", place / "killed")
    assert main(["fit", "--resume", "killed", "--trainer.devices=1", "--model.rollouts=5"]) == 2
    assert "a run in 2 processes, not 1; resume it with as many" in capfd.readouterr().err


def test_a_sharded_base_learns_the_same(place: Path, gpt2_base: Path) -> None:
    for name, strategy in (("whole", "ddp"), ("dealt", "sharded")):
        arguments = command(gpt2_base, name, **{"data.batch_size": 4, "trainer.strategy": strategy})
        done = run(arguments)
        assert done.returncode == 0, done.stderr
    whole, dealt = state(place / "whole"), state(place / "dealt")
    for name, weight in whole["state_dict"].items():
        torch.testing.assert_close(dealt["state_dict"][name], weight, atol=1e-5, rtol=0)
    answers = [pd.read_csv(place / name / "answers.csv")[["agent", "row", "texts"]] for name in ("whole", "dealt")]
    pd.testing.assert_frame_equal(answers[0], answers[1])


def sample(rank: int, folder: Path) -> None:
    team = make_team(make_agents(folder / "base"), tokens=(3, 9))
    torch.manual_seed(0)
    RandomState().on_train_start(None, None)  # type: ignore[arg-type]
    for _ in range(3):
        responses = team.rollout(QUERIES)[0].response
        widths = ranks.gather_objects(responses.tokens.shape[1])
        texts = ranks.gather_objects(responses.texts)
        assert widths[0] == widths[1], "the limit of new tokens is one of the whole rollout"
        assert not set(texts[0]) & set(texts[1])


def test_processes_sample_different_texts(llama_base: Path, tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "base").symlink_to(llama_base)
    pair.run(sample, tmp_path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--trainer.strategy=deepspeed", r"trainer\.strategy=deepspeed: can't train agents by .*use ddp, or sharded"),
        ("--trainer.strategy=fsdp", r"trainer\.strategy=fsdp: "),
        ("--trainer.strategy=lightning.pytorch.strategies.FSDPStrategy", r"trainer\.strategy=FSDPStrategy: "),
        ("--trainer.devices=5", r"data\.batch_size=4: must be at least the number of processes, 5"),
        ("--trainer.devices=3 --trainer.strategy=sharded", r"batch_size=4: must be a multiple of the 3 processes"),
        (
            "--trainer.devices=2 --trainer.strategy=sharded --model.update.minibatch_size=1",
            r"minibatch_size=1: must be a multiple of 2 with trainer\.strategy=sharded",
        ),
        ("--trainer.devices=2 --trainer.strategy=sharded --model.policy=full", r"model\.policy=full: must be shared"),
        ("--trainer.devices=2 --trainer.strategy=sharded --model.quantization=nf4", r"quantization=nf4: must be none"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_in_one_line(
    options: str, expected: str, place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *tiny(gpt2_base), "--trainer.accelerator=cpu", *options.split()]) == 2
    printed = capfd.readouterr().err
    assert re.search(expected, printed), printed
    assert "Traceback" not in printed
    assert not (place / "runs").exists()
