"""From the name of a base to its configuration, tokenizer and frozen model, on the CPU or an accelerator.

A base is a local folder, ``bundled:smollm2-135m`` or ``bundled:gemma3-270m``, or the id of a repository on the Hugging
Face hub. Code that comes with a model is never run, and weights are read from safetensors only.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.pytorch_utils import Conv1D

from lit_cory.errors import UserError
from lit_cory.hub import hub_model
from lit_cory.policies import bundled
from lit_cory.policies.attention import attend_fast
from lit_cory.policies.quantization import Quantization, keep_gradients, loading_options, refuse_split_blocks
from lit_cory.policies.quirks import contiguous_input, give_pad_token, neutralise_generation, without_bars

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def resolve_base(name: str) -> str:
    """What transformers can load for the name of a base: a folder, or a hub id as it is.

    Args:
        name: ``bundled:...``, a local folder with a config.json, or a hub id. A bundled model is fetched once.

    Raises:
        UserError: for a folder that isn't there or holds no model, and as ``bundled_folder`` does.
    """
    if name.startswith(bundled.PREFIX):
        return bundled.bundled_folder(name)
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if (folder / "adapter_config.json").is_file():
            raise UserError(f"model.base={name}: this folder holds an adapter; name the model that it was trained on")
        if not (folder / "config.json").is_file():
            raise UserError(f"model.base={name}: this folder has no config.json; name a folder with a model")
        return str(folder)
    if not HUB_ID.fullmatch(name) or name.startswith("."):
        raise UserError(f"model.base={name}: no such folder; name a model folder, a hub id, or {bundled.names()}")
    return name


def load_config(name: str) -> PreTrainedConfig:
    """The configuration of a base; its weights are not read.

    Raises:
        UserError: for an unknown base, a hub out of reach, a model that doesn't write text from left to right, or
            weights that were saved quantised.
    """
    source = _source(name)
    with _one_line(name):
        config: PreTrainedConfig = AutoConfig.from_pretrained(**source)
    # Encoders of the BERT kind have a language-model class too, and see what comes after unless they say is_decoder.
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or not getattr(config, "is_decoder", True):
        raise UserError(
            f"model.base={name}: a model of type {config.model_type} is no causal language model, which writes text "
            "from left to right; use one of the GPT-2, Llama, Qwen2, Gemma or Mistral families, say"
        )
    # transformers would prefer what the folder says to what is asked for, and not every kind has gradients.
    if getattr(config, "quantization_config", None) is not None:
        raise UserError(
            f"model.base={name}: its weights were saved quantised; name the original model, and have it quantised by "
            "model.quantization"
        )
    return config


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a base: it pads on the left and has a pad token, and its vocabulary is as it was.

    Raises:
        UserError: for an unknown base, a hub out of reach, or a tokenizer that is missing or can't be used.
    """
    config = load_config(name)
    with _one_line(name):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            **_source(name), padding_side="left", clean_up_tokenization_spaces=False
        )
    # Where its files are missing, some tokenizer classes come without any word.
    if not set(tokenizer("a", add_special_tokens=False)["input_ids"]) - set(tokenizer.all_special_ids):
        raise UserError(f"model.base={name}: there is no tokenizer; put tokenizer.json beside config.json")
    give_pad_token(tokenizer, config.get_text_config().vocab_size)
    return tokenizer


def load_model(
    name: str, dtype: str = "auto", device: torch.device | str = "cpu", quantization: Quantization = "none"
) -> PreTrainedModel:
    """The frozen causal language model of a base, in evaluation mode, ready to be sampled without filtering.

    Args:
        name: the base.
        dtype: float32, bfloat16, float16, or auto (see ``auto_dtype``); whatever dtype the weights were saved in.
        device: where to put it.
        quantization: of the linear layers of its blocks.

    Raises:
        UserError: for an unknown base, dtype or quantization, a hub out of reach, weights that are missing,
            incomplete, unreadable, pickled or quantised, and as ``refuse_split_blocks`` does.
    """
    if quantization not in get_args(Quantization):
        raise UserError(f"model.quantization={quantization}: must be {', '.join(get_args(Quantization))}")
    if dtype != "auto" and dtype not in DTYPES:
        raise UserError(f"model.dtype={dtype}: must be auto, {', '.join(DTYPES)}")
    source, tokenizer = _source(name), load_tokenizer(name)
    kept = auto_dtype(device) if dtype == "auto" else DTYPES[dtype]
    _refuse_pickle(name, source["pretrained_model_name_or_path"])
    model: Any
    report: dict[str, Any]
    with _one_line(name), without_bars():
        model, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
            **source,
            **loading_options(quantization, kept, device),
            dtype=kept,
            use_safetensors=True,
            output_loading_info=True,
        )
    if missing := sorted(report["missing_keys"]):
        raise UserError(
            f"model.base={name}: its weights lack {missing[0]} ({len(missing)} missing in all); use a complete causal "
            "language model"
        )
    model.name_or_path = resolve_base(name)  # what an export names: a hub id even if the hub's cache was read
    neutralise_generation(model, tokenizer)
    model.get_output_embeddings().register_forward_pre_hook(contiguous_input)
    refuse_split_blocks(model)
    keep_gradients(model)
    # A quantised model lies on its device already, and refuses to be moved.
    loaded: PreTrainedModel = model.requires_grad_(False).eval()
    if quantization == "none":
        loaded = model.to(device)
    attend_fast(loaded)
    return loaded


