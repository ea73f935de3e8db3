"""Group relative policy optimization."""

from torch import Tensor

from lit_cory import ops
from lit_cory.algorithms.groups import GroupAlgorithm


class GRPO(GroupAlgorithm):
    """Group relative policy optimization (Shao et al. 2024, arXiv 2402.03300).

    Published with the KL as a k3 loss: ``model.kl.placement=loss``, ``model.kl.estimator=k3``.

    Args:
        group_size: responses to each query.
        clip: of the probability ratio.
    """

    def __init__(self, group_size: int = 4, clip: float | None = 0.2) -> None:
        super().__init__(group_size, clip)

    def group_advantages(self, returns: Tensor) -> Tensor:
        """Return minus the mean of the group, over its deviation."""
        return ops.group_whiten(returns, self.group_size)
