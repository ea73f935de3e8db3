"""Exchange of roles on a period of rollouts (the paper's T_REx)."""

from typing import Any

import lightning as L

from lit_cory.module import CoryLightningModule


class RoleSwap(L.Callback):
    """Exchange the roles of all agents every N rollouts; a team of one has nothing to exchange.

    Args:
        every_n_rollouts: the period; 0 never exchanges.
    """

    def __init__(self, every_n_rollouts: int = 5) -> None:
        self.every_n_rollouts = every_n_rollouts

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Exchange after each N-th rollout."""
        del trainer, args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        if self.every_n_rollouts > 0 and pl_module.rollouts_done % self.every_n_rollouts == 0:
            pl_module.team.exchange()
