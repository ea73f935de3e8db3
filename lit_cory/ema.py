"""Exponential moving averages of what an agent trains of its language model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """average <- decay * average + (1 - decay) * present, which begins at the present.

    Of an adapter, the two factors are averaged, not their product.

    Args:
        parameters: by name; :meth:`update` reads them, :meth:`exchanged` lends them the average.
        decay: 0 or above and below 1; 1 / (1 - decay) updates are about the memory.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.average = copies(parameters)

    @torch.no_grad()
    def update(self) -> None:
        """Take the present in."""
        for name, parameter in self.parameters.items():
            self.average[name].lerp_(parameter, 1 - self.decay)

    @contextmanager
    def exchanged(self) -> Iterator[None]:
        """Let the parameters be the average within the block; nothing is copied, and no graph may live across it."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.data, self.average[name] = self.average[name], parameter.data

    def load(self, average: Mapping[str, Tensor]) -> None:
        """Go on from an average that was saved."""
        copy(average, self.average)


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that have no graph."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Write the values of ``source`` into the tensors of the same names."""
    for name, tensor in target.items():
        tensor.copy_(source[name])
