"""The classifier: an encoder with a fresh head, fine-tuned by cross-entropy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from safetensors import SafetensorError
from torch import Tensor
from torchmetrics.classification import BinaryAccuracy
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase, get_scheduler
from transformers.utils import logging

from lit_cory.errors import UserError
from lit_cory.policies.quirks import without_bars
from lit_cory.reward_model.data import encoder_source

NAMES = {0: "NEGATIVE", 1: "POSITIVE"}


class RewardModel(L.LightningModule):
    """Fine-tunes an encoder to tell positive from negative reviews.

    AdamW at a rate that rises over the warm-up and then falls linearly to 0.

    Args:
        base: the encoder: bundled:minilm-l6, a local folder or a hub id.
        lr: the highest learning rate.
        warmup: share of the steps over which the rate rises.
        weight_decay: of AdamW.

    Raises:
        UserError: a number out of range; in ``configure_model``, an encoder that can't be loaded.
    """

    def __init__(
        self, base: str = "bundled:minilm-l6", lr: float = 1e-4, warmup: float = 0.1, weight_decay: float = 0.01
    ) -> None:
        super().__init__()
        if lr <= 0:
            raise UserError(f"model.lr={lr}: must be above 0")
        if not 0 <= warmup < 1:
            raise UserError(f"model.warmup={warmup}: must be 0 or above and below 1")
        self.base, self.lr, self.warmup, self.weight_decay = base, lr, warmup, weight_decay
        self.classifier: Any = None
        self.accuracy = BinaryAccuracy()

    def configure_model(self) -> None:
        """Load the encoder and draw the head's weights; does nothing the second time."""
        if self.classifier is None:
            # Training mode, which Lightning leaves as it finds it: dropout is on.
            self.classifier = load_classifier(self.base).train()

    def configure_optimizers(self) -> Any:
        """AdamW, its rate set at every step."""
        datamodule = self.trainer.datamodule  # type: ignore[attr-defined]
        optimizer = torch.optim.AdamW(self.classifier.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        # Not the trainer's own estimate, which makes the loader before a checkpoint can tell where it was.
        steps = datamodule.steps
        schedule = get_scheduler("linear", optimizer, round(self.warmup * steps), steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Cross-entropy of a batch of ``LabelledReviews``."""
        del batch_idx
        loss: Tensor = self.classifier(**batch).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Count what is right."""
        del batch_idx
        labels = batch.pop("labels")
        logits: Tensor = self.classifier(**batch).logits
        self.accuracy(logits.argmax(dim=1), labels)
        self.log("accuracy", self.accuracy, on_epoch=True, batch_size=len(labels))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of something else.

        Raises:
            UserError: it doesn't hold just this classifier's tensors.
        """
        if checkpoint.get("state_dict", {}).keys() != self.state_dict().keys():
            raise UserError(f"ckpt_path: this checkpoint is of no reward model on {self.base}; name one of such a run")

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, max_tokens: int) -> None:
        """Write an ordinary folder, a reward by path: fp32 weights, and the tokenizer, which cuts at ``max_tokens``."""
        with without_bars():
            self.classifier.save_pretrained(folder)
        tokenizer.model_max_length = max_tokens  # more it was never trained to read
        tokenizer.save_pretrained(folder)


def load_classifier(name: str) -> Any:
    """An encoder in fp32 with a fresh head for two classes.

    Raises:
        UserError: for a name without an encoder, or weights that lack more than a head.
    """
    source = encoder_source(name)
    try:
        with without_bars(), without_reports():
            model: Any
            model, report = AutoModelForSequenceClassification.from_pretrained(  # type: ignore[misc]
                source,
                id2label=NAMES,
                label2id={label: index for index, label in NAMES.items()},
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # a classifier of other classes gets a new head
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"model.base={name}: it can't be loaded ({why}); name an encoder with safetensors") from error
    missing = sorted(key for key in report["missing_keys"] if key.startswith(f"{model.base_model_prefix}."))
    if lacking := [key for key in missing if ".pooler." not in key]:
        raise UserError(f"model.base={name}: its weights lack {lacking[0]} and others; name a complete encoder")
    return model


@contextmanager
def without_reports() -> Iterator[None]:
    """Without transformers' report that the head is fresh, which is meant."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
