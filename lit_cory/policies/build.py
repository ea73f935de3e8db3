"""From the names of bases to agents: each base is loaded once, however many agents start from it."""

from dataclasses import dataclass
from typing import Literal

import torch

from lit_cory.policies.forward import check_head
from lit_cory.policies.full import full_policies
from lit_cory.policies.loading import load_model, load_tokenizer
from lit_cory.policies.policy import Policy
from lit_cory.policies.quantization import Quantization
from lit_cory.policies.shared_lora import LoraSettings, shared_lora_policies


@dataclass(frozen=True)
class PolicySettings:
    """What kind of agents to make; the keys of the same names of ``CoryLightningModule``."""

    policy: Literal["shared_lora", "full"]
    dtype: str
    quantization: Quantization
    lora: LoraSettings
    temperature: float
    gradient_checkpointing: bool = False


def build_policies(
    bases: list[str], names: list[str], settings: PolicySettings, device: torch.device | str
) -> list[Policy]:
    """Make the agents, by index.

    Args:
        bases: the base of each agent; agents with the same one share it, and its reference.
        names: of the agents.
        settings: of all agents.
        device: where to put them.

    Raises:
        UserError: as ``load_model`` and ``check_head`` do.
    """
    agents: dict[str, Policy] = {}
    for base in dict.fromkeys(bases):
        sharing = [name for name, own in zip(names, bases, strict=True) if own == base]
        tokenizer = load_tokenizer(base)
        # Full copies are trained themselves, and what is trained is fp32.
        dtype = "float32" if settings.policy == "full" else settings.dtype
        model = load_model(base, dtype, device, settings.quantization)
        check_head(model, base)
        made: list[Policy]
        if settings.policy == "full":
            made = [*full_policies(model, tokenizer, sharing, settings.temperature)]
        else:
            made = [*shared_lora_policies(model, tokenizer, sharing, settings.lora, settings.temperature)]
        for agent in made:
            agent.gradient_checkpointing = settings.gradient_checkpointing
        agents |= zip(sharing, made, strict=True)
    return [agents[name] for name in names]
