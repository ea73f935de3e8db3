"""Means with their confidence intervals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class Interval(NamedTuple):
    """A mean and the confidence interval around it, in the unit of the data.

    Attributes:
        mean: mean of the sample.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    mean: float
    low: float
    high: float


def mean_interval(x: ArrayLike, level: float = 0.95) -> Interval:
    """Mean of a sample with Student's t interval: mean -+ t * s / sqrt(n), s the sample's standard deviation (n - 1).

    By hand: 1, 2, 3 has mean 2 and s 1; t for 95% and 2 degrees of freedom is 4.3027, so the interval is
    2 -+ 4.3027 / sqrt(3) = 2 -+ 2.4841.

    Args:
        x: [n] the sample, of independent values (say one a prompt, or one a seed).
        level: confidence level, between 0 and 1.

    Returns:
        The interval; its ends are NaN for n = 1, where the spread is unknown, and all is NaN if a value is.

    Raises:
        ValueError: ``x`` is empty or not one-dimensional, or ``level`` isn't between 0 and 1.
    """
    sample = np.asarray(x, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"a sample is one-dimensional and not empty, this one has shape {sample.shape}")
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {level}")
    mean = float(sample.mean())
    if sample.size == 1:
        return Interval(mean, np.nan, np.nan)
    half = float(stats.t.ppf((1 + level) / 2, sample.size - 1) * stats.sem(sample))
    return Interval(mean, mean - half, mean + half)


def paired_gain(before: ArrayLike, after: ArrayLike, level: float = 0.95) -> Interval:
    """Mean of ``after - before`` over the same n items, with the interval of :func:`mean_interval` of the differences.

    By hand: before 1, 5, 9 and after 2, 7, 12 differ by 1, 2, 3: gain 2, interval 2 -+ 2.4841. Pairing takes out how
    hard each item is: the spread of 1, 5, 9 plays no part.

    Args:
        before: [n] values at the start, one an item.
        after: [n] values of the same items, in the same order, at the end.
        level: confidence level, between 0 and 1.

    Raises:
        ValueError: the two differ in shape, or as for :func:`mean_interval`.
    """
    start, end = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if start.shape != end.shape:
        raise ValueError(f"paired values need equal shapes, these have {start.shape} and {end.shape}")
    return mean_interval(end - start, level)
