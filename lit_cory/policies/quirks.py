"""What a loaded base and its tokenizer need before they suit reinforcement learning; each mends one trap."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from lit_cory.errors import UserError


def give_pad_token(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> None:
    """Let the tokenizer pad without a new token: by its end token, else its begin token, else its unknown one.

    Which token pads does not matter, as masks are made from lengths. That the vocabulary does not grow matters: new
    embeddings are untrained, and adapters trained without them no longer fit. A pad token beyond the ``vocab_size`` of
    the model counts as missing: some tokenizer classes bring one of their own, which the model can't embed.

    Raises:
        UserError: if the tokenizer has none of these tokens.
    """
    for token in (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token, tokenizer.unk_token):
        if token is None:
            continue
        index = tokenizer.convert_tokens_to_ids(token)
        if isinstance(index, int) and index < vocab_size:
            tokenizer.pad_token = token
            return
    raise UserError(
        f"model.base={tokenizer.name_or_path}: its tokenizer has no pad, end, begin or unknown token; "
        "name an eos_token in its tokenizer_config.json"
    )


def neutralise_generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make ``model.generate`` sample from the very distribution of the forward pass, whatever the base's folder says.

    ``generate`` fills every field that a call leaves open from the model's own generation config, and then from
    defaults that keep 50 tokens only. The tokens that end an answer are kept, however many there are.

    Raises:
        UserError: if no token ends an answer.
    """
    own = model.generation_config
    eos = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    if eos is None:
        raise UserError(
            f"model.base={tokenizer.name_or_path}: no token ends an answer; name eos_token_id in its "
            "generation_config.json"
        )
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=own.bos_token_id,
        eos_token_id=eos,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
    )


def contiguous_input(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A forward pre-hook for the output matrix: the same numbers, laid out without gaps.

    A frozen matrix applied to a slice of hidden states is copied once per row of the batch by PyTorch, which makes the
    prefill of ``generate`` several times slower in bfloat16.
    """
    del module
    return (args[0].contiguous(), *args[1:])


@contextmanager
def without_bars() -> Iterator[None]:
    """No progress bars of transformers within the block."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
