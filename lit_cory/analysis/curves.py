"""What a learning curve comes to: its area, and the KL that two runs pay for the same reward."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lit_cory.analysis.statistics import Interval, mean_interval

LEVELS = 201
"""Rewards, evenly spaced, at which two runs are compared."""


def area_under(x: ArrayLike, y: ArrayLike) -> float:
    """Area under a curve by the trapezoid rule, in units of y times those of x.

    By hand: 0, 1, 1 at the rollouts 0, 2, 6 covers 1 + 4 = 5. Areas compare only where the curves span the same x.

    Args:
        x: [n] rising, rollouts say.
        y: [n] the value there.

    Raises:
        ValueError: the two differ in shape, there are none, or x doesn't rise.
    """
    at, value = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if at.shape != value.shape or at.ndim != 1 or at.size == 0 or (np.diff(at) <= 0).any():
        raise ValueError(f"a curve has one y at each of its rising x, these are {at.tolist()} and {value.tolist()}")
    return float(np.trapezoid(value, at))


def kl_at_reward(points: Sequence[Sequence[float]], levels: ArrayLike) -> NDArray[np.float64]:
    """KL at which a run first reaches each reward, between its evaluations by a straight line.

    A run whose reward falls and rises again has paid for a reward where it had it first. By hand: from (0, 0) by
    (0.4, 2) and (0.3, 5) to (0.6, 8), a reward of 0.2 is reached at 1 and one of 0.5 at 5 + 2/3 * 3 = 7.

    Args:
        points: (reward, kl) in the order of training; those that aren't finite are left out.
        levels: [m] rewards.

    Returns:
        [m] nats; the KL of the first point for what is reached there already, NaN for what is never reached.
    """
    path = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    reward, kl = path[np.isfinite(path).all(axis=1)].T
    wanted = np.asarray(levels, dtype=np.float64)
    found = np.full(wanted.shape, np.nan)
    if reward.size == 0:
        return found
    first = np.searchsorted(np.maximum.accumulate(reward), wanted)
    found[first == 0] = kl[0]
    on_the_way = (first > 0) & (first < reward.size)
    after = first[on_the_way]
    part = (wanted[on_the_way] - reward[after - 1]) / (reward[after] - reward[after - 1])
    found[on_the_way] = kl[after - 1] + part * (kl[after] - kl[after - 1])
    return found


class MatchedKL(NamedTuple):
    """KL of one run over that of another at equal rewards.

    Attributes:
        low: lowest reward of the range that both run through: the higher of their starts.
        high: the highest that both reach.
        ratio: of the mean KLs over the range.
        at_top: of the KLs at ``high``.
    """

    low: float
    high: float
    ratio: float
    at_top: float


def matched_reward_kl(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> MatchedKL | None:
    """Ratio of the KLs, a's over b's, at the same reward along training; see :func:`kl_at_reward`.

    Means over the range are taken before the ratio, since both KLs are 0 where both runs start. By hand: if a goes
    straight from (0, 0) to (0.8, 4) and b from (0, 0) to (0.5, 5), then up to 0.5, where a pays 2.5 and b 5, the ratio
    is a half throughout.

    Args:
        a: (reward, kl) in the order of training.
        b: likewise.

    Returns:
        None where no range of rewards is run through by both, as where one of them never rises; a ratio is NaN where
        b's KL is not above 0.
    """
    paths = [np.asarray(points, dtype=np.float64).reshape(-1, 2) for points in (a, b)]
    paths = [path[np.isfinite(path).all(axis=1)] for path in paths]
    if min(len(path) for path in paths) == 0:
        return None
    low, high = max(float(path[0, 0]) for path in paths), min(float(path[:, 0].max()) for path in paths)
    if low >= high:
        return None
    levels = np.linspace(low, high, LEVELS)
    kl_a, kl_b = (kl_at_reward(path.tolist(), levels) for path in paths)
    ratio = _ratio(area_under(levels, kl_a), area_under(levels, kl_b))
    return MatchedKL(low, high, ratio, _ratio(float(kl_a[-1]), float(kl_b[-1])))


def ratio_interval(ratios: ArrayLike, level: float = 0.95) -> Interval:
    """Geometric mean of ratios with the interval of :func:`lit_cory.analysis.mean_interval` of their logarithms.

    A half and a double are equally far from 1 then. By hand: 1/2, 1, 2 have logarithms of mean 0 and deviation ln 2, so
    the mean is 1 and the interval exp(-+4.3027 ln 2 / sqrt(3)) = 0.1787 to 5.5955.

    Args:
        ratios: [n] one a pair of runs.
        level: confidence level.

    Raises:
        ValueError: for a ratio that isn't above 0, and as ``mean_interval`` does.
    """
    sample = np.asarray(ratios, dtype=np.float64)
    if (sample <= 0).any():
        raise ValueError(f"ratios are above 0, these are {sample.tolist()}")
    return Interval(*(float(np.exp(value)) for value in mean_interval(np.log(sample), level)))


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else float("nan")
