"""From logits to log-probabilities and entropy."""

import torch
from torch import Tensor

from lit_cory.ops._inputs import promote


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of each token: logits [..., V] and int64 tokens [...] -> [...].

    The log-softmax runs in float32 at least: bf16 keeps two or three digits, which biases every ratio and KL.

    Raises:
        ValueError: ``tokens`` is not shaped like ``logits`` without its last dimension.
    """
    if logits.shape[:-1] != tokens.shape:
        raise ValueError(f"logits {list(logits.shape)} must be tokens {list(tokens.shape)} and a vocabulary dimension")
    return promote(logits).log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the next-token distribution in nats: logits [..., V] -> [...]. A logit of -inf adds nothing."""
    logprobs = promote(logits).log_softmax(-1)
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == -torch.inf, 0)).sum(-1)
