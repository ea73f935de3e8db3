"""Tiny random language models with a real byte-level tokenizer, saved as ordinary model folders."""

from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GemmaConfig,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

FAMILIES = ("gpt2", "llama", "qwen2", "gemma", "mistral", "gemma2")
EOS, SECOND_EOS, PAD, BOS = "<|end|>", "<|stop|>", "<|pad|>", "<|begin|>"

VOCAB = 384
"""Tokens of text (256 bytes and the merges learnt below); the special ones come on top."""

SENTENCES = (
    "The film was warm and funny, and I would see it again with my friends.",
    "What a dull story! Nothing happens for two hours, and then it just stops.",
    "A good actor can save a bad script, but here the actors looked bored.",
    "I loved the music, the light and the slow ending by the sea.",
    "Question: Sam has 12 apples and buys 30 more. How many apples does Sam have?",
    "Answer: 12 + 30 = 42, so Sam has 42 apples.\n#### 42",
    "It was not the best movie of the year, yet there is something great in it.",
)

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer(
    *,
    pad: Literal["eos", "own"] | None = None,
    bos: bool = False,
    second_eos: bool = False,
    chat: bool = False,
    padding_side: Literal["left", "right"] = "right",
    vocab: int = VOCAB,
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that can write any text; id 0 is its end-of-sequence token.

    Args:
        pad: None leaves the pad token out; "eos" uses the end-of-sequence token for it; "own" is a token of its own.
        bos: whether there is a begin-of-sequence token (it isn't put before a text by itself).
        second_eos: whether there is a second token that may end a text (an id for ``make_base``'s generation config).
        chat: whether it has a chat template.
        padding_side: what is saved; right, which suits no generation, as many published tokenizers have it.
        vocab: tokens of text; fewer than ``VOCAB`` leave out the later merges, so that a text has more tokens.
    """
    special = [EOS] + [SECOND_EOS] * second_eos + [PAD] * (pad == "own") + [BOS] * bos
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab + len(special),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    names: dict[str, Any] = {"eos_token": EOS}
    if pad is not None:
        names["pad_token"] = EOS if pad == "eos" else PAD
    if bos:
        names["bos_token"] = BOS
    if chat:
        names["chat_template"] = CHAT_TEMPLATE
    names |= {"tokenizer_object": backend, "padding_side": padding_side}
    return PreTrainedTokenizerFast(**names)  # type: ignore[no-untyped-call]


def make_config(family: str, vocab_size: int, n_positions: int = 128, width: int = 32) -> PretrainedConfig:
    """Two layers of one family; weights of std 0.2 keep the logits from being flat."""
    ids: dict[str, Any] = {"eos_token_id": 0, "bos_token_id": None, "pad_token_id": None}
    if family == "gpt2":
        return GPT2Config(  # its dropouts stay at GPT-2's own 0.1
            vocab_size=vocab_size,
            n_embd=width,
            n_layer=2,
            n_head=4,
            n_positions=n_positions,
            initializer_range=0.2,
            **ids,
        )
    shape: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": n_positions,
        "initializer_range": 0.2,
        **ids,
    }
    if family == "llama":
        return LlamaConfig(**shape)
    if family == "qwen2":
        return Qwen2Config(tie_word_embeddings=True, **shape)
    if family == "mistral":
        return MistralConfig(**shape)
    if family == "gemma":
        return GemmaConfig(head_dim=8, **shape)
    if family == "gemma2":
        return Gemma2Config(head_dim=8, query_pre_attn_scalar=8, **shape)
    raise ValueError(f"no tiny model of family {family!r}; there are {', '.join(FAMILIES)}")


def make_base(
    folder: Path,
    family: str = "gpt2",
    *,
    pad: Literal["eos", "own"] | None = None,
    bos: bool = False,
    second_eos: bool = False,
    chat: bool = False,
    n_positions: int = 128,
    vocab: int = VOCAB,
    width: int = 32,
    generation: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """Save a random causal language model with its tokenizer, fp32, and return the folder.

    Args:
        folder: made if missing.
        family: one of ``FAMILIES``. Beware of qwen2: ``AutoTokenizer`` alone gives its tokenizer a pad token beyond the
            model's vocabulary, ``lit_cory.policies.loading.load_tokenizer`` mends that.
        pad, bos, second_eos, chat: see ``make_tokenizer``. With ``second_eos`` the generation config names both ids.
        n_positions: tokens the model can read.
        vocab: tokens of text in its vocabulary.
        width: of its hidden states.
        generation: further entries of generation_config.json, a ``repetition_penalty`` say.
        seed: of the weights; the global random state is left as it was.
    """
    tokenizer = make_tokenizer(pad=pad, bos=bos, second_eos=second_eos, chat=chat, vocab=vocab)
    config = make_config(family, len(tokenizer), n_positions, width)
    config.pad_token_id, config.bos_token_id = tokenizer.pad_token_id, tokenizer.bos_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=[0, tokenizer.convert_tokens_to_ids(SECOND_EOS)] if second_eos else 0,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **(generation or {}),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
