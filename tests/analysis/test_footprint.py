"""Bytes of teams: against published sizes, and against a real small team."""

from pathlib import Path

import pytest
import torch

from lit_cory.analysis.footprint import (
    LLAMA_2,
    Shape,
    agent_bytes,
    base_bytes,
    cache_bytes,
    kept_bytes,
    linear_weights,
    memory_table,
    trained_weights,
)
from tests.agents import adam, make_agents

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "parameters"), [("7B", 6_738_415_616), ("13B", 13_015_864_320), ("70B", 68_976_648_192)]
)
def test_bases_have_their_published_sizes(name: str, parameters: int) -> None:
    """The parameter counts of Llama 2's weight files."""
    assert base_bytes(LLAMA_2[name], "fp16") == 2 * parameters


def test_four_bits_by_hand() -> None:
    shape = Shape(layers=1, hidden=64, intermediate=128, vocabulary=10, key_values=32, tied=True)
    linear = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
    assert linear_weights(shape) == linear
    assert base_bytes(shape, "nf4") == linear // 2 + linear // 16 + 2 * (10 * 64 + 3 * 64)
    assert cache_bytes(shape, rows=3, tokens=5) == 2 * 2 * 32 * 3 * 5
    assert kept_bytes(shape, tokens=5) == 2 * 5 * (64 + 512 + 512)


def test_a_real_team_holds_what_is_said(llama_base: Path) -> None:
    """Bytes of the frozen weights, and of one agent's weights, gradients and moments after a step."""
    agent, _ = make_agents(llama_base)
    config = agent.lm.config
    width = config.hidden_size * config.num_key_value_heads // config.num_attention_heads
    sizes = (config.num_hidden_layers, config.hidden_size, config.intermediate_size, config.vocab_size, width)
    shape = Shape(*sizes, tied=config.tie_word_embeddings)
    frozen = {p.data_ptr(): p.nbytes for p in agent.lm.parameters() if not p.requires_grad}
    assert sum(frozen.values()) == base_bytes(shape, "fp32")
    parameters = list(agent.trainable().values())
    assert sum(p.numel() for p in parameters) == trained_weights(shape, rank=4)
    optimizer = adam(agent)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    held = sum(p.nbytes + p.grad.nbytes for p in parameters if p.grad is not None) + sum(m.nbytes for m in moments)
    assert held == agent_bytes(shape, rank=4)


def test_the_page_shows_the_table() -> None:
    assert memory_table() in (DOCS / "scaling.md").read_text(encoding="utf-8")
