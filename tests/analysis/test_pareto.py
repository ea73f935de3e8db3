"""Dominance, front and hypervolume by hand and against brute force on small grids."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lit_cory.analysis import dominates, hypervolume, pareto_front

Pair = tuple[int, int]
SIDE = 6
pairs = st.tuples(st.integers(-1, SIDE), st.integers(-1, SIDE))  # a small grid, so that ties and copies are common
pair_lists = st.lists(pairs, max_size=12)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 1), (1, 2), True),
        ((2, 1), (1, 1), True),
        ((1, 1), (1, 2), True),
        ((1, 1), (1, 1), False),
        ((2, 2), (1, 1), False),
        ((1, 1), (2, 2), False),
        ((1, 2), (2, 1), False),
        ((1, 1), (-inf, inf), True),
    ],
)
def test_dominates(a: tuple[float, float], b: tuple[float, float], expected: bool) -> None:
    assert dominates(a, b) is expected


def test_front_keeps_order_and_copies() -> None:
    points = [[0.9, 9.0], [0.5, 2.0], [0.5, 3.0], [0.4, 2.0], [0.9, 9.0], [0.7, 4.0], [0.1, inf]]
    assert pareto_front(points) == [[0.9, 9.0], [0.5, 2.0], [0.9, 9.0], [0.7, 4.0]]


@pytest.mark.parametrize("points", [[], [(1.0, inf)], [(-inf, inf), (-inf, inf)], [(-0.0, 1.0), (0.0, 1.0)]])
def test_front_of_points_that_dont_dominate_each_other_is_all_of_them(points: list[tuple[float, float]]) -> None:
    assert pareto_front(points) == points


@given(pair_lists)
def test_front_is_what_no_point_beats(points: list[Pair]) -> None:
    def beaten(point: Pair) -> bool:
        reward, kl = point
        return any((r > reward and k <= kl) or (r >= reward and k < kl) for r, k in points)

    assert pareto_front(points) == [point for point in points if not beaten(point)]


@pytest.mark.parametrize(
    ("points", "area"),
    [
        ([], 0.0),
        ([(1, 4)], 6.0),
        ([(1, 4), (2, 8)], 8.0),
        ([(2, 8), (1, 4), (1, 4), (0.5, 5), (1, 9)], 8.0),  # copies and dominated points add nothing
        ([(3, 10), (3, 11), (0, 1), (-1, 1)], 0.0),  # on the reference's lines, or beyond them
        ([(1, 4), (3, 11), (-1, 1)], 6.0),
        ([(1, -inf)], inf),
    ],
)
def test_hypervolume_by_hand(points: list[tuple[float, float]], area: float) -> None:
    assert hypervolume(points, reference=(0, 10)) == area


@given(pair_lists)
def test_hypervolume_is_the_number_of_covered_unit_squares(points: list[Pair]) -> None:
    # Square (x, y) spans reward x to x + 1 and KL y to y + 1; a point covers those at lower reward and higher KL.
    covered = sum(any(r > x and k <= y for r, k in points) for x in range(SIDE) for y in range(-1, SIDE))
    assert hypervolume(points, reference=(0, SIDE)) == covered


@pytest.mark.parametrize("bad", [(nan, 1.0), (1.0, nan), (1.0,), (1.0, 2.0, 3.0)])
def test_what_is_no_point(bad: tuple[float, ...]) -> None:
    good = (0.0, 1.0)
    for call in (
        lambda: dominates(bad, good),
        lambda: dominates(good, bad),
        lambda: pareto_front([good, bad]),
        lambda: hypervolume([good, bad], (0, 10)),
        lambda: hypervolume([good], bad),
    ):
        with pytest.raises(ValueError, match=r"a point is \(reward, kl\)"):
            call()  # type: ignore[no-untyped-call]
