"""Random states in the checkpoint: a resumed run samples what the unbroken one would have."""

import random
from typing import Any

import lightning as L
import numpy as np
import torch


class RandomState(L.Callback):
    """Saves the states of Python's, NumPy's and torch's generators, CPU and GPU, and sets them before training goes on.

    Whatever is drawn between loading and training (set-up, the held-out evaluation at the start) changes nothing.
    """

    def __init__(self) -> None:
        self.saved: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """In plain types, since checkpoints are read without running code."""
        name, keys, *rest = np.random.get_state(legacy=True)
        return {
            "python": random.getstate(),
            "numpy": [name, np.asarray(keys).tolist(), *rest],
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training begins."""
        self.saved = state_dict

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set them, after everything that draws by the way."""
        del trainer, pl_module
        if self.saved is None:
            return
        version, keys, gauss = self.saved["python"]
        random.setstate((version, tuple(keys), gauss))
        name, numbers, *rest = self.saved["numpy"]
        np.random.set_state((name, np.array(numbers, dtype=np.uint32), *rest))
        torch.set_rng_state(self.saved["torch"].cpu())
        if torch.cuda.is_available() and self.saved["cuda"]:
            torch.cuda.set_rng_state_all([state.cpu() for state in self.saved["cuda"]])
