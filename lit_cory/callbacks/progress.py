"""How far a run is: a bar with time left in a terminal, a line now and then elsewhere."""

import sys
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar

from lit_cory.module import CoryLightningModule


class RolloutProgressBar(RichProgressBar):
    """Lightning's rich bar in this project's words."""

    @property
    def sanity_check_description(self) -> str:
        """The pass before training measures the start."""
        return "held out, before"

    @property
    def validation_description(self) -> str:
        """Held-out evaluation along the way."""
        return "held out"

    def _get_train_description(self, current_epoch: int) -> str:
        del current_epoch
        return "rollouts"

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        """Score and KL of each agent, without the logger's version number."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics


class ProgressLines(L.Callback):
    """Where output is no terminal (a log file, CI): about one line of progress in twenty rollouts' worth of a run."""

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say what takes its time before the first rollout."""
        self.say_evaluation(trainer, "before training")

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say what takes its time between rollouts."""
        assert isinstance(pl_module, CoryLightningModule)
        if not trainer.sanity_checking:
            self.say_evaluation(trainer, f"after rollout {pl_module.rollouts_done}")

    def say_evaluation(self, trainer: L.Trainer, when: str) -> None:
        """Print one line about a held-out evaluation."""
        queries = len(getattr(trainer.datamodule, "val_queries", []))  # type: ignore[attr-defined]
        if trainer.is_global_zero and not sys.stdout.isatty():
            print(f"evaluating each agent alone on {queries} held-out queries, {when} ...", flush=True)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time."""
        del trainer
        assert isinstance(pl_module, CoryLightningModule)
        self.start, self.first = time.monotonic(), pl_module.rollouts_done

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Print rollouts done, score and KL by agent, and the time left."""
        del args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        done, total = pl_module.rollouts_done, pl_module.rollouts
        if not trainer.is_global_zero or sys.stdout.isatty() or (done % max(1, total // 20) and done != total):
            return
        seconds = (time.monotonic() - self.start) / (done - self.first) * (total - done)
        metrics = ", ".join(f"{name} {float(value):.3f}" for name, value in trainer.progress_bar_metrics.items())
        print(f"rollout {done}/{total}: {metrics}; {seconds / 60:.1f} min left", flush=True)
