import logging
from collections import Counter
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lit_cory.data.prompts import clean, cut_prompts, first_tokens
from tests.tiny import make_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "intermission"]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    """A token is a word, and a [BOS] is put before each text unless special tokens are declined."""
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "[BOS]": 1} | {w: i + 2 for i, w in enumerate(WORDS)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", bos_token="[BOS]")  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerFast:
    return make_tokenizer()


REVIEW = " ".join(WORDS[:10])


def lengths(tokenizer: Any, count: int, low: int, high: int, seed: int = 0) -> list[int]:
    queries = cut_prompts([REVIEW] * count, tokenizer, low, high, seed)
    assert all(REVIEW.startswith(query.text) for query in queries)
    return [len(query.text.split()) for query in queries]


def test_length_is_uniform_with_both_ends_included(words: PreTrainedTokenizerFast) -> None:
    counts = Counter(lengths(words, 1400, 2, 8))
    assert set(counts) == {2, 3, 4, 5, 6, 7, 8}
    # 7 equally likely values: 200 each, standard deviation sqrt(1400 * 1/7 * 6/7) = 13.1.
    assert all(abs(count - 200) < 4 * 13.1 for count in counts.values())
    assert set(lengths(words, 50, 3, 3)) == {3}


def test_length_is_a_function_of_seed_and_row(words: PreTrainedTokenizerFast) -> None:
    alone, longer = (cut_prompts([REVIEW] * count, words, 1, 8, seed=1) for count in (10, 2100))
    assert longer[:10] == alone
    changed = cut_prompts([*[REVIEW] * 3, None, "one", *[REVIEW] * 5], words, 1, 8, seed=1)
    assert [query for query in changed if query.row > 4] == alone[5:]
    assert lengths(words, 30, 1, 8, seed=1) != lengths(words, 30, 1, 8, seed=2)


def test_short_reviews_are_whole_and_blank_ones_left_out_with_a_count(
    words: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        queries = cut_prompts(["", " ", "one", None, "two three", "<br /><br />", "\n\t"], words, 8, 8, seed=0)
    assert [(query.row, query.text) for query in queries] == [(2, "one"), (4, "two three")]
    assert [record.getMessage() for record in caplog.records] == ["data: 5 of 7 reviews were left out: no text"]


def test_nothing_is_logged_where_nothing_is_left_out(
    words: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(cut_prompts(["one"], words, 2, 8, seed=0)) == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("review", "text"),
    [
        ("Great<br /><br />film", "Great film"),
        ("Great <br />film<br/>, <BR>really", "Great film , really"),
        ("  two\r\nlines \x85 and\u2028more\t", "two lines and more"),
        ("a < b, br /> stays", "a < b, br /> stays"),
        ("<br />", ""),
    ],
)
def test_clean(review: str, text: str) -> None:
    assert clean(review) == text


def test_tags_are_gone_before_the_cut(words: PreTrainedTokenizerFast) -> None:
    assert cut_prompts(["<br />one<br /><br />two three"], words, 2, 2, seed=0)[0].text == "one two"


@pytest.mark.parametrize(
    ("tokens", "text"),
    # The clapperboard is 4 bytes, each a token here; "é" is 2; "x" is 1.
    [(4, "\U0001f3ac"), (5, "\U0001f3acx"), (6, "\U0001f3acx"), (7, "\U0001f3acxé"), (3, None), (1, None)],
)
def test_no_part_of_a_character_is_left(byte_level: PreTrainedTokenizerFast, tokens: int, text: str | None) -> None:
    queries = cut_prompts(["\U0001f3acxé\U0001f3ac"], byte_level, tokens, tokens, seed=0)
    assert [query.text for query in queries] == ([] if text is None else [text])


@pytest.mark.parametrize(
    "text",
    [
        "The film was warm and funny. " * 200,
        "x" * 5000,
        "a" * 300 + " and then some words " * 50,
        "abc " + "supercalifragilistic" * 40,
        "\u6620\u753b\u306f\u9577\u3044" * 300,
        "no end",
        "",
    ],
)
@pytest.mark.parametrize("count", [1, 8, 40])
def test_a_beginning_has_the_tokens_of_the_whole_text(
    byte_level: PreTrainedTokenizerFast, text: str, count: int
) -> None:
    whole = byte_level(text, add_special_tokens=False)["input_ids"]
    (beginning,) = first_tokens([text], byte_level, count)
    assert beginning[:count] == whole[:count]


def test_no_word_is_cut_by_what_is_read_ahead(words: PreTrainedTokenizerFast) -> None:
    # At 13 characters a word, the eighth lies across the 96 characters that are read first for 8 tokens.
    (ids,) = first_tokens(["intermission " * 20], words, 8)
    assert ids[:8] == [12] * 8
