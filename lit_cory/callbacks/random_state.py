"""Random states in the checkpoint: a resumed run samples what the unbroken one would have."""

import random
from typing import Any

import lightning as L
import numpy as np
import torch

from lit_cory import ranks
from lit_cory.errors import UserError


class RandomState(L.Callback):
    """Saves the states of Python's, NumPy's and torch's generators, CPU and GPU, and sets them before training goes on.

    Whatever is drawn between loading and training (set-up, the held-out evaluation at the start) changes nothing. Each
    process of a run has its own stream, or all would sample the same.
    """

    def __init__(self) -> None:
        self.saved: list[dict[str, Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The states of all processes, in plain types, since checkpoints are read without running code."""
        name, keys, *rest = np.random.get_state(legacy=True)
        own = {
            "python": random.getstate(),
            "numpy": [name, np.asarray(keys).tolist(), *rest],
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        }
        return {"processes": ranks.gather_objects(own)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training begins.

        Raises:
            UserError: where the run had another number of processes, whose streams can't be dealt anew.
        """
        self.saved = state_dict["processes"]
        if len(self.saved) != ranks.count():
            raise UserError(
                f"the checkpoint is of a run in {len(self.saved)} processes, not {ranks.count()}; resume it with as "
                "many (trainer.devices times trainer.num_nodes)"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set them, after everything that draws by the way; a new run's streams part here."""
        del trainer, pl_module
        if self.saved is None:
            # What came before (new adapters, say) had to be drawn alike in all processes.
            if ranks.own() > 0:
                torch.manual_seed(torch.initial_seed() + ranks.own() * 1_000_003)
            return
        own = self.saved[ranks.own()]
        version, keys, gauss = own["python"]
        random.setstate((version, tuple(keys), gauss))
        name, numbers, *rest = own["numpy"]
        np.random.set_state((name, np.array(numbers, dtype=np.uint32), *rest))
        torch.set_rng_state(own["torch"].cpu())
        if torch.cuda.is_available() and own["cuda"] is not None:
            torch.cuda.set_rng_state(own["cuda"].cpu())
