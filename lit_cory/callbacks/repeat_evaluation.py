"""The held-out evaluation that the end of a run may have cut off, made again where the run is resumed."""

import lightning as L

from lit_cory.module import CoryLightningModule


class RepeatEvaluation(L.Callback):
    """Evaluate first where a run is resumed at a rollout that is followed by an evaluation.

    Checkpoints are of the end of a rollout, so that it is not known whether the evaluation after it was finished; the
    trainer takes it for done. Must stand behind what sets the random states: a task may draw from them in evaluation.
    """

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Run the trainer's own loop, as it does after a rollout."""
        assert isinstance(pl_module, CoryLightningModule)
        done, period = pl_module.rollouts_done, trainer.val_check_batch
        if trainer.ckpt_path is None or done == 0 or not period or done % period:
            return
        loop, connector = trainer.fit_loop.epoch_loop.val_loop, trainer._logger_connector
        first = connector._first_loop_iter
        loop.restarting = False
        trainer.validating = True
        loop.run()
        trainer.training = True
        connector._first_loop_iter = first
