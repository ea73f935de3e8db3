"""What agents have learnt, as tensors and models that plain transformers and peft load."""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, inject_adapter_in_model
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from lit_cory.policies import FullPolicy, Policy, PolicySettings, SharedLoraPolicy
from lit_cory.policies.loading import DTYPES, load_model, resolve_base
from lit_cory.policies.quirks import without_bars


def mean_adapter(agents: Sequence[SharedLoraPolicy], scale: float) -> tuple[LoraConfig, dict[str, Tensor]]:
    """``scale`` times the mean of the deltas of n adapters of one base, as one adapter of n times their rank.

    With the factors side by side, (alpha / (n r)) [B_1 ... B_n] [A_1; ...; A_n] = 1/n sum_i (alpha / r) B_i A_i: the
    rank grows, alpha stays.

    Returns:
        peft's configuration, and the fp32 tensors by the names of peft's files.
    """
    parts = [agent.lm_parameters() for agent in agents]
    tensors: dict[str, Tensor] = {}
    for name in parts[0]:
        is_a = ".lora_A." in name  # [r, in]; B is [out, r]
        factor = torch.cat([part[name].detach() for part in parts], dim=0 if is_a else 1)
        tensors[f"base_model.model.{name}"] = (factor if is_a else scale * factor).cpu().contiguous()
    made_with: Any = agents[0].lm.peft_config  # peft's, by the adapters' names
    config: LoraConfig = copy.deepcopy(made_with[agents[0].name])
    config.r *= len(agents)
    config.inference_mode = True
    if isinstance(config.target_modules, set):
        config.target_modules = sorted(config.target_modules)  # the same file each time
    return config, tensors


@torch.no_grad()
def mean_copy(agents: Sequence[FullPolicy], scale: float, dtype: str) -> PreTrainedModel:
    """The base plus ``scale`` times the mean of what the full copies have learnt, in ``dtype`` at the end."""
    model: Any = copy.deepcopy(agents[0].frozen)
    copies = [agent.lm_parameters() for agent in agents]
    for name, base in model.named_parameters():
        mean = torch.stack([own[name] for own in copies]).mean(dim=0)
        base.copy_(torch.lerp(base, mean, scale))
    model.to(DTYPES[dtype])
    return model  # type: ignore[no-any-return]


def mean_policy(agents: Sequence[Policy], name: str, scale: float) -> Policy:
    """An agent ``name`` that has learnt ``scale`` times the mean of what ``agents``, of one base, have learnt.

    It shares their base: at scale 0 it is the reference, and one agent at scale 1 is that agent. The value head is
    fresh. An adapter of that name and rank that is there already is written over; theirs stay as they are.
    """
    first = agents[0]
    if isinstance(first, FullPolicy):
        copies = [agent for agent in agents if isinstance(agent, FullPolicy)]
        lm = mean_copy(copies, scale, "float32")
        return FullPolicy(name, lm, first.frozen, first.tokenizer, first.temperature)
    config, tensors = mean_adapter([agent for agent in agents if isinstance(agent, SharedLoraPolicy)], scale)
    made: Any = first.lm.peft_config  # type: ignore[attr-defined]
    if name not in made:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Already found a `peft_config`")  # which says that there are others
            inject_adapter_in_model(config, first.lm, adapter_name=name)
    policy = SharedLoraPolicy(name, first.lm, first.tokenizer, first.temperature)
    for key, parameter in policy.lm_parameters().items():
        # In its place, since peft may have made it in the dtype of the base.
        parameter.data = tensors[f"base_model.model.{key}"].to(first.device)
        parameter.requires_grad_(False)
    return policy


def merged_base(
    base: str, adapter: Path, settings: PolicySettings, dtype: str, device: torch.device
) -> PreTrainedModel:
    """A fresh base in ``dtype`` with the adapter of a folder merged into its weights.

    A quantised base is rounded as in training, and only then dequantised: an adapter has learnt beside those weights.
    """
    quantised = settings.quantization != "none"
    model = load_model(base, settings.dtype if quantised else dtype, device, settings.quantization)
    if quantised:
        model = model.dequantize(DTYPES[dtype]).to(DTYPES[dtype])  # type: ignore[no-untyped-call]
    merged: PreTrainedModel = PeftModel.from_pretrained(model, adapter, torch_device=str(device)).merge_and_unload()
    return merged


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Save as an ordinary model, whose generation config says which tokens end an answer and nothing else."""
    own = model.generation_config
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=own.bos_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id
    )
    with without_bars():
        model.save_pretrained(folder)


def loadable_base(name: str) -> str:
    """The hub id of a base, or the absolute path of its folder."""
    source = resolve_base(name)
    return str(Path(source).absolute()) if Path(source).is_dir() else source
