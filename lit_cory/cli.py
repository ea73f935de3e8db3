"""The command line: ``python -m lit_cory fit|validate|test|bench --config ...``; every key in YAML or as an option."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import TensorBoardLogger

from lit_cory.analysis import plot_curves, read_run
from lit_cory.callbacks import (
    CurveLayout,
    ProgressLines,
    RoleSwap,
    RolloutCheckpoint,
    RolloutProgressBar,
    SampleTable,
)
from lit_cory.commands import bench
from lit_cory.data import ImdbDataModule, QueryDataModule
from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule
from lit_cory.run_folder import make_run_folder
from lit_cory.summary import print_answers, print_summary, summary_frame

# A run is one epoch of the trainer, as many batches long as there are rollouts; all of the trainer's counts of batches
# are counts of rollouts. The sanity check is the held-out evaluation before training, so it takes all batches.
TRAINER_DEFAULTS: dict[str, Any] = {
    "max_epochs": 1,
    "devices": 1,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": -1,
    "check_val_every_n_epoch": None,
    "val_check_interval": 20,
    "enable_checkpointing": False,
    "enable_model_summary": False,
}

# Keys of the trainer that would be ignored or misread here, and what to use. They keep their defaults.
REFUSED = {
    "limit_train_batches": "model.rollouts",
    "max_epochs": "model.rollouts (a run is one epoch)",
    "devices": "one device, as several processes would all sample the same",
    "num_nodes": "one node, as several processes would all sample the same",
    "gradient_clip_val": "model.update.max_grad_norm",
    "gradient_clip_algorithm": "model.update.max_grad_norm",
    "max_steps": "model.rollouts (the trainer's steps are optimizer steps, several to a rollout)",
    "min_steps": "model.rollouts",
    "max_time": "model.rollouts",
    "default_root_dir": "run_folder",
    "precision": "model.dtype",
}


class SaveRunConfig(SaveConfigCallback):
    """Save the effective configuration of training runs; evaluation leaves no files."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Save before training."""
        if stage == "fit":
            super().setup(trainer, pl_module, stage)


class CoryTrainer(L.Trainer):
    """Lightning's trainer, and what else the command line can do with a module and its data."""

    def bench(
        self, model: CoryLightningModule, datamodule: QueryDataModule, repeat: int = 5, json: str | None = None
    ) -> None:
        """Measure seconds per rollout by phase, and peak memory.

        Args:
            model: the module.
            datamodule: its data.
            repeat: rollouts to measure, after one that warms up.
            json: a file to write the figures to.
        """
        bench.report(bench.bench(model, datamodule, repeat), json)


