"""From the token ids that ``generate`` returns to answers with a mask made from lengths."""

import torch
from torch import Tensor
from transformers import LogitsProcessor


class NonFiniteLogitsError(ArithmeticError):
    """The model gave a logit that is not a number for one prompt of the batch; ``row`` is its index."""

    def __init__(self, row: int) -> None:
        super().__init__(f"non-finite logits for prompt {row} of the batch")
        self.row = row


class RefuseNonFinite(LogitsProcessor):
    """Stop at once where sampling would draw from garbage, instead of an obscure error or a silent greedy choice."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return ``scores`` [B, V] untouched, or raise :class:`NonFiniteLogitsError`."""
        finite = scores.isfinite().all(dim=-1)
        if not bool(finite.all()):
            raise NonFiniteLogitsError(int((~finite).nonzero()[0, 0]))
        return scores


def response_mask(tokens: Tensor, eos_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens of freshly sampled answers are real.

    Args:
        tokens: [B, T] int64, what was sampled; after a row's end anything may stand.
        eos_ids: [E] int64, every id that ends an answer.

    Returns:
        mask [B, T] bool, True up to and including the first end-of-sequence token; ended [B] bool.
    """
    is_eos = torch.isin(tokens, eos_ids)
    ended = is_eos.any(dim=1)
    length = torch.where(ended, is_eos.int().argmax(dim=1) + 1, tokens.shape[1])
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return positions[None, :] < length[:, None], ended
