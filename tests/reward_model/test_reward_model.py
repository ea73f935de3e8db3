"""``lit_cory reward`` from labelled reviews to a reward by path."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lit_cory.__main__ import main
from lit_cory.reward_model import RewardModel
from lit_cory.tasks import SentimentTask
from lit_cory.types import Query
from tests.reward_model.reviews import write_reviews
from tests.tasks.tiny_classifier import make_classifier


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an encoder and reviews."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    make_classifier(tmp_path / "encoder")
    write_reviews(tmp_path / "reviews")
    return tmp_path


def options(**more: Any) -> list[str]:
    """Options of a training of seconds."""
    usual = {
        "model.base": "./encoder",
        "model.lr": 0.01,
        "data.source": "./reviews",
        "data.batch_size": 16,
        "data.min_tokens": 6,
        "data.max_tokens": 12,
        "save_every_n_steps": 3,
        "trainer.accelerator": "cpu",
        "trainer.precision": "32-true",
    }
    return [f"--{key}={value}" for key, value in (usual | {k.replace("__", "."): v for k, v in more.items()}).items()]


def test_becomes_a_reward_by_path(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reward", *options(data__epochs=6, model__lr=0.003)]) == 0
    run = place / "runs" / "reward" / "0"
    facts = json.loads((run / "summary.json").read_text())
    assert facts["accuracy"] > 0.95, "four words tell the two labels apart"
    assert (facts["train_reviews"], facts["test_reviews"]) == (160, 60)
    assert f"Written to {run / 'model'}" in capsys.readouterr().out
    task = SentimentTask(reward=str(run / "model"), output="probability")
    task.prepare(torch.device("cpu"))
    queries = [Query("the film was", 0)] * 3
    good, great, dull = task.score(queries, [" good and long", " great and long", " dull and long"])
    assert min(good, great) > 0.5 > dull, "the probability of the positive class"
    assert json.loads((run / "model" / "tokenizer_config.json").read_text())["model_max_length"] == 12


def test_the_accuracy_is_that_of_the_folder_on_all_test_reviews(place: Path) -> None:
    assert main(["reward", *options(run_folder="run", model__lr=0.002, data__test_batch_size=7)]) == 0
    task = SentimentTask(reward="./run/model", output="probability")
    task.prepare(torch.device("cpu"))
    import pandas as pd

    test = pd.read_parquet(place / "reviews" / "test.parquet")
    scores = task.score([Query(text, 0) for text in test["text"]], [""] * len(test))
    right = [(score > 0.5) == bool(label) for score, label in zip(scores, test["label"], strict=True)]
    assert json.loads((place / "run" / "summary.json").read_text())["accuracy"] == pytest.approx(sum(right) / 60)


class StopError(RuntimeError):
    """The stop."""


def test_a_stopped_training_goes_on_bit_for_bit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["reward", *options(run_folder="whole")]) == 0
    step = RewardModel.training_step

    def dying(self: RewardModel, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == 7:
            raise StopError
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(RewardModel, "training_step", dying)
        with pytest.raises(StopError):
            main(["reward", *options(run_folder="broken")])
    assert not (place / "broken" / "model").exists()
    assert main(["reward", *options(ckpt_path="broken/checkpoints/last.ckpt")]) == 0
    whole, resumed = (load_file(place / run / "model" / "model.safetensors") for run in ("whole", "broken"))
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())


REFUSALS = {
    "unknown key": ("--model.learning_rate=1", "learning_rate"),
    "rate": ("--model.lr=0", "model.lr=0.0: must be above 0"),
    "length": ("--data.min_tokens=20", "data.min_tokens=20, data.max_tokens=12: must be 3 <= min <= max"),
    "size": ("--data.train_size=0", "data.train_size=0: must be at least 1"),
    "passes": ("--trainer.max_epochs=2", "trainer.max_epochs has no place here; use data.epochs"),
    "source": ("--data.source=./nowhere", "data.source=./nowhere: there is no such file or folder"),
    "encoder": ("--model.base=./nowhere", "model.base=./nowhere: no such folder"),
    "bundled": ("--model.base=bundled:nothing", "of encoders bundled:minilm-l6"),
    "folder in use": ("--run_folder=reviews", "run_folder=reviews: already holds a run"),
    "checkpoint": ("--ckpt_path=nowhere.ckpt", "ckpt_path=nowhere.ckpt: can't be read"),
    "checkpoint of something else": ("--ckpt_path=other/checkpoints/a.ckpt", "it is of no reward model"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_gives_one_line(name: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    option, expected = REFUSALS[name]
    (place / "other" / "checkpoints").mkdir(parents=True)
    torch.save({"state_dict": {"w": torch.ones(1)}}, place / "other" / "checkpoints" / "a.ckpt")
    assert main(["reward", *options(), option]) == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line.lower()]
    assert len(errors) == 1
    assert expected in errors[0]
    assert not (place / "runs").exists(), "no empty folder is left"


def test_a_complete_run_is_not_written_over(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["reward", *options(run_folder="run")]) == 0
    before = (place / "run" / "model" / "model.safetensors").read_bytes()
    assert main(["reward", *options(ckpt_path="run/checkpoints/last.ckpt")]) == 2
    assert "that run is complete" in capfd.readouterr().err
    assert (place / "run" / "model" / "model.safetensors").read_bytes() == before


def test_the_shipped_configuration_parses(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path(__file__).resolve().parents[2] / "configs" / "imdb_reward.yaml"
    with pytest.raises(SystemExit) as stop:
        main(["reward", "--config", str(config), "--print_config"])
    assert stop.value.code in (0, None)
    assert "base: bundled:minilm-l6" in capsys.readouterr().out
