"""Prompts cut from the beginnings of reviews."""

import logging
import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from transformers import PreTrainedTokenizerBase

from lit_cory.types import Query

_log = logging.getLogger(__name__)

_BATCH = 1000  # reviews a tokenizer call
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a byte-level tokenizer writes for part of a character


def clean(text: str) -> str:
    """The review as one line: ``<br />`` tags and each run of white space become one space, none at the ends."""
    return " ".join(re.sub(r"<br\s*/?>", " ", text, flags=re.IGNORECASE).split())


def cut_prompts(
    reviews: Iterable[str | None],
    tokenizer: PreTrainedTokenizerBase,
    min_tokens: int,
    max_tokens: int,
    seed: int,
) -> list[Query]:
    """The first tokens of each review, without special tokens, as text; ``Query.row`` is the review's place.

    Row r keeps n(r) tokens, uniform on ``min_tokens`` to ``max_tokens``, both included, a pure function of (seed, r);
    reviews shorter than that are kept whole. A character that the cut leaves incomplete is dropped. Reviews without
    text (None, blank, nothing left of the cut) give no query; one log line counts them.
    """
    queries: list[Query] = []
    rows = enumerate("" if review is None else clean(review) for review in reviews)
    total = 0
    while block := list(islice(rows, _BATCH)):
        total += len(block)
        block = [(row, text) for row, text in block if text]
        for (row, _), ids in zip(block, first_tokens([text for _, text in block], tokenizer, max_tokens), strict=True):
            length = random.Random(f"prompt length {seed} {row}").randint(min_tokens, max_tokens)
            prompt = str(tokenizer.decode(ids[:length], clean_up_tokenization_spaces=False)).rstrip(_INCOMPLETE)
            if prompt.strip():
                queries.append(Query(prompt, row))
    if dropped := total - len(queries):
        _log.warning("data: %d of %d reviews were left out: no text", dropped, total)
    return queries


def first_tokens(texts: list[str], tokenizer: PreTrainedTokenizerBase, count: int) -> Iterator[list[int]]:
    """At least the first ``count`` tokens of each text, reading no more of it than they need."""
    # Tokenizers work word by word, so a beginning that ends between two words has the tokens of the whole text. It is
    # long enough for nearly all (a token is about 4 characters); the whole text is read for the rest.
    size = 8 * count + 32
    starts = [text if len(text) <= size else text[:size].rpartition(" ")[0] for text in texts]
    encoded = tokenizer(starts, add_special_tokens=False, verbose=False)["input_ids"] if starts else []
    for text, start, ids in zip(texts, starts, encoded, strict=True):
        if len(ids) < count and len(start) < len(text):
            ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        yield ids
