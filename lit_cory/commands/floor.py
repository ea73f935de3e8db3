"""The time that a rollout can't go below on a machine: the operations it needs, and the weights it must read."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lit_cory.policies import FullPolicy, Policy


@dataclass(frozen=True)
class Size:
    """A base as the floor sees it.

    Attributes:
        body: weights that every token is multiplied with: linear layers, without embeddings and output matrix.
        head: weights of the output matrix, which response positions alone need.
        body_bytes, head_bytes: what reading them moves.
        trained_whole: whether every weight has a gradient of its own, or the adapters alone, which count for nothing.
    """

    body: int
    head: int
    body_bytes: int
    head_bytes: int
    trained_whole: bool


@dataclass(frozen=True)
class Work:
    """What one agent does in one rollout, without padding.

    Attributes:
        prompt_tokens, response_tokens: of all rows.
        steps: tokens sampled one after another, that is the longest answer.
        epochs: of the update.
    """

    prompt_tokens: float
    response_tokens: float
    steps: float
    epochs: int


def operations(size: Size, work: Work) -> float:
    """Floating point operations, two for each weight and token; those of attention and adapters are left out.

    Sampling and the reference take one forward pass each, an epoch takes one more (the first also gives the old
    policy's numbers) and a backward pass: as much again for the activations, and again for the weights where they are
    trained.
    """
    tokens = work.prompt_tokens + work.response_tokens
    passes = 2 + work.epochs * (3 if size.trained_whole else 2)
    return 2 * passes * (size.body * tokens + size.head * work.response_tokens)


def bytes_read(size: Size, work: Work) -> float:
    """Bytes of weights to read: all for each sampled token, and once for every other pass."""
    reads = work.steps + 1 + 2 * work.epochs
    return reads * (size.body_bytes + size.head_bytes)


def size_of(policy: Policy) -> Size:
    """Count the weights of an agent's base."""
    head = policy.lm.get_output_embeddings()
    layers = [
        module
        for name, module in policy.lm.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head and "lora_" not in name
    ]
    return Size(
        body=sum(weights(layer) for layer in layers),
        head=weights(head),
        body_bytes=sum(layer.weight.nbytes for layer in layers),
        head_bytes=int(head.weight.nbytes),
        trained_whole=isinstance(policy, FullPolicy),
    )


def weights(layer: nn.Module) -> int:
    """Weights of a linear layer; 4-bit ones, two to a byte, count each."""
    return layer.in_features * layer.out_features if isinstance(layer, nn.Linear) else int(layer.weight.numel())  # type: ignore[union-attr,operator]


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of a 1024 x 576 x 1536 product, the shape of a small model's layers; the best of several."""
    a, b = torch.randn(1024, 576, dtype=dtype, device=device), torch.randn(1536, 576, dtype=dtype, device=device)
    return 2 * 1024 * 576 * 1536 / best_seconds(lambda: torch.nn.functional.linear(a, b), device)


def bandwidth(device: torch.device) -> float:
    """Bytes a second read from memory: a matrix of 512 MB times a vector; the best of several."""
    matrix, vector = torch.ones(2**14, 2**13, device=device), torch.ones(2**13, device=device)
    return matrix.nbytes / best_seconds(lambda: matrix @ vector, device)


def best_seconds(work: Callable[[], Tensor], device: torch.device) -> float:
    """The shortest of eight times."""
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best
