"""Elastic Reset: now and then an agent goes back to its own average, and the average to the start."""

from typing import Any

import lightning as L

from lit_cory.ema import Ema, copies, copy
from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule


class ElasticReset(L.Callback):
    """Elastic Reset (Noukhovitch et al. 2023, arXiv 2312.07551), for each agent by itself.

    A moving average follows the policy. After every N-th rollout the policy is set to the average, and the average to
    the start. The value head and the optimizer's moments stay as they are.

    Args:
        every_n_rollouts: the period N; 0 never resets.
        decay: of the average, taken once a rollout.

    Raises:
        UserError: a number out of range.
    """

    def __init__(self, every_n_rollouts: int = 0, decay: float = 0.95) -> None:
        if every_n_rollouts < 0:
            raise UserError(f"elastic_reset.every_n_rollouts={every_n_rollouts}: must be 0 or above")
        if not 0 <= decay < 1:
            raise UserError(f"elastic_reset.decay={decay}: must be 0 or above and below 1")
        self.every_n_rollouts, self.decay = every_n_rollouts, decay
        self.averages: dict[str, Ema] = {}
        self.start: dict[str, Any] = {}
        self.saved: dict[str, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin at the agents as they are, or as a resumed run left off."""
        del trainer
        assert isinstance(pl_module, CoryLightningModule)
        if self.every_n_rollouts == 0:
            return
        for agent in pl_module.agents():
            parameters = agent.lm_parameters()
            self.averages[agent.name], self.start[agent.name] = Ema(parameters, self.decay), copies(parameters)
            if self.saved:
                self.averages[agent.name].load(self.saved["averages"][agent.name])
                copy(self.saved["start"][agent.name], self.start[agent.name])

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Take the rollout's step into the averages; reset after each N-th."""
        del trainer, args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        for name, ema in self.averages.items():
            ema.update()
            if pl_module.rollouts_done % self.every_n_rollouts == 0:
                copy(ema.average, ema.parameters)
                ema.load(self.start[name])

    def state_dict(self) -> dict[str, Any]:
        """Averages and starts by agent; empty where there are no resets."""
        if not self.averages:
            return {}
        return {"averages": {name: ema.average for name, ema in self.averages.items()}, "start": self.start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep them until training begins."""
        self.saved = state_dict
