"""``python -m lit_cory reward``: train a sentiment classifier, test it, and leave it as a reward by path."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from scipy.stats import binomtest

from lit_cory.callbacks import RandomState
from lit_cory.checkpoint_file import read_checkpoint
from lit_cory.commands.export import new_folder
from lit_cory.commands.load import run_folder_of
from lit_cory.errors import UserError
from lit_cory.policies.loading import auto_dtype
from lit_cory.reward_model.data import LabelledReviews
from lit_cory.reward_model.model import RewardModel
from lit_cory.run_folder import make_run_folder, remove_if_empty


class StepLines(L.Callback):
    """Where output is no terminal: about twenty lines of progress, and one before the test."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time."""
        del pl_module
        self.start, self.first = time.monotonic(), trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Print steps done, the loss, and the time left."""
        del args, kwargs
        done, total = trainer.global_step, trainer.datamodule.steps  # type: ignore[attr-defined]
        if done % max(1, total // 20) == 0 or done == total:
            left = (time.monotonic() - self.start) / (done - self.first) * (total - done) / 60
            loss = float(trainer.progress_bar_metrics["loss"])
            print(f"step {done}/{total}: loss {loss:.3f}; {left:.1f} min left", flush=True)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say what takes its time."""
        del pl_module
        print(f"testing on {len(trainer.datamodule.test)} reviews ...", flush=True)  # type: ignore[attr-defined]


class RewardCLI(LightningCLI):
    """Parses and makes everything; :meth:`train` does the work."""

    model: RewardModel
    datamodule: LabelledReviews

    def __init__(self, args: list[str]) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(
            RewardModel,
            LabelledReviews,
            run=False,
            save_config_callback=None,
            seed_everything_default=0,
            trainer_defaults={
                "max_epochs": 1,
                "devices": 1,
                "log_every_n_steps": 1,
                "logger": False,
                "enable_model_summary": False,
                "precision": "bf16-mixed" if auto_dtype(device) == torch.bfloat16 else "32-true",
            },
            parser_kwargs={"prog": "lit-cory reward", "exit_on_error": False},
            args=args,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder and where to go on from."""
        parser.add_argument("--run_folder", type=str | None, default=None, help="new; else the next of runs/NAME/")
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="of a run that was stopped, to go on")
        parser.add_argument("--save_every_n_steps", type=int, default=50, help="steps between checkpoints")
        parser.link_arguments("model.base", "data.tokenizer")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what follows ``reward``, without Lightning's warning that the command line holds more."""
        self.config = parser.parse_args(args)

    def before_instantiate_classes(self) -> None:
        """Check the checkpoint, and make the run folder before any work."""
        config = self.config
        if config.trainer.max_epochs != 1:
            raise UserError("trainer.max_epochs has no place here; use data.epochs")
        if config.save_every_n_steps < 1:
            raise UserError(f"save_every_n_steps={config.save_every_n_steps}: must be at least 1")
        wanted = config.run_folder
        if config.ckpt_path is not None:
            check_checkpoint(config.ckpt_path)
            wanted = wanted or str(run_folder_of(config.ckpt_path))
        file = str(config.config[0]) if config.config else None
        self.folder = make_run_folder(wanted, file or "reward", "fit", config.ckpt_path)
        if (self.folder / "model").exists():
            raise UserError(f"ckpt_path={config.ckpt_path}: that run is complete; its model is in {self.folder}/model")

    def instantiate_classes(self) -> None:
        """Make everything; where that fails, no run folder is left."""
        with self.empty_folder_removed():
            super().instantiate_classes()

    @contextmanager
    def empty_folder_removed(self) -> Iterator[None]:
        """Take the run folder away again where nothing came of it."""
        try:
            yield
        except BaseException:
            if self.config.run_folder is None:
                remove_if_empty(self.folder)
            raise

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """Add checkpoints, random states and the display that fits the output."""
        terminal = sys.stdout.isatty()
        save = ModelCheckpoint(
            self.folder / "checkpoints",
            filename="last",
            every_n_train_steps=self.config.save_every_n_steps,
            enable_version_counter=False,
        )
        display: list[L.Callback] = [RichProgressBar()] if terminal else [StepLines()]
        return super().instantiate_trainer(
            default_root_dir=self.folder,
            callbacks=[save, RandomState(), *display],
            enable_progress_bar=terminal,
            **kwargs,
        )

    def train(self) -> None:
        """Fit, test, and write ``model/`` and ``summary.json``."""
        self.datamodule.setup("fit")
        config = self.folder / "config.yaml"
        if not config.exists():
            config.write_text(self.parser.dump(self.config, skip_none=False), encoding="utf-8")
        start = time.monotonic()
        self.trainer.fit(self.model, datamodule=self.datamodule, ckpt_path=self.config.ckpt_path, weights_only=True)
        minutes = (time.monotonic() - start) / 60
        self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)
        accuracy = float(self.trainer.callback_metrics["accuracy"])
        with new_folder(self.folder / "model") as made:
            self.model.save(made, self.datamodule.tokenizer, self.datamodule.max_tokens)
        self.report(accuracy, minutes)

    def report(self, accuracy: float, minutes: float) -> None:
        """Write what came of it, with the exact (Clopper and Pearson's) 95% interval, and say it."""
        n = len(self.datamodule.test)
        interval = binomtest(round(accuracy * n), n).proportion_ci()
        facts = {
            "base": self.model.base,
            "train_reviews": len(self.datamodule.train),
            "test_reviews": n,
            "max_tokens": self.datamodule.max_tokens,
            "accuracy": accuracy,
            "accuracy_low": float(interval.low),
            "accuracy_high": float(interval.high),
            "minutes": minutes,
        }
        (self.folder / "summary.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        of = f"on the first {facts['max_tokens']} tokens of {n} test reviews"
        print(f"Accuracy {accuracy:.1%} [{interval.low:.1%}, {interval.high:.1%}] {of}; trained for {minutes:.1f} min")
        folder = (self.folder / "model").absolute()
        print(f"Written to {folder}; to be paid by it: --model.task.reward {folder}")


def check_checkpoint(path: str) -> None:
    """Raise a UserError where ``path`` is no checkpoint of a reward model."""
    saved = read_checkpoint(path)
    names = saved.get("state_dict", {})
    if "pytorch-lightning_version" not in saved or not all(name.startswith("classifier.") for name in names):
        raise UserError(f"ckpt_path={path}: it is of no reward model; name one below the run folder of one")


def train_reward_model(args: list[str]) -> None:
    """Train as the arguments say."""
    cli = RewardCLI(args)
    with cli.empty_folder_removed():
        cli.train()
