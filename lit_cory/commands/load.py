"""From a run's checkpoint to its agents."""

from pathlib import Path

import torch

from lit_cory.checkpoint_file import read_checkpoint
from lit_cory.module import CoryLightningModule
from lit_cory.preflight import check_checkpoint


def load_agents(module: CoryLightningModule, checkpoint: str | Path, device: torch.device) -> None:
    """Make the module's agents on ``device`` and load them and their roles; what scores answers is not prepared.

    Raises:
        UserError: for a file that is no checkpoint of a run or doesn't fit the module, and as ``load_model`` does.
    """
    saved = read_checkpoint(checkpoint)
    check_checkpoint(module, saved)
    module.build_agents(device)
    module.load_state_dict(saved["state_dict"])
    module.on_load_checkpoint(saved)


def run_folder_of(checkpoint: str | Path) -> Path:
    """The run folder of ``RUN/checkpoints/last.ckpt``."""
    return Path(checkpoint).absolute().parent.parent
