"""Attention written out: the same numbers and gradients as PyTorch's, on every family that uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lit_cory.policies import attention
from lit_cory.policies.loading import load_model
from tests.tiny import FAMILIES


def pass_and_gradients(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits of the real tokens, and the gradients of a sum that weighs each of them otherwise."""
    model.requires_grad_(True).zero_grad()
    lm: Any = model
    logits: Tensor = lm(input_ids=ids, attention_mask=mask, use_cache=False).logits[mask.bool()]
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    (logits.float() * weights).sum().backward()  # type: ignore[no-untyped-call]
    return logits.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def padded_rows() -> tuple[Tensor, Tensor]:
    """Three rows of 12 tokens, one whole, one half and one almost all padding on the left."""
    ids = torch.randint(300, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[1, :6] = mask[2, :11] = 0
    return ids, mask


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma2"])
@pytest.mark.parametrize("longest", [256, 11])
def test_numbers_and_gradients_are_those_of_the_fused_kernel(
    tiny_base: Callable[[str], Path], family: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With padded rows, and where sequences are too long for it, which leaves the fused one."""
    monkeypatch.setattr(attention, "LONGEST", longest)
    model = load_model(str(tiny_base(family)), "float32")
    assert model.config._attn_implementation == attention.NAME
    logits, gradients = pass_and_gradients(model, *padded_rows())
    model.set_attn_implementation("sdpa")
    expected, right = pass_and_gradients(model, *padded_rows())
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert len(gradients) == len(right) > 10
    for own, fused in zip(gradients, right, strict=True):
        assert (own - fused).norm() <= 1e-5 * fused.norm() + 1e-6


def test_it_is_the_written_out_one_that_short_sequences_take(llama_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence of 12 takes it twice, once a layer; a token after it, or one sequence too long, doesn't."""
    fused: list[int] = []

    def spy(module: nn.Module, query: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        fused.append(query.shape[2])
        return sdpa_attention_forward(module, query, *args, **kwargs)

    monkeypatch.setattr(attention, "sdpa_attention_forward", spy)
    model: Any = load_model(str(llama_base), "float32")
    ids, mask = padded_rows()
    model(input_ids=ids, attention_mask=mask)
    assert fused == []
    model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=2, do_sample=False)
    assert fused == [1, 1]
    monkeypatch.setattr(attention, "LONGEST", 11)
    model(input_ids=ids, attention_mask=mask)
    assert fused == [1, 1, 12, 12]


def test_families_with_an_attention_of_their_own_keep_it(tiny_base: Callable[[str], Path]) -> None:
    """Gemma 2 caps the products, which PyTorch's kernel can't."""
    assert load_model(str(tiny_base("gemma2")), "float32").config._attn_implementation == "eager"
