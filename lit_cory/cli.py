"""The command line: ``python -m lit_cory SUBCOMMAND``; every key in YAML or an option."""

import sys
from argparse import SUPPRESS
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import yaml
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning_utilities.core.rank_zero import rank_zero_only

from lit_cory.analysis import plot_curves, read_run
from lit_cory.callbacks import (
    CollapseWatch,
    CurveLayout,
    ElasticReset,
    ProgressLines,
    RandomState,
    RepeatEvaluation,
    RoleSwap,
    RolloutCheckpoint,
    RolloutProgressBar,
    RunCost,
    SampleTable,
    SaveRunConfig,
    StopOnSignal,
)
from lit_cory.checkpoint_file import read_checkpoint
from lit_cory.commands.arguments import changes, complete
from lit_cory.commands.trainer import CoryTrainer
from lit_cory.data import ImdbDataModule, QueryDataModule
from lit_cory.errors import UserError
from lit_cory.evaluation import Tables
from lit_cory.guards import one_line_for, unusable
from lit_cory.module import CoryLightningModule
from lit_cory.preflight import check_checkpoint, check_processes, check_strategy
from lit_cory.results import answers_frame, summary_frame, write_answers, write_results
from lit_cory.run_folder import make_run_folder, remove_if_empty
from lit_cory.run_logger import RunLogger
from lit_cory.sharding import ShardedBase
from lit_cory.summary import print_answers, print_summary
from lit_cory.trainer_keys import TRAINER_DEFAULTS, check_trainer_keys
from lit_cory.types import one_line


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
        own = {name: {"model", "datamodule"} for name in ("bench", "export", "generate", "front")}
        return {name: names[name] for name in ("fit", "validate", "test")} | own

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        """Let every subcommand read the configuration that ``fit`` saves: keys that it lacks are taken and not used."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        for key in ("ckpt_path", "weights_only"):
            if key not in self._subcommand_method_arguments[subcommand]:
                parser.add_argument(f"--{key}", default=None, help=SUPPRESS)
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder and the callbacks that have keys; tie keys that must agree."""
        parser.add_argument(
            "--run_folder",
            type=str | None,
            default=None,
            help="Where the files go, new or empty; left out, the first free of runs/NAME/0, /1 ... for training, and "
            "of validate/0, test/0, front/0 ... beside the checkpoint's folder for evaluation",
        )
        # In the order they act after a rollout: a checkpoint must hold the roles and weights of the next one.
        parser.add_lightning_class_args(ElasticReset, "elastic_reset")
        parser.add_lightning_class_args(SampleTable, "samples")
        parser.add_lightning_class_args(RoleSwap, "exchange")
        parser.add_lightning_class_args(CollapseWatch, "collapse")
        parser.add_lightning_class_args(RolloutCheckpoint, "checkpoint")
        parser.set_defaults(
            {"data": {"class_path": "lit_cory.data.ImdbDataModule", "init_args": {"source": "bundled:openings"}}}
        )
        parser.link_arguments("model.base", "data.init_args.tokenizer", compute_fn=first_base)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what was typed, after a run's own configuration where only its checkpoint is named."""
        with one_line_for("the configuration"):
            self.config = parser.parse_args(complete(sys.argv[1:] if args is None else args))

    def _parse_ckpt_path(self) -> None:
        """Leave the keys as the user gave them, where Lightning would let those in the checkpoint win."""

    def before_instantiate_classes(self) -> None:
        """Refuse trainer keys that would mislead; make the run folder before any long work."""
        config = self.config[self.subcommand]
        check_trainer_keys(config.trainer, lambda key: self._parser(self.subcommand).get_default(f"trainer.{key}"))
        check_strategy(config.trainer.strategy)
        checkpoint = config.get("ckpt_path")
        if checkpoint is not None and not Path(checkpoint).is_file():
            raise UserError(f"ckpt_path={checkpoint}: no such file; name a checkpoint below a run folder")
        self.run_folder: Path | None = None
        if self.subcommand in ("fit", "validate", "test", "front"):
            files = config.get("config") or []
            file = str(files[0]) if files else None
            # Only the first process of several writes.
            self.run_folder = (
                make_run_folder(config.run_folder, file, self.subcommand, checkpoint)
                if is_first()
                else Path(config.run_folder or "runs")
            )

    def instantiate_classes(self) -> None:
        """Make module, data and trainer, and check the checkpoint; where that fails, no run folder is left."""
        with self.empty_folder_removed():
            with one_line_for("the configuration"):
                super().instantiate_classes()
            checkpoint = self.config[self.subcommand].get("ckpt_path")
            if checkpoint is not None:
                check_checkpoint(self.model, read_checkpoint(checkpoint))

    def _run_subcommand(self, subcommand: str) -> None:
        """Take the run folder away again where nothing came of it."""
        checkpoint = self.config[self.subcommand].get("ckpt_path")
        with self.empty_folder_removed():
            try:
                super()._run_subcommand(subcommand)
            except Exception as error:
                # What a checkpoint says of the trainer's own parts shows only when a run is to go on from it.
                if checkpoint is None or self.model.scalars or isinstance(error, UserError):
                    raise
                raise UserError(f"ckpt_path={checkpoint}: {unusable(error)}; take another checkpoint") from error

    def before_fit(self) -> None:
        """Say what a resumed run does otherwise; check the data before the logger writes and the base is loaded."""
        config = self.config[self.subcommand]
        if config.get("ckpt_path") is not None:
            now = yaml.safe_load(self._parser(self.subcommand).dump(config, skip_none=False))
            for line in changes(config.ckpt_path, now) if is_first() else []:
                print(one_line(f"changed since the checkpoint: {line}"))
        self.datamodule.setup("fit")
        self.model.check_data(self.datamodule)
        sharded = isinstance(self.trainer.strategy, ShardedBase)
        check_processes(self.model, self.datamodule.batch_size, self.trainer.world_size, sharded)

    def before_validate(self) -> None:
        """Read and check the data before the base is loaded."""
        self.datamodule.setup("validate")

    before_test = before_validate

    def before_front(self) -> None:
        """Read the data, and keep the configuration, as no callback does it here."""
        assert self.run_folder is not None
        self.datamodule.setup("validate")
        text = self._parser(self.subcommand).dump(self.config[self.subcommand], skip_none=False)
        (self.run_folder / "config.yaml").write_text(text, encoding="utf-8")

    @contextmanager
    def empty_folder_removed(self) -> Iterator[None]:
        """Take the run folder away again where a run fails before anything is in it."""
        try:
            yield
        except BaseException:
            if is_first() and self.run_folder is not None and self.config[self.subcommand].run_folder is None:
                remove_if_empty(self.run_folder)
            raise

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """Make the trainer with the run's length and folder, its logger, and the display that fits the output."""
        terminal = sys.stdout.isatty()
        config: Namespace = self.config_init[self.subcommand].trainer
        callbacks: list[L.Callback] = [RolloutProgressBar()] if terminal else []
        logger: Any = False
        if self.subcommand == "fit":
            assert self.run_folder is not None
            callbacks += [RandomState(), RepeatEvaluation(), CurveLayout(), *([] if terminal else [ProgressLines()])]
            callbacks.append(RunCost())
            logger = config.logger
            if logger is None or logger is True:
                logger = RunLogger(self.run_folder, name="", version="", default_hp_metric=False)
        return super().instantiate_trainer(
            limit_train_batches=self.model.rollouts,
            default_root_dir=self.run_folder,
            logger=logger,
            callbacks=[*(config.callbacks or []), *callbacks],
            enable_progress_bar=terminal,
            **kwargs,
        )

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[L.Callback]) -> L.Trainer:
        """Let a signal end a run only after everything else that acts after a rollout."""
        return super()._instantiate_trainer(config, [*callbacks, StopOnSignal()])

    def after_fit(self) -> None:
        """Evaluate the last weights, print the summary, and say where everything lies."""
        assert self.run_folder is not None
        if self.model.held_out_at != self.model.rollouts_done:
            self.trainer.validate(self.model, datamodule=self.datamodule, verbose=False)
        if not self.trainer.is_global_zero:
            return
        model, start = self.model, self.model.start()
        frame = self.write_results(start)
        print_answers(model.held_out_queries[:3], model.agent_names, start, model.held_out)
        print_summary(frame, chief_only=True)
        if isinstance(self.trainer.logger, TensorBoardLogger):
            print(f"Curves: {plot_curves(read_run(self.run_folder), self.run_folder / 'curves.png')}")
        print(f"Run folder: {self.run_folder} (tensorboard --logdir {self.run_folder})")

    def after_validate(self) -> None:
        """Print the whole summary, and say where the answers lie."""
        if not self.trainer.is_global_zero:
            return
        print_summary(self.write_results({}))
        print(f"Results: {self.run_folder} (summary.csv, summary.json, answers.csv)")

    after_test = after_validate

    def write_results(self, before: Tables) -> pd.DataFrame:
        """Write summary and answers into the run folder; returns the summary."""
        model, task = self.model, self.model.task
        assert self.run_folder is not None
        pass_at = model.evaluation.pass_at
        frame = summary_frame(model.agent_names, before, model.held_out, pass_at, task.WAYS)
        facts = {
            "base": model.base,
            "rollouts": model.rollouts_done,
            "checkpoint": self.config[self.subcommand].get("ckpt_path"),
            "evaluation": vars(model.evaluation),
            "data": self.datamodule.source,
        }
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            facts |= callback.facts() if isinstance(callback, RunCost) else {}
        write_results(self.run_folder, frame, answers_frame(model.held_out_queries, model.held_out), facts)
        if before:
            write_answers(self.run_folder / "answers_before.csv", answers_frame(model.held_out_queries, before))
        return frame


def is_first() -> bool:
    """Whether this is the first of a run's processes, as its launcher says before they are connected."""
    return getattr(rank_zero_only, "rank", 0) == 0


def first_base(base: list[str] | str) -> str:
    """The base whose tokenizer cuts prompts, in a team of different ones too."""
    return base if isinstance(base, str) else next(iter(base), "")  # an empty list is refused by the module


__all__ = ["CoryCLI", "ImdbDataModule"]
