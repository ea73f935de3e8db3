"""``python -m lit_cory export``: an agent, or the mean of all, as a folder that plain transformers and peft load."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from lit_cory.commands.load import load_agents
from lit_cory.commands.model_card import Exported, model_card
from lit_cory.commands.weights import loadable_base, mean_adapter, mean_copy, merged_base, save_model
from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule
from lit_cory.policies import FullPolicy, SharedLoraPolicy

DType = Literal["float32", "bfloat16", "float16"]

MERGED = "merged"


def export(
    module: CoryLightningModule,
    checkpoint: str,
    to: str,
    device: torch.device,
    agent: str = "agent_0",
    merge: bool = False,
    scale: float = 1.0,
    dtype: DType = "float32",
) -> Exported:
    """Write an adapter or a whole model, with tokenizer and card; the folder is there as a whole or not at all.

    Args:
        module: as configured, without agents yet.
        checkpoint: of its run.
        to: a folder, new or empty.
        device: where to compute.
        agent: the name of one, or ``merged``, the mean of all agents' deltas.
        merge: write a whole model with the delta in its weights; always so for agents that are full copies.
        scale: what the delta is multiplied by.
        dtype: of a whole model; an adapter is float32.

    Raises:
        UserError: for arguments that can't be used, before anything is loaded, and as ``load_agents`` does.
    """
    whole = merge or module.policy_settings.policy == "full"
    names = chosen(module, agent)
    if not (math.isfinite(scale) and scale >= 0):
        raise UserError(f"scale={scale}: must be a finite number, 0 or above")
    if not whole and dtype != "float32":
        raise UserError(
            f"dtype={dtype}: an adapter stays float32; leave dtype out, or write a whole model with --merge"
        )
    base = module.bases()[module.agent_names.index(names[0])]
    folder = Path(to).expanduser().resolve()
    with new_folder(folder) as made:
        load_agents(module, checkpoint, device)
        exported = Exported(folder.name, checkpoint, names, base, loadable_base(base), whole, scale, dtype)
        write_weights(module, exported, device, made)
        module.agents()[module.agent_names.index(names[0])].tokenizer.save_pretrained(made)
        (made / "README.md").write_text(model_card(exported, module), encoding="utf-8")
    return exported


def chosen(module: CoryLightningModule, agent: str) -> list[str]:
    """Names of the agents that are exported as one.

    Raises:
        UserError: for an unknown name, and for the mean of agents of different bases.
    """
    names = module.agent_names
    if agent != MERGED and agent not in names:
        raise UserError(f"agent={agent}: no such agent; there are {', '.join(names)}, and {MERGED} for their mean")
    if agent == MERGED and len(set(module.bases())) > 1:
        raise UserError(
            f"agent={MERGED}: agents of different bases ({', '.join(module.bases())}) have no mean; name one"
        )
    return list(names) if agent == MERGED else [agent]


def write_weights(module: CoryLightningModule, exported: Exported, device: torch.device, folder: Path) -> None:
    """Write the model of full copies, an adapter, or a base with the adapter merged into it."""
    agents = [agent for agent in module.agents() if agent.name in exported.agents]
    copies = [agent for agent in agents if isinstance(agent, FullPolicy)]
    if copies:
        save_model(mean_copy(copies, exported.scale, exported.dtype), folder)
        return
    config, tensors = mean_adapter([a for a in agents if isinstance(a, SharedLoraPolicy)], exported.scale)
    config.base_model_name_or_path = exported.source
    if not exported.whole:
        write_adapter(config, tensors, folder)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as adapter:
        write_adapter(config, tensors, Path(adapter))
        settings = module.policy_settings
        save_model(merged_base(exported.base, Path(adapter), settings, exported.dtype, device), folder)


def write_adapter(config: LoraConfig, tensors: dict[str, Tensor], folder: Path) -> None:
    """The two files of peft."""
    config.save_pretrained(str(folder))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder``, put in its place where the block ends well.

    Raises:
        UserError: if ``folder`` holds something or can't be written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"to={folder}: is there already, and nothing is overwritten; name a new or empty folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
            made = Path(work) / "made"
            made.mkdir()
            yield made
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
    except (OSError, SafetensorError) as error:
        raise UserError(f"to={folder}: can't be written ({error}); name another folder, or free space there") from error


def report(exported: Exported, to: str, full: bool) -> None:
    """Say what was written where."""
    if full:
        print("Agents of model.policy=full have no adapters: a whole model is written.")
    print(f"Written to {to}: {exported.title()}; its README.md says how to load it")
