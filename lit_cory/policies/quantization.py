"""Bases in 4 or 8 bits a weight, through bitsandbytes, on GPU and CPU."""

from functools import partial
from typing import Any, Literal

import bitsandbytes as bnb
import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig

from lit_cory.errors import UserError

NF4_BLOCK = 64
"""Weights that share one scale in nf4: the default of transformers and bitsandbytes."""

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


def refuse_split_blocks(model: nn.Module) -> None:
    """Refuse 4-bit layers on a CPU whose rows are not whole blocks: bitsandbytes' AVX512 kernel reads them wrongly.

    It takes each row to have ``in_features // 64`` scales of its own, so that weights come out 20 to 40% off where
    rounding alone makes 9%. Other CPUs read them well, and refuse them here too: no run is to depend on the machine.

    Raises:
        UserError: naming the first such layer.
    """
    for name, module in model.named_modules():
        four_bits = isinstance(module, bnb.nn.Linear4bit)  # type: ignore[attr-defined]
        if four_bits and module.weight.device.type == "cpu" and module.in_features % NF4_BLOCK:
            raise UserError(
                f"model.quantization=nf4: layer {name} has {module.in_features} inputs, on a CPU they must be a "
                f"multiple of {NF4_BLOCK}; use int8 or none, or another model.base"
            )


def keep_gradients(model: nn.Module) -> None:
    """Forbid bitsandbytes its fast ways, for which it has no gradient or an inexact one.

    - 4 bits: on CPUs with AVX512-BF16 a layer that runs once in evaluation mode repacks its weight for a kernel without
      a derivative, and stays so: all later gradients of the adapters lack what comes through the base.
    - 8 bits: the input of a layer is rounded to 8 bits as well, all but outliers that are chosen over the whole batch.
      Gradients are several per cent off then, and no ratio is exactly 1. Here the weight alone is rounded.
    """
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):  # type: ignore[attr-defined]
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
        elif isinstance(module, bnb.nn.Linear8bitLt):  # type: ignore[attr-defined]
            module.forward = partial(int8_linear, module)  # type: ignore[method-assign]


def int8_linear(layer: Any, x: Tensor) -> Tensor:
    """The forward pass of an 8-bit ``layer`` for inputs ``x`` [..., K], which are not rounded; returns [..., N]."""
    product: Tensor = Int8Product.apply(x, layer.weight, layer.weight.SCB)  # type: ignore[no-untyped-call]
    return product if layer.bias is None else product + layer.bias


class Int8Product(torch.autograd.Function):
    """Inputs [..., K] times an int8 weight [N, K] whose rows have the scales [N]; differentiable in the inputs.

    The weight is made whole anew in the backward pass: kept in the graph, it would cost what its 8 bits save.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        """Multiply in the dtype of ``x``."""
        ctx.save_for_backward(weight, scale)
        return nn.functional.linear(x, whole(weight, scale, x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the inputs."""
        weight, scale = ctx.saved_tensors
        return gradient @ whole(weight, scale, gradient.dtype), None, None


def whole(weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The int8 ``weight`` [N, K] in ``dtype``; a row's ``scale`` [N] is what 127 stands for."""
    return (weight * (scale / 127)[:, None]).to(dtype)
