"""What the module adds to a checkpoint and takes back: weights that train, controllers, roles, answers at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lit_cory.checkpoint_check import check_moments
from lit_cory.errors import UserError
from lit_cory.evaluation import HeldOut
from lit_cory.preflight import CHECKPOINT_FORMAT, check_checkpoint

if TYPE_CHECKING:
    from lit_cory.module import CoryLightningModule


def copy_weights(own: Mapping[str, Tensor], saved_weights: Mapping[str, Tensor]) -> None:
    """Copy saved weights into ``own``, by name.

    Raises:
        UserError: where names or shapes differ; nothing is copied then.
    """
    shapes, saved = ({n: tuple(t.shape) for n, t in d.items()} for d in (own, saved_weights))
    odd = sorted(n for n in shapes.keys() | saved.keys() if shapes.get(n) != saved.get(n))
    if odd:
        raise UserError(
            f"the checkpoint does not fit this model ({len(odd)} tensors differ, {odd[0]} among them); "
            "give it the base, agents, policy and lora that it was trained with"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved_weights[name])


def add(module: CoryLightningModule, checkpoint: dict[str, Any]) -> None:
    """Add the state of controllers and roles, and the held-out tables from before training."""
    checkpoint["cory"] = {
        "format": CHECKPOINT_FORMAT,
        "bases": module.bases(),
        "policies": asdict(module.policy_settings),
        "rollouts_done": module.rollouts_done,
        "order": list(module.team.order),
        "updates": [update.state_dict() for update in module.updates],
        "before": {name: [vars(table) for table in samples] for name, samples in module.before.items()},
        "before_texts": module.before_texts,
    }


def take_back(module: CoryLightningModule, checkpoint: dict[str, Any]) -> None:
    """Take back what :func:`add` added; a learning rate and a length of the run that were changed since then hold.

    Raises:
        UserError: as ``check_checkpoint`` and ``check_moments`` do.
    """
    check_checkpoint(module, checkpoint)
    check_moments(checkpoint, module.agents())
    saved = checkpoint["cory"]
    module.rollouts_done = saved["rollouts_done"]
    module.team.order[:] = saved["order"]
    for update, state in zip(module.updates, saved["updates"], strict=True):
        update.load_state_dict(state)
    module.before = {name: [HeldOut(**table) for table in samples] for name, samples in saved["before"].items()}
    module.before_texts = saved["before_texts"]
    if module.rollouts_done < module.rollouts:  # a run that was complete can be made longer
        checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False
    for schedule in checkpoint["lr_schedulers"]:
        schedule["base_lrs"] = [module.lr for _ in schedule["base_lrs"]]
