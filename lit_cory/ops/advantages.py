"""Generalised advantage estimation."""

import torch
from torch import Tensor

from lit_cory.ops._inputs import real_places


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 1.0, lam: float = 0.95) -> tuple[Tensor, Tensor]:
    """Advantages and returns, unwhitened (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    ``advantages[t] = sum_l (gamma * lam)^l delta[t + l]`` with ``delta[t] = rewards[t] + gamma * values[t + 1] -
    values[t]`` over the real tokens of a row; the value after the last one is 0. Masked places count as if they were
    not there.

    Args:
        rewards: [B, T], per token.
        values: [B, T], estimated before each token.
        mask: [B, T] bool.
        gamma: discount per token.
        lam: weight of longer returns, 0 = one step, 1 = all of the response.

    Returns:
        advantages [B, T] and returns [B, T] = advantages + values, both 0 where masked.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    rewards, values = real_places(mask, rewards=rewards, values=values)
    advantages = torch.zeros_like(rewards + values)
    next_advantage = next_value = torch.zeros_like(advantages[:, 0])
    for t in reversed(range(mask.shape[1])):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = torch.where(real, delta + gamma * lam * next_advantage, next_advantage)
        next_value = torch.where(real, values[:, t], next_value)
        advantages[:, t] = next_advantage
    advantages = advantages.masked_fill(~mask, 0)
    return advantages, advantages + values
