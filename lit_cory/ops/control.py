"""The proportional controller of the KL coefficient."""

import math


def adaptive_kl_coef(coef: float, kl: float, target: float, horizon: float, n: int) -> float:
    """The next KL coefficient (Ziegler et al. 2019, arXiv 1909.08593, section 2.2).

    ``coef * (1 + error * n / horizon)`` with ``error = clip(kl / target - 1, -0.2, 0.2)``.

    Args:
        coef: the present coefficient.
        kl: measured KL in nats, summed over each response, mean over the batch (not a mean per token, which would make
            the controller react to the length of responses).
        target: the KL to hold, in the same unit.
        horizon: number of responses over which the coefficient adapts.
        n: number of responses behind ``kl``.

    Raises:
        ValueError: ``kl`` is not a number, which would stay in the coefficient for good.
    """
    if math.isnan(kl):
        raise ValueError("the measured KL is not a number: leave the KL coefficient as it is")
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * n / horizon)
