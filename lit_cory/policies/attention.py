"""Attention over short sequences on a CPU, where PyTorch's own has a slow backward pass."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

NAME = "lit_cory_cpu"

LONGEST = 256
"""Queries of a sequence up to which all weights of a layer are held at once; memory grows with their square."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """softmax(Q K^T / sqrt(D) + mask) V, written out where that is faster: neither for one query nor for many.

    On CPUs the backward pass of PyTorch's fused kernel takes up to seven times as long in bfloat16, and twice as long
    in float32. Whether gradients are on makes no difference: a policy and its reference are to be rounded alike.

    Args:
        module: the layer.
        query: [B, heads, Q, D].
        key, value: [B, key heads, K, D]; the heads are a multiple of the key heads.
        attention_mask: [B, 1, Q, K], 0 where a query may look and the lowest number elsewhere.
        scaling: of the products; None is 1 / sqrt(D).
        position_bias, kwargs: of transformers' own function, which takes the rest.

    Returns:
        [B, Q, heads, D], and None for the weights.
    """
    if not 1 < query.shape[2] <= LONGEST or position_bias is not None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, scaling=scaling, position_bias=position_bias, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    grouped = query.reshape(*key.shape[:2], -1, query.shape[-1])  # the queries that look at the same keys together
    products = (grouped @ key.transpose(-1, -2)).view(*query.shape[:3], -1) * scale + attention_mask
    weights = products.softmax(-1, dtype=torch.float32).to(query.dtype)
    result = weights.view(*grouped.shape[:3], -1) @ value
    return result.view(query.shape).transpose(1, 2).contiguous(), None


def attend_fast(model: PreTrainedModel) -> None:
    """Let a ``model`` on a CPU use :func:`attention` in place of PyTorch's fused one; others stay as they are."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, eager_mask)
        model.set_attn_implementation(NAME)
