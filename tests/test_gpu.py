"""The same runs where a GPU is; two of them for what several processes do over NCCL."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from lit_cory.__main__ import main
from tests.test_cli import place, tiny
from tests.test_distributed import command as two_processes
from tests.test_distributed import run
from tests.test_resume import state

__all__ = ["place"]

GPUS = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
two = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model.policy": "full"},
        {"model.quantization": "nf4"},
        {"model.quantization": "int8"},
        {"model.gradient_checkpointing": True},
        {"model.dtype": "float32", "model.kl.estimator": "full", "model.kl.placement": "loss"},
    ],
    ids=str,
)
def test_a_run_ends_and_is_evaluated_again_alike(place: Path, llama_base: Path, options: dict[str, str]) -> None:
    given = tiny(llama_base, run_folder="run", trainer__accelerator="gpu", **options)
    assert main(["fit", *given]) == 0
    again = ["validate", "--config", "run/config.yaml", "--ckpt_path", "run/checkpoints/last.ckpt"]
    assert main(again) == 0
    summary, repeated = (pd.read_csv(place / "run" / part / "summary.csv") for part in (".", "validate/0"))
    assert repeated["after"].tolist() == pytest.approx(summary["after"].tolist(), abs=1e-2)
    assert json.loads((place / "run" / "summary.json").read_text())["peak_mb"]["gpu"] > 0


@two
@pytest.mark.parametrize("strategy", ["ddp", "sharded"])
def test_two_gpus_end_alike_twice(place: Path, llama_base: Path, strategy: str) -> None:
    options = {"model.dtype": "float32", "trainer.strategy": strategy, "trainer.accelerator": "gpu"}
    for name in ("once", "again"):
        done = run(two_processes(llama_base, name, **options | {"data.batch_size": 4}))
        assert done.returncode == 0, done.stderr
    once, again = (state(place / name)["state_dict"] for name in ("once", "again"))
    for name, weight in once.items():
        assert torch.isfinite(weight).all()
        torch.testing.assert_close(again[name], weight, atol=1e-4, rtol=0)
