"""Agents as full copies of the base beside one frozen reference, as in the original: for parity, not for thrift."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lit_cory.policies.policy import Policy


class FullPolicy(Policy):
    """A copy of the base of its own, every weight trained in fp32; the frozen reference is shared by all agents."""

    def __init__(
        self,
        name: str,
        lm: PreTrainedModel,
        frozen: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(name, lm, tokenizer, temperature)
        self.frozen = frozen

    @contextmanager
    def model(self, *, reference: bool = False) -> Iterator[PreTrainedModel]:
        """This agent's own copy, or the frozen reference."""
        yield self.frozen if reference else self.lm

    def lm_parameters(self) -> dict[str, nn.Parameter]:
        """Every weight of this agent's copy, tied ones once."""
        return dict(self.lm.named_parameters())


def full_policies(
    base: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, names: list[str], temperature: float = 1.0
) -> list[FullPolicy]:
    """Copy ``base`` (fp32, frozen) once per name; ``base`` itself is the reference."""
    agents = []
    for name in names:
        lm = copy.deepcopy(base).requires_grad_(True)
        agents.append(FullPolicy(name, lm, base, tokenizer, temperature))
    return agents