class CoryCLI(LightningCLI):
    """LightningCLI with run folders, exchange, samples and a summary at the end."""

    model: CoryLightningModule
    datamodule: QueryDataModule

    def __init__(self, args: list[str] | None = None) -> None:
        names = self.subcommands()
        super().__init__(
            CoryLightningModule,
            QueryDataModule,
            subclass_mode_data=True,
            trainer_class=CoryTrainer,
            save_config_callback=SaveRunConfig,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            parser_kwargs={
                "prog": "lit-cory",
                "exit_on_error": False,
                **{name: {"exit_on_error": False} for name in names},
            },
            args=args,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Training and the two evaluations, with the arguments that are not for the command line."""
        names = LightningCLI.subcommands()
        return {name: names[name] for name in ("fit", "validate", "test")} | {"bench": {"model", "datamodule"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder and the callbacks that have keys; tie keys that must agree."""
        parser.add_argument(
            "--run_folder",
            type=str | None,
            default=None,
            help="Where a training run's files go, new or empty; left out, the first free of runs/NAME/0, /1 ...",
        )
        # In the order they act after a rollout: a checkpoint must hold the roles of the next one.
        parser.add_lightning_class_args(SampleTable, "samples")
        parser.add_lightning_class_args(RoleSwap, "exchange")
        parser.add_lightning_class_args(RolloutCheckpoint, "checkpoint")
        parser.set_defaults(
            {"data": {"class_path": "lit_cory.data.ImdbDataModule", "init_args": {"source": "bundled:openings"}}}
        )
        parser.link_arguments("model.base", "data.init_args.tokenizer", compute_fn=first_base)

    def _parse_ckpt_path(self) -> None:
        """Leave the keys as the user gave them, where Lightning would let those in the checkpoint win."""

    def before_instantiate_classes(self) -> None:
        """Refuse trainer keys that would mislead; make the run folder before any long work."""
        config = self.config[self.subcommand]
        for key, use in REFUSED.items():
            if config.trainer[key] != self._parser(self.subcommand).get_default(f"trainer.{key}"):
                raise UserError(f"trainer.{key} has no place here; use {use}")
        checkpoint = config.get("ckpt_path")
        if checkpoint is not None and not Path(checkpoint).is_file():
            raise UserError(f"ckpt_path={checkpoint}: no such file; name a checkpoint below a run folder")
        self.run_folder: Path | None = None
        if self.subcommand == "fit":
            files = config.get("config") or []
            self.run_folder = make_run_folder(config.run_folder, str(files[0]) if files else None)

    def instantiate_classes(self) -> None:
        """Make module, data and trainer; a run folder is taken away again where that fails."""
        with self.empty_folder_removed():
            super().instantiate_classes()

    def before_fit(self) -> None:
        """Read and check the data before the logger writes and the base is loaded."""
        with self.empty_folder_removed():
            self.datamodule.setup("fit")
            self.model.check_data(self.datamodule)

    @contextmanager
    def empty_folder_removed(self) -> Iterator[None]:
        """Take the run folder away again where a run fails before anything is in it."""
        try:
            yield
        except BaseException:
            if self.run_folder is not None:
                self.run_folder.rmdir()
            raise

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """Make the trainer with the run's length and folder, its logger, and the display that fits the output."""
        terminal = sys.stdout.isatty()
        config: Namespace = self.config_init[self.subcommand].trainer
        callbacks: list[L.Callback] = [RolloutProgressBar()] if terminal else []
        logger: Any = False
        if self.run_folder is not None:
            callbacks += [CurveLayout()] if terminal else [CurveLayout(), ProgressLines()]
            logger = config.logger
            if logger is None or logger is True:
                logger = TensorBoardLogger(self.run_folder, name="", version="", default_hp_metric=False)
        return super().instantiate_trainer(
            limit_train_batches=self.model.rollouts,
            default_root_dir=self.run_folder,
            logger=logger,
            callbacks=[*(config.callbacks or []), *callbacks],
            enable_progress_bar=terminal,
            **kwargs,
        )

    def after_fit(self) -> None:
        """Evaluate the last weights, print the summary, and say where everything lies."""
        assert self.run_folder is not None
        if self.model.held_out_at != self.model.rollouts_done:
            self.trainer.validate(self.model, datamodule=self.datamodule, verbose=False)
        frame = summary_frame(self.model.agent_names, self.model.before, self.model.held_out)
        model = self.model
        print_answers(self.datamodule.val_queries[:3], model.agent_names, model.before, model.held_out)
        print_summary(frame)
        frame.to_csv(self.run_folder / "summary.csv", index=False)
        if isinstance(self.trainer.logger, TensorBoardLogger):
            print(f"Curves: {plot_curves(read_run(self.run_folder), self.run_folder / 'curves.png')}")
        print(f"Run folder: {self.run_folder} (tensorboard --logdir {self.run_folder})")

    def after_validate(self) -> None:
        """Print what each agent does alone."""
        print_summary(summary_frame(self.model.agent_names, [], self.model.held_out))

    after_test = after_validate


def first_base(base: list[str] | str) -> str:
    """The base whose tokenizer cuts prompts, in a team of different ones too."""
    return base if isinstance(base, str) else base[0]


__all__ = ["CoryCLI", "ImdbDataModule"]
