"""From a run's checkpoint to its agents."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule


def load_agents(module: CoryLightningModule, checkpoint: str | Path, device: torch.device) -> None:
    """Make the module's agents on ``device`` and load them and their roles; what scores answers is not prepared.

    Raises:
        UserError: for a file that is no checkpoint of a run or doesn't fit the module, and as ``load_model`` does.
    """
    saved = read_checkpoint(checkpoint)
    module.build_agents(device)
    if "cory" in saved:
        module.load_state_dict(saved["state_dict"])
    module.on_load_checkpoint(saved)


def read_checkpoint(checkpoint: str | Path) -> dict[str, Any]:
    """What a checkpoint holds, read without running code that a file could bring."""
    try:
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"ckpt_path={checkpoint}: can't be read as a checkpoint ({why[0]}); name one below a run folder"
        ) from error
    return saved if isinstance(saved, dict) else {}


def run_folder_of(checkpoint: str | Path) -> Path:
    """The run folder of ``RUN/checkpoints/last.ckpt``."""
    return Path(checkpoint).absolute().parent.parent
