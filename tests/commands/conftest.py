"""Runs of seconds, trained once for all tests of the commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lit_cory.__main__ import main

TrainedRun = Callable[..., Path]

# Steps large enough that an agent's logits differ from the base's by far more than a test tolerates.
OPTIONS = {
    "model.rollouts": 2,
    "model.lora.r": 2,
    "model.lora.alpha": 6,
    "model.lr": 0.1,
    "model.response_tokens": "[6, 8]",
    "model.task": "tests.agents.LetterTask",  # tiny models write no words that a sentiment could be read from
    "model.dtype": "float32",
    "data.batch_size": 4,
    "data.val_size": 6,
    "exchange.every_n_rollouts": 1,
    "samples.every_n_rollouts": 0,
    "trainer.accelerator": "cpu",
}


@pytest.fixture(scope="session")
def trained(tiny_base: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Checkpoint of two agents of a tiny family after 2 rollouts, in roles exchanged twice; don't write beside it."""
    made: dict[tuple[str, ...], Path] = {}

    def train(family: str, *options: str) -> Path:
        key = (family, *options)
        if key not in made:
            run = tmp_path_factory.mktemp("run") / "run"
            all_options = OPTIONS | {"model.base": tiny_base(family), "run_folder": run}
            assert main(["fit", *[f"--{k}={v}" for k, v in all_options.items()], *options]) == 0
            made[key] = run / "checkpoints" / "last.ckpt"
        return made[key]

    return train


def export(checkpoint: Path, to: Path, *options: str) -> Path:
    """Export through the command line, by the run's own configuration."""
    assert main(["export", f"--ckpt_path={checkpoint}", f"--to={to}", *options]) == 0
    return to
