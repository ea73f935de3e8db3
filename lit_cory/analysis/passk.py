"""Several answers to one problem: pass@k, and the majority's."""

from collections import Counter
from collections.abc import Sequence
from math import comb


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k answers to a problem is right, estimated without bias from n samples of it.

    1 - C(n - c, k) / C(n, k): the share of the k-subsets of the n samples that hold a right one (Chen et al. 2021,
    arXiv 2107.03374, equation 1). By hand: of 4 samples with 1 right, 3 of the 6 pairs hold it, so pass@2 is 0.5.
    The figure of a data set is the mean over its problems.

    Args:
        n: samples drawn for the problem.
        c: how many of them are right.
        k: answers allowed, at least 1.

    Raises:
        ValueError: k > n (n samples say nothing about more draws than n), k < 1, or c outside 0 to n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n, got k={k} with n={n} samples")
    if not 0 <= c <= n:
        raise ValueError(f"right answers lie between 0 and n, got c={c} with n={n} samples")
    subsets = comb(n, k)
    return (subsets - comb(n - c, k)) / subsets  # whole numbers up to the division, so exact at any n


def majority(answers: Sequence[str | None]) -> int | None:
    """Index of the first answer of the kind that is given most often; of kinds given equally often, the first given.

    By hand: of ``["7", None, "8", "8"]`` it is 2, of ``["7", "8"]`` it is 0.

    Args:
        answers: equal texts are equal answers; None is no answer, and has no vote.

    Returns:
        the index, or None where nobody answers.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    return answers.index(counts.most_common(1)[0][0]) if counts else None
