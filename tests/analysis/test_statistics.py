"""Intervals against the closed forms of Student's t for 1 and 2 degrees of freedom."""

from math import isnan, nan, pi, sqrt, tan

import numpy as np
import pytest

from lit_cory.analysis import Interval, mean_interval, paired_gain


def t_one(p: float) -> float:
    """Quantile of t with 1 degree of freedom (Cauchy)."""
    return tan(pi * (p - 0.5))


def t_two(p: float) -> float:
    """Quantile of t with 2 degrees of freedom."""
    return (2 * p - 1) / sqrt(2 * p * (1 - p))


def test_three_values() -> None:
    half = t_two(0.975) / sqrt(3)  # s = 1
    assert half == pytest.approx(2.4841, abs=5e-5)
    assert mean_interval([1, 2, 3]) == pytest.approx((2, 2 - half, 2 + half), rel=1e-12)


def test_two_values_at_another_level() -> None:
    # 0 and 4: mean 2, s = sqrt(8), s / sqrt(2) = 2
    half = t_one(0.9) * 2
    assert mean_interval(np.array([0.0, 4.0]), level=0.8) == pytest.approx((2, 2 - half, 2 + half), rel=1e-12)


def test_equal_values_leave_no_width() -> None:
    assert mean_interval([0.5, 0.5, 0.5, 0.5]) == Interval(0.5, 0.5, 0.5)


def test_one_value_has_no_known_spread() -> None:
    mean, low, high = mean_interval([7])
    assert mean == 7
    assert isnan(low)
    assert isnan(high)


def test_nan_is_never_left_out() -> None:
    assert all(map(isnan, mean_interval([1, nan, 3])))


@pytest.mark.parametrize("sample", [[], [[1.0, 2.0]], 3.0])
def test_what_is_no_sample(sample: object) -> None:
    with pytest.raises(ValueError, match="one-dimensional and not empty"):
        mean_interval(sample)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, nan])
def test_what_is_no_level(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([1, 2], level)


def test_gain_is_paired() -> None:
    half = t_two(0.975) / sqrt(3)  # the differences are 1, 2, 3, far apart as the items are
    gain = paired_gain(before=[1, 50, 900], after=[2, 52, 903])
    assert gain == pytest.approx((2, 2 - half, 2 + half), rel=1e-12)
    narrow = t_two(0.6) / sqrt(3)
    assert paired_gain([1, 5, 9], [0, 3, 6], level=0.2) == pytest.approx((-2, -2 - narrow, -2 + narrow), rel=1e-12)


def test_gain_needs_the_same_items() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(1,\)"):
        paired_gain([1, 2], [1])
