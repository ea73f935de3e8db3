"""TensorBoard's event file of a run, which a full disk does not end."""

import shutil
import warnings
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import _DummyExperiment
from lightning.pytorch.loggers import TensorBoardLogger

SPACE = 2**20
"""Bytes that must be free for points to be written; what is queued for the file at a time is far less."""


class RunLogger(TensorBoardLogger):
    """Leaves points out while there is no space for them, and says so once.

    The writer's own thread would die of a full disk, and with it the run.
    """

    full = False

    @property
    def experiment(self) -> Any:
        """The writer, or one that does nothing."""
        free = shutil.disk_usage(self.root_dir).free if self._experiment is not None else SPACE
        if free < SPACE and not self.full:
            self.tell(f"{free / 2**20:.1f} MB free")
        self.full = free < SPACE
        return _DummyExperiment() if self.full else super().experiment

    def flush(self) -> None:
        """Hand all points to the system: a process that is killed afterwards has not lost them."""
        try:
            self.experiment.flush()
        except OSError as error:  # the disk was filled by others since the points were queued
            self._experiment = None  # its thread is dead; another is begun when there is space
            self.tell(str(error))

    def tell(self, why: str) -> None:
        """Warn of the gap."""
        folder = Path(self.root_dir)
        warnings.warn(
            f"{folder}: the disk is full ({why}), so that curves have a gap until there is space", stacklevel=3
        )
