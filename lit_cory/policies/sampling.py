"""Drawing tokens in ``generate``, and from the ids that it returns to answers with a mask made from lengths."""

import torch
from torch import Tensor
from transformers import LogitsProcessor

from lit_cory import ops


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


class Draw(LogitsProcessor):
    """Leave only a token that is drawn from softmax(scores / temperature), so that the likeliest one is a sample.

    transformers' own sampling draws by ``torch.multinomial`` (see :func:`lit_cory.ops.draw`).
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """From logits [B, V] to 0 at the token drawn and -inf elsewhere; from torch's global random stream."""
        wide = torch.float32 if scores.device.type == "mps" else torch.float64  # which has no float64
        uniform = torch.rand(len(scores), dtype=wide, device=scores.device)
        drawn = ops.draw(scores / self.temperature, uniform)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)


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
