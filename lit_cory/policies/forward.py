"""One forward pass over prompt and answer: hidden states at response positions, and logits made from them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from lit_cory.errors import UserError
from lit_cory.types import Response


def position_ids(mask: Tensor) -> Tensor:
    """Positions [B, S] that count real tokens from 0, whatever the padding on the left of ``mask`` [B, S]."""
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)


def response_hidden(lm: PreTrainedModel, response: Response) -> Tensor:
    """Hidden states [n, H] from which each of the n real response tokens was predicted, row after row.

    Columns that are padding in all rows are left out.
    """
    left = int(response.prompt_mask.any(dim=0).int().argmax())
    right = int(response.mask.any(dim=0).sum())
    prompt, real = response.prompt_mask[:, left:], response.mask[:, :right]
    # The last token predicts nothing that was sampled, so it is left out.
    ids = torch.cat([response.prompt_ids[:, left:], response.tokens[:, :right]], dim=1)[:, :-1]
    mask = torch.cat([prompt, real], dim=1)[:, :-1]
    output = lm.base_model(
        input_ids=ids, attention_mask=mask.long(), position_ids=position_ids(mask), use_cache=False, return_dict=True
    )
    hidden: Tensor = output.last_hidden_state
    return hidden[:, prompt.shape[1] - 1 :][real]


@contextmanager
def recomputed_blocks(lm: PreTrainedModel, during: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Inside the block, forward passes with gradients keep each block's input alone and make the rest again backward.

    Args:
        lm: the language model, in evaluation mode. Its blocks alone are told that they train, as they checkpoint only
            then; what is in them (dropout) isn't.
        during: makes the context that blocks are made again in. By then another adapter may be active.
    """
    blocks = [module for module in lm.modules() if isinstance(module, GradientCheckpointingLayer)]
    again = partial(
        checkpoint,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), during()),
    )
    try:
        for block in blocks:
            block.training = block.gradient_checkpointing = True
            block._gradient_checkpointing_func = again  # type: ignore[assignment]
        yield
    finally:
        for block in blocks:
            block.training = block.gradient_checkpointing = False


def logits_from_hidden(lm: PreTrainedModel, hidden: Tensor) -> Tensor:
    """The model's logits [n, V] fp32 for hidden states [n, H], its soft cap included where it has one (Gemma 2)."""
    logits: Tensor = lm.get_output_embeddings()(hidden).float()
    cap = getattr(lm.config.get_text_config(), "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


LOGITS_AT_ONCE = 2**25
"""Numbers that one chunk of logits may hold, 128 MB in fp32."""


def by_chunks(lm: PreTrainedModel, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """``function`` of ``inputs`` [n, ...] row by row, in chunks so small that their logits fit ``LOGITS_AT_ONCE``.

    Where there are several chunks and gradients are on, the logits of each are made again in the backward pass, so that
    those of one chunk are the most that there is at any moment.

    Args:
        lm: whose vocabulary the logits have.
        function: from a chunk of each input to tensors [m]; it treats every row alike.
        inputs: of the same n, at least 1.

    Returns:
        what ``function`` gives for all n rows.
    """
    rows = max(1, LOGITS_AT_ONCE // lm.config.get_text_config().vocab_size)
    chunks = list(zip(*(tensor.split(rows) for tensor in inputs), strict=True))
    if len(chunks) == 1:
        return function(*inputs)
    parts = [checkpoint(function, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


@torch.no_grad()
def check_head(lm: PreTrainedModel, name: str) -> None:
    """Make sure that logits made from hidden states are the model's own.

    Raises:
        UserError: for a family that does something else between its last hidden state and its logits.
    """
    ids = torch.tensor([[1, 2, 3]], device=lm.device)
    own = lm(input_ids=ids, use_cache=False).logits[0].float()
    ours = logits_from_hidden(lm, lm.base_model(input_ids=ids, use_cache=False).last_hidden_state[0])
    if not torch.allclose(own, ours, rtol=1e-2, atol=1e-3 * float(own.abs().max())):
        family = lm.config.model_type
        raise UserError(
            f"model.base={name}: models of the family {family} change their logits in a way lit_cory doesn't know; "
            "use a base of the GPT-2, Llama, Qwen2, Gemma or Mistral family"
        )
