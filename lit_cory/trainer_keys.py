"""The trainer's keys on the command line: other defaults than Lightning's, and those that have no place here."""

from collections.abc import Callable
from typing import Any

from lit_cory.errors import UserError

# A run is one epoch of the trainer, as many batches long as there are rollouts; all of the trainer's counts of batches
# are counts of rollouts. The sanity check is the held-out evaluation before training, so it takes all batches.
TRAINER_DEFAULTS: dict[str, Any] = {
    "max_epochs": 1,
    "devices": 1,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": -1,
    "check_val_every_n_epoch": None,
    "val_check_interval": 20,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}

# Keys of the trainer that would be ignored or misread here, and what to use. They keep their defaults.
REFUSED = {
    "limit_train_batches": "model.rollouts",
    "max_epochs": "model.rollouts (a run is one epoch)",
    "gradient_clip_val": "model.update.max_grad_norm",
    "gradient_clip_algorithm": "model.update.max_grad_norm",
    "max_steps": "model.rollouts (the trainer's steps are optimizer steps, several to a rollout)",
    "min_steps": "model.rollouts",
    "max_time": "model.rollouts",
    "default_root_dir": "run_folder",
    "precision": "model.dtype",
    "fast_dev_run": "model.rollouts and data.val_size",
    "overfit_batches": "model.rollouts and data.val_size",
    "limit_val_batches": "data.val_size",
    "limit_test_batches": "data.val_size and validate",
    "use_distributed_sampler": "its default: a batch is dealt among all processes",
}


def check_trainer_keys(trainer: Any, default: Callable[[str], Any]) -> None:
    """Refuse keys that would mislead.

    Args:
        trainer: the keys as the user gave them.
        default: of a key.

    Raises:
        UserError: for the first that differs from its default, or that is neither of what it may be.
    """
    for key, use in REFUSED.items():
        if trainer[key] != default(key):
            raise UserError(f"trainer.{key} has no place here; use {use}")
    if trainer.num_sanity_val_steps not in (-1, 0):
        steps = trainer.num_sanity_val_steps
        raise UserError(f"trainer.num_sanity_val_steps={steps}: must be -1, to measure the start, or 0")
