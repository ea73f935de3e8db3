"""KL of the policy from the reference: sampled estimators, and the exact value.

Which of them may stand where: as a penalty in the reward, ``k1`` alone has an expected policy gradient along that of
the true KL; as a loss term ``k2`` and the exact KL have it, ``k3`` nearly. ``k1`` as a loss and the exact KL in the
reward of its own token have no expected gradient at all.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from lit_cory.ops._inputs import promote, same_shape

KLEstimator = Literal["k1", "k2", "k3", "abs"]
KL_ESTIMATORS: tuple[KLEstimator, ...] = get_args(KLEstimator)


def kl_per_token(logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator = "k1") -> Tensor:
    """Estimate of KL(policy || reference) at each sampled token: two [B, T] -> [B, T].

    With d = logprobs - ref_logprobs: ``k1`` d, ``k2`` d^2 / 2, ``k3`` exp(-d) - 1 + d (Schulman, "Approximating KL
    Divergence", 2020), ``abs`` |d|. Over tokens sampled from the policy, k1 and k3 have the true KL as their mean.
    There is no mask here: masked places must hold finite numbers if the result is to be differentiated.

    Raises:
        ValueError: unknown estimator, or shapes differ.
    """
    same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    d = promote(logprobs) - promote(ref_logprobs)
    match estimator:
        case "k1":
            return d
        case "k2":
            return d.square() / 2
        case "k3":
            return torch.expm1(-d) + d  # expm1: no cancellation for small d
        case "abs":
            return d.abs()
    raise ValueError(f"unknown KL estimator {estimator!r}: use one of {', '.join(KL_ESTIMATORS)}, or full_kl on logits")


def full_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Exact KL(policy || reference) of the next-token distributions in nats: two [..., V] -> [...].

    A token that the policy can't choose (logit -inf) adds nothing; one that only the reference can't choose gives inf.

    Raises:
        ValueError: shapes differ.
    """
    same_shape(logits=logits, ref_logits=ref_logits)
    logprobs = promote(logits).log_softmax(-1)
    d = logprobs - promote(ref_logits).log_softmax(-1)
    return (logprobs.exp() * d.masked_fill(logprobs == -torch.inf, 0)).sum(-1)
