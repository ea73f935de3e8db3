"""Signs that a policy has collapsed: it repeats itself, or writes what the reference hardly would."""

import math
from collections.abc import Sequence


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Different n-grams of words over all of them, in all texts together (Li et al. 2016, arXiv 1510.03055).

    By hand: "a b a" and "a b" have the pairs ab, ba, ab: 2 of 3 are different.

    Args:
        texts: words are what stands between white space.
        n: words to a gram, at least 1; shorter texts have none.

    Returns:
        the share, NaN where there is no n-gram.

    Raises:
        ValueError: n < 1.
    """
    if n < 1:
        raise ValueError(f"an n-gram has at least one word, not {n}")
    words = [text.split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in words for i in range(len(row) - n + 1)]
    return len(set(grams)) / len(grams) if grams else math.nan


def repeated_share(texts: Sequence[str]) -> float:
    """Share of texts that are copies of an earlier one; of "a", "b", "a", "a" it is a half, NaN of none."""
    return 1 - len(set(texts)) / len(texts) if texts else math.nan


def perplexity(nll: Sequence[float], length: Sequence[float]) -> float:
    """exp of the mean negative log-probability per token, over all tokens of all responses.

    By hand: 2 nats over 2 tokens and 4 over 1 are 2 a token: e^2 = 7.389.

    Args:
        nll: nats, summed over each response; under the reference, say.
        length: tokens of each response.

    Returns:
        NaN where there is no token.
    """
    tokens = sum(length)
    return math.exp(sum(nll) / tokens) if tokens else math.nan
