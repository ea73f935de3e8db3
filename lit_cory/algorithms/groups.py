"""Algorithms without a critic: a response is judged by other responses to the same query."""

from abc import abstractmethod

import torch
from torch import Tensor

from lit_cory import ops
from lit_cory.algorithms.base import Algorithm
from lit_cory.errors import UserError
from lit_cory.types import Scores


class GroupAlgorithm(Algorithm):
    """The whole response is one action; its advantage comes from the returns of its group.

    Args:
        group_size: responses to each query, at least 2; a rollout has this many times the queries of a batch.
        clip: how far the probability ratio may move from 1; null for no limit.

    Raises:
        UserError: a group of one.
    """

    def __init__(self, group_size: int, clip: float | None) -> None:
        if group_size < 2:
            raise UserError(f"model.algorithm.group_size={group_size}: must be at least 2")
        self.group_size = group_size
        self.clip = float("inf") if clip is None else clip

    @abstractmethod
    def group_advantages(self, returns: Tensor) -> Tensor:
        """Advantages [B] from the returns [B] of groups in a row."""

    def advantages(self, rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The advantage of its response at every token; there is nothing for a critic to learn."""
        del values
        total = ops.masked_sum(rewards, mask)
        return self.group_advantages(total)[:, None] * mask, torch.zeros_like(rewards)

    def loss(
        self, new: Scores, old: Scores, advantages: Tensor, returns: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The policy loss alone."""
        del returns
        policy = ops.policy_loss(new.logprobs, old.logprobs, advantages, mask, self.clip)
        scalars = {
            "policy_loss": policy.loss.detach(),
            "clip_fraction": policy.clip_fraction,
            "approx_kl": policy.approx_kl,
        }
        return policy.loss, scalars
