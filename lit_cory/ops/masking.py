"""Reductions over real tokens alone."""

import torch
from torch import Tensor

from lit_cory.ops._inputs import real_places


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum over the real tokens of each response: [..., T] and a bool mask of the same shape -> [...].

    The KL of a response is this sum of its per-token KL; its mean over the batch is what is logged and what the KL
    controller sees.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    (x,) = real_places(mask, x=x)
    return x.sum(-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over all real tokens: x and a bool mask of the same shape -> scalar.

    An empty mask gives a 0 that still hangs on the graph of ``x``, so that backward runs and gives zero gradients.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    (x,) = real_places(mask, x=x)
    return x.sum() / mask.sum().clamp(min=1)


def masked_whiten(x: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
    """Real tokens at mean 0 and variance 1; 0 where masked. Shape of ``x``.

    The variance is the unbiased one (divided by n - 1). A single token, or tokens that differ by no more than rounding,
    have no scale: their whitened values are 0. With ``shift_mean=False`` the mean is added back after scaling.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    (x,) = real_places(mask, x=x)
    tokens = x[mask]
    if tokens.numel() == 0:
        return x
    low, high = tokens.aminmax()
    rounding = 4 * torch.finfo(x.dtype).eps * torch.maximum(low.abs(), high.abs())
    flat = high - low <= rounding
    white = torch.zeros_like(tokens) if flat else (tokens - tokens.mean()) / tokens.std()
    return torch.zeros_like(x).masked_scatter(mask, white if shift_mean else white + tokens.mean())
