"""The effective configuration, beside what it led to."""

import itertools
from pathlib import Path

import lightning as L
from lightning.pytorch.cli import SaveConfigCallback


class SaveRunConfig(SaveConfigCallback):
    """Save the effective configuration of runs and evaluations; a resumed run's beside its earlier ones."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Save before any work, under the first free name, and whole: a signal may come while it is written."""
        if self.already_saved:
            return
        folder = Path(str(trainer.log_dir))
        names = itertools.chain(["config.yaml"], (f"config-{number}.yaml" for number in itertools.count(1)))
        free = next(name for name in names if not (folder / name).exists())
        self.config_filename = ".config.yaml"
        if trainer.is_global_zero:
            (folder / self.config_filename).unlink(missing_ok=True)  # of one that was ended in the midst of it
        super().setup(trainer, pl_module, stage)
        if trainer.is_global_zero:
            (folder / self.config_filename).rename(folder / free)
