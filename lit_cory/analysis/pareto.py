"""Trade-off of reward against KL: dominance, Pareto front, hypervolume.

A point is (reward, kl): reward is better higher, kl (to the reference policy, in nats) better lower. NaN is refused
everywhere with a ValueError, since it is neither better nor worse than anything; infinities are points like others.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

Point = TypeVar("Point", bound=Sequence[float])


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether ``a`` is nowhere worse than ``b`` and somewhere better; a point never dominates its equal.

    Args:
        a: (reward, kl).
        b: (reward, kl).

    Raises:
        ValueError: a point has a NaN or isn't a pair.
    """
    (a_reward, a_kl), (b_reward, b_kl) = _pair(a), _pair(b)
    return a_reward >= b_reward and a_kl <= b_kl and (a_reward > b_reward or a_kl < b_kl)


def pareto_front(points: Iterable[Point]) -> list[Point]:
    """The points that no other dominates, in the order given.

    Equal points don't dominate each other, so all copies of a kept point are kept: two runs that end at the same place
    both stay visible.

    Args:
        points: each (reward, kl).

    Raises:
        ValueError: a point has a NaN or isn't a pair.
    """
    given = list(points)
    pairs = [_pair(point) for point in given]
    front = set(_staircase(pairs))
    return [point for point, pair in zip(given, pairs, strict=True) if pair in front]


def hypervolume(points: Iterable[Sequence[float]], reference: Sequence[float]) -> float:
    """Area that the points dominate, bounded by a reference point (Zitzler and Thiele 1998), in reward times nats.

    By hand, for reference (0, 10): the point (1, 4) covers 1 * 6 = 6; (2, 8) adds what lies above it,
    (2 - 1) * (10 - 8) = 2; together 8.

    Args:
        points: each (reward, kl); one that isn't better than ``reference`` in both adds 0.
        reference: (reward, kl), the worst corner that counts. Values are comparable only at an equal reference.

    Raises:
        ValueError: a point or the reference has a NaN or isn't a pair.
    """
    worst_reward, worst_kl = _pair(reference)
    pairs = [_pair(point) for point in points]
    area, covered = 0.0, worst_reward
    for reward, kl in reversed(_staircase((r, k) for r, k in pairs if r > worst_reward and k < worst_kl)):
        area += (reward - covered) * (worst_kl - kl)
        covered = reward
    return area


def _staircase(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The different pairs that no other dominates, by falling reward, and so by falling KL."""
    steps: list[tuple[float, float]] = []
    for reward, kl in sorted(set(pairs), key=lambda pair: (-pair[0], pair[1])):
        if not steps or kl < steps[-1][1]:
            steps.append((reward, kl))
    return steps


def _pair(point: Sequence[float]) -> tuple[float, float]:
    if len(point) != 2 or any(math.isnan(value) for value in point):
        raise ValueError(f"a point is (reward, kl), two numbers, not {point}")
    return float(point[0]), float(point[1])
