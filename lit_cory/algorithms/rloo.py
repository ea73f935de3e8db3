"""REINFORCE, leave one out."""

from torch import Tensor

from lit_cory import ops
from lit_cory.algorithms.groups import GroupAlgorithm


class RLOO(GroupAlgorithm):
    """REINFORCE with the mean return of the other responses as the baseline (Ahmadian et al. 2024, arXiv 2402.14740).

    Args:
        group_size: responses to each query.
        clip: of the probability ratio; null for none, as published.
    """

    def __init__(self, group_size: int = 4, clip: float | None = None) -> None:
        super().__init__(group_size, clip)

    def group_advantages(self, returns: Tensor) -> Tensor:
        """Return minus the mean of the others."""
        return ops.leave_one_out(returns, self.group_size)
