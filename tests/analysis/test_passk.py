"""pass@k by hand and by counting subsets."""

from itertools import combinations

import pytest

from lit_cory.analysis import pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 2, 0.5),
        (4, 1, 4, 1.0),
        (4, 0, 4, 0.0),
        (10, 3, 1, 0.3),
        (1, 1, 1, 1.0),
        (2000, 1, 1000, 0.5),  # binomials of 600 digits: no overflow, no rounding
        (10**6, 1, 1, 1e-6),  # a small chance isn't lost in 1 - (1 - p)
    ],
)
def test_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == expected


def test_is_the_share_of_subsets_with_a_right_answer() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations([True] * c + [False] * (n - c), k))
                assert pass_at_k(n, c, k) == sum(map(any, subsets)) / len(subsets)


@pytest.mark.parametrize(
    ("n", "c", "k"),
    [(2, 0, 5), (1, 1, 10), (1, 0, 10), (0, 0, 1), (4, 1, 0), (4, 1, -1), (4, 5, 2), (4, -1, 2)],
)
def test_refuses_what_it_cant_tell(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"got (k={k}|c={c}) with n={n} samples"):
        pass_at_k(n, c, k)
