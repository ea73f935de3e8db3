"""What a team holds in memory, from the shape of its base: what fits where, before anything is loaded."""

from dataclasses import dataclass
from typing import Literal

Storage = Literal["fp32", "fp16", "nf4"]


@dataclass(frozen=True)
class Shape:
    """A language model of the Llama kind, whose blocks hold seven linear layers.

    Attributes:
        layers, hidden, intermediate, vocabulary: of the base.
        key_values: width of keys and of values, that is hidden x key-value heads / heads.
        tied: whether the output matrix is the embedding.
    """

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    key_values: int
    tied: bool = False


LLAMA_2 = {
    "7B": Shape(32, 4096, 11008, 32000, 4096),
    "13B": Shape(40, 5120, 13824, 32000, 5120),
    "70B": Shape(80, 8192, 28672, 32000, 1024),
}
"""Touvron et al. 2023, arXiv 2307.09288, and the configurations published with the weights."""


def linear_weights(shape: Shape) -> int:
    """Weights of the blocks' linear layers."""
    attention = 2 * shape.hidden * (shape.hidden + shape.key_values)
    return shape.layers * (attention + 3 * shape.hidden * shape.intermediate)


def base_bytes(shape: Shape, storage: Storage) -> int:
    """Bytes of the frozen base.

    4-bit weights have a scale of 4 bytes for every 64 of them; embeddings, output matrix and norms stay in 2 bytes.
    """
    plain = 4 if storage == "fp32" else 2
    rest = shape.vocabulary * shape.hidden * (1 if shape.tied else 2) + (2 * shape.layers + 1) * shape.hidden
    linear = linear_weights(shape)
    return rest * plain + (linear // 2 + linear // 64 * 4 if storage == "nf4" else linear * plain)


def trained_weights(shape: Shape, rank: int = 16) -> int:
    """Weights of one agent: an adapter on every linear layer of the blocks, and a value head."""
    h, k, i = shape.hidden, shape.key_values, shape.intermediate
    sides = 2 * (h + h) + 2 * (h + k) + 3 * (h + i)  # q and o, k and v, gate, up and down
    return shape.layers * rank * sides + h + 1


def agent_bytes(shape: Shape, rank: int = 16) -> int:
    """Bytes of one agent: weights, gradients and Adam's two moments, 4 bytes each."""
    return 16 * trained_weights(shape, rank)


def cache_bytes(shape: Shape, rows: int, tokens: int) -> int:
    """Bytes of keys and values in 2 bytes each while ``rows`` answers of up to ``tokens``, prompt included, grow."""
    return 2 * 2 * shape.layers * shape.key_values * rows * tokens


def kept_bytes(shape: Shape, tokens: int) -> int:
    """Bytes that a pass of ``tokens`` keeps for the backward pass under gradient checkpointing, 2 bytes a number.

    The input of each block, and what one block keeps while it is computed again: about 8 times the hidden size and 4
    times the intermediate size a token.
    """
    return 2 * tokens * (shape.layers * shape.hidden + 8 * shape.hidden + 4 * shape.intermediate)


def memory_table(agents: tuple[int, ...] = (1, 2, 4)) -> str:
    """A Markdown table in GB (10^9 bytes): base, each agent, whole teams, and what a rollout adds."""
    head = ["base", "in", "frozen base", "each agent", *(f"{n} agent{'s' * (n > 1)}" for n in agents)]
    rows = [[*head, "cache", "kept"], ["---"] * (len(head) + 2)]
    for name, shape in LLAMA_2.items():
        for storage in ("fp16", "nf4"):
            base, agent = base_bytes(shape, storage), agent_bytes(shape)
            held = [base, agent, *(base + n * agent for n in agents)]
            held += [cache_bytes(shape, 16, 768), kept_bytes(shape, 4096)]
            rows.append([name, storage, *(f"{size / 1e9:.1f}" for size in held)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
