"""Ctrl-C and SIGTERM in training: finish the rollout, then end; whoever saves checkpoints saves the last whole one."""

import os
import signal
import threading
from types import FrameType
from typing import Any

import lightning as L

from lit_cory.errors import Interrupted
from lit_cory.interruption import SIGNALS
from lit_cory.module import CoryLightningModule


class StopOnSignal(L.Callback):
    """End a run that is told to: after the present rollout, or at once where none is under way.

    A second Ctrl-C ends it at once in any case. Must stand behind what acts after a rollout.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.in_rollout = False

    def listen(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the signals over from the trainer, which would end with status 0 or 1; it gives them back at its end."""
        assert isinstance(pl_module, CoryLightningModule)
        self.module, self.speaks = pl_module, trainer.is_global_zero
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self.told)

    on_sanity_check_start = on_train_start = on_validation_start = on_test_start = listen

    def told(self, number: int, frame: FrameType | None) -> None:
        """What a signal does."""
        del frame
        if not self.in_rollout or (number == signal.SIGINT and self.number is not None):
            raise Interrupted(number)
        if self.number is None and self.speaks:
            name, rollout = signal.Signals(number).name, self.module.rollouts_done + 1
            line = f"lit_cory: {name}: rollout {rollout} will be finished and saved first; Ctrl-C again ends at once\n"
            os.write(2, line.encode())  # print may be what the signal interrupted
        self.number = number

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """From here on there is something to finish."""
        self.in_rollout = True

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """End here where any process was told to."""
        del pl_module, args, kwargs
        self.in_rollout = False
        if trainer.strategy.reduce_boolean_decision(self.number is not None, all=False):
            raise Interrupted(self.number or signal.SIGTERM)
