"""Tiny random sequence classifiers with a word tokenizer, saved as ordinary folders."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForSequenceClassification, BertConfig, PretrainedConfig, PreTrainedTokenizerFast

WORDS = ["the", "film", "was", "good", "bad", "dull", "great", "and", "long", "not"]
NAMES = {0: "NEGATIVE", 1: "POSITIVE"}
SHAPE: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.5,
}


def word_tokenizer(**kwargs: Any) -> PreTrainedTokenizerFast:
    """BERT's shape of input: [CLS] words [SEP]."""
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names: dict[str, Any] = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names, **kwargs)  # type: ignore[no-untyped-call]


def save(folder: Path, config: PretrainedConfig, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    (tokenizer or word_tokenizer()).save_pretrained(folder)
    return folder


def make_classifier(folder: Path) -> Path:
    """A BERT of two layers with the labels NEGATIVE and POSITIVE."""
    return save(folder, BertConfig(id2label=NAMES, **SHAPE))
