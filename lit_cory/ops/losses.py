"""PPO's losses, as means over real tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from lit_cory.ops._inputs import real_places
from lit_cory.ops.masking import masked_mean


class PolicyLoss(NamedTuple):
    """The clipped policy loss and how far the policy has moved; all are scalars.

    Attributes:
        loss: to be minimised, with a graph.
        clip_fraction: share of real tokens at which the clip binds, so that they add no gradient; without a graph.
        approx_kl: mean of ratio - 1 - log ratio, an estimate of KL(old || new); without a graph.
    """

    loss: Tensor
    clip_fraction: Tensor
    approx_kl: Tensor


def policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2
) -> PolicyLoss:
    """Mean of ``-min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A)`` (Schulman et al. 2017, arXiv 1707.06347).

    Args:
        logprobs: [B, T], of the response tokens under the policy being trained.
        old_logprobs: [B, T], the same under the policy that sampled them.
        advantages: [B, T].
        mask: [B, T] bool.
        clip: how far the ratio may leave 1 to the advantage's benefit.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    logprobs, old_logprobs, advantages = real_places(
        mask, logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages
    )
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip, 1 + clip)
    loss = masked_mean(torch.maximum(unclipped, clipped), mask)
    with torch.no_grad():
        clip_fraction = masked_mean((clipped > unclipped).to(loss.dtype), mask)
        approx_kl = masked_mean(torch.expm1(log_ratio) - log_ratio, mask)
    return PolicyLoss(loss, clip_fraction, approx_kl)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float | None = None) -> Tensor:
    """Half the mean squared error of the values: four [B, T] -> scalar.

    With ``clip`` each token counts with the larger of two errors, that of the value and that of the value held within
    ``clip`` of the old one (as in the PPO code of OpenAI baselines), so that a value gains nothing by a longer step.

    Raises:
        TypeError: the mask is not bool.
        ValueError: shapes differ.
    """
    values, old_values, returns = real_places(mask, values=values, old_values=old_values, returns=returns)
    error = (values - returns).square()
    if clip is not None:
        held = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (held - returns).square())
    return 0.5 * masked_mean(error, mask)
