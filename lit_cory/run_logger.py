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
            warnings.warn(
                f"{Path(self.root_dir)}: the disk is full ({free / 2**20:.1f} MB free), so that curves have a gap until "
                "there is space again",
                stacklevel=2,
            )
        self.full = free < SPACE
        return _DummyExperiment() if self.full else super().experiment
