"""Checkpoints counted in rollouts: the trainer's own counters follow optimizer steps, many to a rollout."""

from pathlib import Path
from typing import Any

import lightning as L

from lit_cory.module import CoryLightningModule


class RolloutCheckpoint(L.Callback):
    """Save ``checkpoints/last.ckpt`` in the run folder every N rollouts and after the last one.

    Args:
        every_n_rollouts: the period; 0 saves none.
    """

    def __init__(self, every_n_rollouts: int = 10) -> None:
        self.every_n_rollouts = every_n_rollouts

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Save after each N-th rollout and the last."""
        del args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        done = pl_module.rollouts_done
        if self.every_n_rollouts and (done % self.every_n_rollouts == 0 or done == pl_module.rollouts):
            # Optimizers and loops too, not the weights alone.
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "checkpoints" / "last.ckpt", weights_only=False)
