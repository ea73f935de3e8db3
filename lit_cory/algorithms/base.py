"""What an algorithm decides: advantages of a rollout, and the loss of a minibatch."""

from abc import ABC, abstractmethod

from torch import Tensor

from lit_cory.types import Scores


class Algorithm(ABC):
    """A policy-gradient algorithm. A new one is one subclass in one file, and one YAML.

    Attributes:
        group_size: responses to each query of a batch; they stand in a row.
    """

    group_size: int = 1

    @abstractmethod
    def advantages(self, rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and returns [B, T] of a whole rollout, from shaped rewards, old values and mask [B, T]."""

    @abstractmethod
    def loss(
        self, new: Scores, old: Scores, advantages: Tensor, returns: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch, with a graph, and scalars to log; ``approx_kl`` must be among them."""
