"""Drawing tokens."""

import torch
from torch import Tensor

from lit_cory.ops._inputs import promote


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """The token [B] at which the cumulative probability of softmax(``logits`` [B, V]) first exceeds ``uniform`` [B].

    A draw from that distribution where ``uniform`` is one from [0, 1): the inverse of the distribution function. It
    takes one random number where ``torch.multinomial`` takes V, which on a CPU costs more than a small model's pass.
    Sums run in the dtype of ``uniform``: in float32, tokens less likely than 1e-7 are drawn too often or never.

    Raises:
        ValueError: ``uniform`` is not one number a row.
    """
    if uniform.shape != logits.shape[:-1]:
        raise ValueError(f"uniform {list(uniform.shape)} must be a number a row of logits {list(logits.shape)}")
    below = promote(logits).softmax(-1).to(uniform.dtype).cumsum(-1)
    at = uniform[..., None] * below[..., -1:]
    return torch.searchsorted(below, at, right=True).clamp(max=logits.shape[-1] - 1)[..., 0]
