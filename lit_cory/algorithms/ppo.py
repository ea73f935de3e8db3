"""Proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347) with generalized advantage estimation."""

import torch
from torch import Tensor

from lit_cory import ops, ranks
from lit_cory.algorithms.base import Algorithm
from lit_cory.types import Scores


class PPO(Algorithm):
    """Clipped policy loss and clipped value loss.

    Args:
        clip: how far the probability ratio may move from 1.
        value_clip: how far a value may move from the old one; null for no limit.
        value_coef: weight of the value loss.
        gamma: discount per token.
        lam: lambda of the advantage estimation; 1 trusts rewards alone, 0 the critic alone.
    """

    def __init__(
        self,
        clip: float = 0.2,
        value_clip: float | None = 0.2,
        value_coef: float = 0.1,
        gamma: float = 1.0,
        lam: float = 0.95,
    ) -> None:
        self.clip = clip
        self.value_clip = value_clip
        self.value_coef = value_coef
        self.gamma = gamma
        self.lam = lam

    def advantages(self, rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """GAE, whitened over the whole rollout of all processes; the returns are of the unwhitened advantages."""
        advantages, returns = ops.gae(rewards, values, mask, self.gamma, self.lam)
        white = ranks.over_all(lambda x: ops.masked_whiten(x, torch.ones_like(x, dtype=torch.bool)), advantages[mask])
        return torch.zeros_like(advantages).masked_scatter(mask, white), returns

    def loss(
        self, new: Scores, old: Scores, advantages: Tensor, returns: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Clipped policy loss + ``value_coef`` times the value loss."""
        policy = ops.policy_loss(new.logprobs, old.logprobs, advantages, mask, self.clip)
        value = ops.value_loss(new.values, old.values, returns, mask, self.value_clip)
        scalars = {
            "policy_loss": policy.loss.detach(),
            "value_loss": value.detach(),
            "clip_fraction": policy.clip_fraction,
            "approx_kl": policy.approx_kl,
        }
        return policy.loss + self.value_coef * value, scalars
