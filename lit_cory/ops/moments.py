"""Running mean and variance."""

from torch import Tensor


def merge_moments(count: int, mean: float, m2: float, values: Tensor) -> tuple[int, float, float]:
    """Moments of all values seen, those of ``values`` included (Chan, Golub & LeVeque 1983, parallel update).

    Args:
        count: how many values were seen before; begin with 0.
        mean: their mean; begin with 0.0.
        m2: their sum of squared deviations from it; begin with 0.0. The variance is ``m2 / (count - 1)``.
        values: the new ones, any shape; an empty tensor changes nothing.

    Returns:
        The new count, mean and m2, in double precision so that a long run loses nothing.
    """
    n = values.numel()
    if n == 0:
        return count, mean, m2
    new = values.detach().double()
    new_mean = new.mean().item()
    new_m2 = (new - new_mean).square().sum().item()
    total = count + n
    delta = new_mean - mean
    return total, mean + delta * n / total, m2 + new_m2 + delta * delta * count * n / total
