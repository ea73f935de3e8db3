"""Shaped rewards: the KL penalty at every token, the team score at the last."""

import torch
from torch import Tensor

from lit_cory.ops._inputs import promote, real_places


def shape_rewards(score: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """``-kl_coef * kl[b, t] + (t == last[b]) * score[b]``, 0 where masked (Ziegler et al. 2019, arXiv 1909.08593).

    Args:
        score: [B], what the agent is paid for the whole response.
        kl: [B, T], per-token KL from the reference.
        mask: [B, T] bool. ``last[b]`` is its last True in row b; a row without any is paid nothing.
        kl_coef: weight of the KL in units of score per nat.

    Returns:
        [B, T] rewards.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes don't fit.
    """
    if score.shape != kl.shape[:1]:
        raise ValueError(f"score {list(score.shape)} must be one number a row of kl {list(kl.shape)}")
    (kl,) = real_places(mask, kl=kl)
    after = mask.flip(-1).cumsum(-1).flip(-1)  # real tokens from here on
    last = mask & (after == 1)
    return torch.where(last, promote(score).unsqueeze(-1), 0) - kl_coef * kl
