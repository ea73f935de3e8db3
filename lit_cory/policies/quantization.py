"""Bases in 4 or 8 bits a weight, through bitsandbytes, on GPU and CPU."""

from typing import Any, Literal

import bitsandbytes as bnb
import torch
from torch import nn
from transformers import BitsAndBytesConfig

Quantization = Literal["none", "nf4", "int8"]


def loading_options(quantization: Quantization, dtype: torch.dtype, device: torch.device | str) -> dict[str, Any]:
    """Keywords of ``from_pretrained``; the output matrix and embeddings stay in ``dtype``, which is computed in."""
    if quantization == "none":
        return {}
    config = BitsAndBytesConfig(
        load_in_4bit=quantization == "nf4",
        load_in_8bit=quantization == "int8",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
    )  # type: ignore[no-untyped-call]
    return {"quantization_config": config, "device_map": {"": torch.device(device)}}


def keep_gradients(model: nn.Module) -> None:
    """Forbid bitsandbytes its fast CPU kernel, which cuts the gradient.

    On CPUs with AVX512-BF16 a 4-bit layer that runs once in evaluation mode repacks its weight for a kernel without a
    derivative, and stays so: all later gradients of the adapters lack what comes through the base.
    """
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):  # type: ignore[attr-defined]
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
