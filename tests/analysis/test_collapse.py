"""Signs of collapse, counted by hand."""

from math import exp, isnan

import pytest

from lit_cory.analysis import distinct_n, perplexity, repeated_share


@pytest.mark.parametrize(
    ("texts", "n", "share"),
    [
        (["a b a", "a b"], 1, 2 / 5),
        (["a b a", "a b"], 2, 2 / 3),
        (["a b a", "a b"], 3, 1.0),
        (["good good\n good", "good"], 1, 1 / 4),
        (["one", "", "two words"], 2, 1.0),
    ],
)
def test_distinct_n(texts: list[str], n: int, share: float) -> None:
    assert distinct_n(texts, n) == pytest.approx(share)


def test_no_grams_have_no_share() -> None:
    assert isnan(distinct_n(["a", ""], 2))
    with pytest.raises(ValueError, match="at least one word"):
        distinct_n(["a"], 0)


def test_repeated_share() -> None:
    assert repeated_share(["a", "b", "a", "a"]) == 0.5
    assert repeated_share(["a", "b"]) == 0
    assert isnan(repeated_share([]))


def test_perplexity_pools_tokens() -> None:
    assert perplexity([2.0, 4.0], [2, 1]) == pytest.approx(exp(2))
    assert perplexity([0.0], [5]) == 1
    assert isnan(perplexity([], []))
