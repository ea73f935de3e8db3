"""Areas and matched-reward KL, worked out by hand."""

from math import exp, inf, isnan, log, nan, sqrt

import pytest

from lit_cory.analysis import area_under, kl_at_reward, matched_reward_kl, ratio_interval


@pytest.mark.parametrize(
    ("x", "y", "area"),
    [([0, 2, 6], [0, 1, 1], 5.0), ([0, 10], [-1, 1], 0.0), ([3], [7], 0.0), ([0, 1, 3], [2, 4, 0], 7.0)],
)
def test_area_under(x: list[float], y: list[float], area: float) -> None:
    assert area_under(x, y) == area


@pytest.mark.parametrize(("x", "y"), [([0, 1], [1]), ([], []), ([0, 0], [1, 2]), ([1, 0], [1, 2])])
def test_what_is_no_curve(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError, match="rising x"):
        area_under(x, y)


def test_a_reward_is_paid_for_where_it_is_reached_first() -> None:
    path = [(0.0, 0.0), (0.4, 2.0), (0.3, 5.0), (0.6, 8.0), (0.1, 30.0)]
    assert kl_at_reward(path, [-1.0, 0.0, 0.2, 0.4, 0.5, 0.6]) == pytest.approx([0.0, 0.0, 1.0, 2.0, 7.0, 8.0])
    assert isnan(kl_at_reward(path, [0.61])[0]), "never reached"
    assert kl_at_reward([(0.0, 0.0), (nan, 1.0), (1.0, inf), (1.0, 4.0)], [0.5]) == pytest.approx([2.0])
    assert isnan(kl_at_reward([], [0.5])[0])


def test_matched_reward_kl_of_straight_lines() -> None:
    """To 0.8 at 4 nats and to 0.5 at 5: up to 0.5 the first pays half, whichever way round."""
    a, b = [(0.0, 0.0), (0.8, 4.0)], [(0.0, 0.0), (0.5, 5.0)]
    assert matched_reward_kl(a, b) == pytest.approx((0.0, 0.5, 0.5, 0.5))
    assert matched_reward_kl(b, a) == pytest.approx((0.0, 0.5, 2.0, 2.0))


def test_matched_reward_kl_of_a_bend() -> None:
    """b pays 1 at a reward of 0.5 and 4 at 1: mean (0.5 + 2.5) / 2 = 1.5. a pays 2 at 1: mean 1."""
    a, b = [(0.0, 0.0), (1.0, 2.0)], [(0.0, 0.0), (0.5, 1.0), (1.0, 4.0)]
    found = matched_reward_kl(a, b)
    assert found is not None
    assert found.ratio == pytest.approx(1 / 1.5, abs=1e-3)
    assert found.at_top == 0.5


def test_the_range_begins_at_the_higher_start() -> None:
    """From 0.2, where b starts: a pays 0.4 there and 2 at 1, mean 1.2; b 0 and 3, mean 1.5."""
    found = matched_reward_kl([(0.0, 0.0), (1.0, 2.0)], [(0.2, 0.0), (1.0, 3.0)])
    assert found == pytest.approx((0.2, 1.0, 0.8, 2 / 3))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([(0.0, 0.0), (0.3, 1.0)], [(0.3, 0.0), (0.9, 2.0)]),
        ([(0.0, 0.0), (-0.3, 1.0)], [(0.0, 0.0), (0.9, 2.0)]),
        ([(0.0, 0.0)], [(0.0, 0.0)]),
        ([(nan, 0.0)], [(0.0, 0.0), (0.9, 2.0)]),
        ([], []),
    ],
)
def test_runs_without_a_common_range_have_no_ratio(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
    assert matched_reward_kl(a, b) is None
    assert matched_reward_kl(b, a) is None


def test_a_kl_that_is_not_above_0_divides_nothing() -> None:
    found = matched_reward_kl([(0.0, 0.0), (1.0, 1.0)], [(0.0, 0.0), (1.0, -0.1)])
    assert found is not None
    assert isnan(found.ratio)
    assert isnan(found.at_top)


def test_ratio_interval() -> None:
    """Student's t at 2 degrees of freedom is 4.30265; the logarithms' standard error is ln 2 / sqrt(3)."""
    half = 4.30265 * log(2) / sqrt(3)
    assert ratio_interval([0.5, 1.0, 2.0]) == pytest.approx((1.0, exp(-half), exp(half)), rel=1e-5)
    with pytest.raises(ValueError, match="above 0"):
        ratio_interval([0.5, 0.0])