def auto_dtype(device: torch.device | str) -> torch.dtype:
    """bfloat16 where ``device`` has instructions for it, else float32, which is several times faster there.

    That is a CUDA device that doesn't emulate it, or a CPU with AVX512-BF16, AMX-BF16 or Arm's BF16.
    """
    device = torch.device(device)
    native = False
    if device.type == "cuda":
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        has = torch.cpu.get_capabilities()
        native = any(has.get(feature, False) for feature in ("avx512_bf16", "amx_bf16", "bf16"))
    return torch.bfloat16 if native else torch.float32


def lora_targets(base: str | PreTrainedConfig, targets: list[str] | None = None) -> list[str] | str:
    """What to give peft as ``target_modules``: "all-linear" by default, or the names given, which must exist.

    "all-linear" is peft's word for every linear layer but the output matrix, in every architecture. The names are
    looked up in the architecture alone; no weights are read.

    Args:
        base: the name of a base, or its configuration.
        targets: ends of module names, ``c_attn`` or ``self_attn.q_proj`` say; None for all linear layers.

    Raises:
        UserError: for a name that no linear layer has; it lists those there are.
    """
    if targets is None:
        return "all-linear"
    config = load_config(base) if isinstance(base, str) else base
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    layers = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D) and module is not head
    ]
    wrong = [target for target in targets if not any(f".{layer}".endswith(f".{target}") for layer in layers)]
    if wrong or not targets:
        usable = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
        what = f"no linear layer is named {wrong[0]}" if wrong else "no layer is named"
        raise UserError(
            f"model.lora.target_modules={targets}: {what}; a {config.model_type} model has {usable} (null takes all)"
        )
    return targets


def max_positions(config: PreTrainedConfig) -> int | None:
    """Tokens that the model can read at once, or None where its configuration sets no limit."""
    text = config.get_text_config()
    for key in ("max_position_embeddings", "n_positions"):
        if (limit := getattr(text, key, None)) is not None:
            return int(limit)
    return None


def hidden_size(model: PreTrainedModel) -> int:
    """Width H of the hidden states that the output matrix [V, H] reads, whatever the configuration calls it.

    Raises:
        UserError: for a model without an output matrix.
    """
    head: nn.Module | None = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if weight is None:
        raise UserError(
            f"model.base={model.name_or_path}: a model of type {model.config.model_type} has no output matrix to read "
            "the width of its hidden states from; use a causal language model"
        )
    return int(weight.shape[1])


def _source(name: str) -> dict[str, Any]:
    """Where to load from, as the keywords that all of transformers' loaders share."""
    path, remedy = resolve_base(name), f"a local folder or {bundled.names()}"
    return {
        "pretrained_model_name_or_path": path if Path(path).is_dir() else hub_model(path, "model.base", remedy),
        "trust_remote_code": False,
    }


def _refuse_pickle(name: str, path: str) -> None:
    """Refuse a folder whose only weights are pickled ones."""
    folder = Path(path)
    pickled = sorted(file.name for end in ("bin", "pt", "pth", "ckpt") for file in folder.glob(f"*.{end}"))
    if folder.is_dir() and pickled and not list(folder.glob("*.safetensors")):
        raise UserError(
            f"model.base={name}: {pickled[0]} is a pickle file, which may run code when it is read; save the model as "
            "safetensors (save_pretrained does)"
        )


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn what transformers raises for files that it can't use into one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[0] if lines else type(error).__name__
        raise UserError(f"model.base={name}: it can't be loaded: {why}") from error
