"""Checkpoints counted in rollouts: the trainer's own counters follow optimizer steps, many to a rollout."""

import math
import re
import shutil
import sys
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from lit_cory.checkpoint_file import SaveError, replace_file, write_checkpoint
from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule
from lit_cory.run_logger import RunLogger

LAST = "last.ckpt"


class RolloutCheckpoint(L.Callback):
    """Save ``checkpoints/last.ckpt`` in the run folder every N rollouts, after the last one, and when a run ends early.

    Beside it stand the best of those rollouts after which the agents were evaluated, as
    ``rollout-20.combined=0.31.ckpt``, say; they can be resumed from too.

    A checkpoint is always of the end of a rollout. What one of that moment would hold is collected after every rollout
    and kept, without a copy, until the first optimizer step of the next; where a run ends before that step, in the
    task's code say, nothing is lost. Where adapters are trained, which are small, it is copied at that step, so that
    nothing is lost after it either. Full copies are too large to be held twice.

    Args:
        every_n_rollouts: the period; 0 saves none at all.
        keep: how many of the best to keep beside the last.
        best_by: the held-out metric that they are the best by, the mean over the agents alone; null takes the combined
            reward where it is measured, else the score.
        on_full: what to do where a checkpoint can't be written, as on a full disk: go_on with a warning, or stop the
            run. The former checkpoint stays in either case.

    Raises:
        UserError: for a negative number.
    """

    def __init__(
        self,
        every_n_rollouts: int = 10,
        keep: int = 1,
        best_by: Literal["combined", "score", "accuracy"] | None = None,
        on_full: Literal["go_on", "stop"] = "go_on",
    ) -> None:
        for key, value in {"every_n_rollouts": every_n_rollouts, "keep": keep}.items():
            if value < 0:
                raise UserError(f"checkpoint.{key}={value}: must be 0 or above")
        self.every_n_rollouts, self.keep, self.best_by, self.on_full = every_n_rollouts, keep, best_by, on_full
        self.whole: dict[str, Any] | None = None
        self.copied = False
        self.saved_at = 0

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Collect the state after each rollout; save after each N-th and the last."""
        del args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        if not self.every_n_rollouts:
            return
        # Every process takes part, since some states are gathered from all; the first alone writes.
        self.whole, self.copied = trainer._checkpoint_connector.dump_checkpoint(weights_only=False), False
        done = pl_module.rollouts_done
        if done % self.every_n_rollouts == 0 or done == pl_module.rollouts or trainer.should_stop:
            for logger in trainer.loggers:
                if isinstance(logger, RunLogger):  # the points up to here are not written again after a resumption
                    logger.flush()
            self.save(trainer, LAST)

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        """Part what was collected from the weights before these move."""
        del optimizer
        assert isinstance(pl_module, CoryLightningModule)
        if self.whole is None or self.copied:
            return
        small, first = pl_module.policy_settings.policy == "shared_lora", trainer.is_global_zero
        self.whole = apply_to_collection(self.whole, Tensor, on_cpu) if small and first else None
        self.copied = True

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Save the last whole rollout, and say how to go on."""
        del pl_module, exception
        if not trainer.is_global_zero or not self.every_n_rollouts:
            return
        if self.whole is not None and rollouts_of(self.whole) > self.saved_at:
            self.save(trainer, LAST, ending=True)
        if (folder_of(trainer) / LAST).is_file():
            at = f" ({self.saved_at} rollouts)" if self.saved_at else ""
            print(
                f"lit_cory: saved in {folder_of(trainer) / LAST}{at}; go on with: "
                f"python -m lit_cory fit --resume {trainer.default_root_dir}",
                file=sys.stderr,
                flush=True,
            )

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Know which rollout a resumed run has already on disk."""
        del pl_module
        source, last = Path(str(trainer.ckpt_path)), folder_of(trainer) / LAST
        if source.absolute() == last.absolute():
            self.saved_at = rollouts_of(checkpoint)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the state that was evaluated where it is among the best, and then remove those it supersedes."""
        assert isinstance(pl_module, CoryLightningModule)
        wanted = self.keep and self.every_n_rollouts and trainer.state.fn == TrainerFn.FITTING
        if not wanted or not trainer.is_global_zero:
            return
        metric, value = self.measured(pl_module)
        done = pl_module.rollouts_done
        name = f"rollout-{done}.{metric}={value:.6g}.ckpt"
        found = [each for each in best_files(folder_of(trainer), metric) if each[2].name != name]
        others = sorted(found, key=lambda each: (-each[0], each[1]))
        if done == 0 or not math.isfinite(value) or (len(others) >= self.keep and value <= others[self.keep - 1][0]):
            return
        if (folder_of(trainer) / name).is_file() or self.save(trainer, name):
            for _, _, path in others[self.keep - 1 :]:
                path.unlink(missing_ok=True)

    def measured(self, module: CoryLightningModule) -> tuple[str, float]:
        """Name and value of the metric that states are compared by.

        Raises:
            UserError: where it is not measured.
        """
        alone = [module.held_out.get(name) or module.held_out[f"{name} greedy"] for name in module.agent_names]
        means = [sum(samples[1:], start=samples[0]).means() for samples in alone]
        metric = self.best_by or ("combined" if "combined" in means[0] else "score")
        if metric not in means[0]:
            raise UserError(
                f"checkpoint.best_by={metric}: held-out evaluation does not measure it here; name score, or null"
            )
        return metric, fmean(mean[metric] for mean in means)

    def save(self, trainer: L.Trainer, name: str, ending: bool = False) -> bool:
        """Write what was collected, or after a resumption the file that was resumed from; returns whether it is there.

        Raises:
            UserError: where it can't be written and the run is to stop then.
        """
        if not trainer.is_global_zero:
            return False
        path = folder_of(trainer) / name
        try:
            if self.whole is not None:
                write_checkpoint(self.whole, path)
            else:
                copy_file(Path(str(trainer.ckpt_path)), path)
        except SaveError as error:
            message = f"checkpoint not saved: {error}; the former one is kept. Free space there"
            if self.on_full == "stop" and not ending:
                raise UserError(f"{message}, then resume (checkpoint.on_full=stop ends the run here)") from error
            warnings.warn(message if ending else f"{message}; the run goes on (checkpoint.on_full)", stacklevel=2)
            return False
        if name == LAST and self.whole is not None:
            self.saved_at = rollouts_of(self.whole)
        return True


def folder_of(trainer: L.Trainer) -> Path:
    """Where a run's checkpoints lie."""
    return Path(trainer.default_root_dir) / "checkpoints"


def rollouts_of(checkpoint: dict[str, Any]) -> int:
    """How many rollouts a checkpoint is of."""
    return int(checkpoint["cory"]["rollouts_done"])


def best_files(folder: Path, metric: str) -> list[tuple[float, int, Path]]:
    """Value, rollouts and path of each file that was kept for its value of a metric."""
    pattern = re.compile(rf"rollout-(\d+)\.{metric}=(-?\d[\d.e+-]*)\.ckpt")
    found = [(pattern.fullmatch(path.name), path) for path in folder.glob("rollout-*.ckpt")]
    return [(float(match[2]), int(match[1]), path) for match, path in found if match]


def copy_file(source: Path, target: Path) -> None:
    """Copy a file as safely as one is written."""
    with source.open("rb") as file:
        replace_file(target, lambda to: shutil.copyfileobj(file, to), source.stat().st_size)


def on_cpu(tensor: Tensor) -> Tensor:
    """A copy in the machine's own memory."""
    return tensor.detach().to("cpu", copy=True)
