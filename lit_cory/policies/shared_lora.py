"""Agents as LoRA adapters on one frozen base, the reference when all are off: a team for the memory of one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from lit_cory.policies.loading import lora_targets
from lit_cory.policies.policy import Policy


@dataclass(frozen=True)
class LoraSettings:
    """The adapters of agents that share a base.

    Attributes:
        r: rank.
        alpha: scale; the delta is alpha / r times the product of the two factors.
        target_modules: names of the linear layers to adapt; null takes all linear layers of the blocks.
    """

    r: int = 16
    alpha: int = 32
    target_modules: list[str] | None = None


class SharedLoraPolicy(Policy):
    """One adapter of a base that all agents share. Adapter and value head are fp32 whatever the base's dtype."""

    def __init__(
        self, name: str, lm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, temperature: float = 1.0
    ) -> None:
        super().__init__(name, lm, tokenizer, temperature)
        # A plain tuple of references: the layers are registered once, as part of the language model.
        self._layers = tuple(module for module in lm.modules() if isinstance(module, LoraLayer))

    @contextmanager
    def model(self, *, reference: bool = False) -> Iterator[PreTrainedModel]:
        """The base with this agent's adapter active, or with all adapters off."""
        # peft's own set_adapter and disable_adapter also flip requires_grad of every adapter, which silently takes
        # gradients from the agents that aren't active, and walk the whole model for it. These two attributes are all
        # that the forward pass reads; a test holds the result equal to peft's public calls.
        before = [(layer._active_adapter, layer._disable_adapters) for layer in self._layers]
        try:
            for layer in self._layers:
                layer._active_adapter, layer._disable_adapters = [self.name], reference
            yield self.lm
        finally:
            for layer, (active, disabled) in zip(self._layers, before, strict=True):
                layer._active_adapter, layer._disable_adapters = active, disabled

    def lm_parameters(self) -> dict[str, nn.Parameter]:
        """This agent's adapter, its name taken out of the parameter names."""
        part = f".{self.name}."
        return {name.replace(part, "."): p for name, p in self.lm.named_parameters() if part in name}


def adapted(layer: Any, x: Tensor) -> Tensor:
    """What peft's ``layer`` gives for inputs [..., K] by its active adapter, or without, as its attributes say.

    peft's own forward pass asks on the way for what never occurs here (merged weights, dropout, several adapters at
    once), in each of some two hundred layers for each token sampled; and scales in a pass of its own.
    """
    result: Tensor = layer.base_layer(x)
    if layer._disable_adapters:
        return result
    (name,) = layer._active_adapter
    down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
    delta = linear(linear(x.to(down.dtype), down), up)
    return torch.add(result, delta, alpha=layer.scaling[name]).to(result.dtype)


def shared_lora_policies(
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    names: list[str],
    lora: LoraSettings,
    temperature: float = 1.0,
) -> list[SharedLoraPolicy]:
    """Put one adapter per name on ``base`` (changed in place) and return the agents, all of them trainable.

    Raises:
        UserError: for target modules that the base doesn't have.
    """
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        target_modules=lora_targets(base.config, lora.target_modules),
        # Dropout would make the policy that is scored another one than the policy that sampled.
        lora_dropout=0.0,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in base.modules()),
        task_type="CAUSAL_LM",
    )
    peft: PeftModel = get_peft_model(base, config, adapter_name=names[0])
    for name in names[1:]:
        peft.add_adapter(name, config)
    for module in base.modules():
        if isinstance(module, LoraLayer):
            module.forward = partial(adapted, module)  # type: ignore[method-assign]
    for name, parameter in base.named_parameters():
        parameter.requires_grad_(any(f".{agent}." in name for agent in names))
    return [SharedLoraPolicy(name, base, tokenizer, temperature) for name in names]
