"""The floor of a rollout, by hand."""

from pathlib import Path

import pytest
import torch

from lit_cory.commands.floor import Size, Work, bandwidth, bytes_read, matrix_rate, operations, size_of
from tests.agents import make_agents


def test_operations_and_reads_by_hand() -> None:
    size = Size(body=100, head=10, body_bytes=400, head_bytes=40, trained_whole=False)
    work = Work(prompt_tokens=6, response_tokens=4, steps=3, epochs=2)
    # Weights times tokens: 100 x 10 + 10 x 4 = 1040. Passes: sampled 1, reference 1, two epochs forward and backward 4.
    assert operations(size, work) == 2 * 6 * 1040
    # Three tokens one after another, the reference, two forward and two backward passes.
    assert bytes_read(size, work) == (3 + 1 + 4) * 440
    whole = Size(body=100, head=10, body_bytes=400, head_bytes=40, trained_whole=True)
    assert operations(whole, work) == 2 * 8 * 1040


@pytest.mark.parametrize("family", ["gpt2_base", "llama_base"])
@pytest.mark.parametrize("kind", ["shared_lora", "full"])
def test_a_base_is_counted_without_adapters_and_embeddings(
    family: str, kind: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(family)
    agent = make_agents(folder, 2, kind)[0]  # type: ignore[arg-type]
    config, size = agent.lm.config, size_of(agent)
    hidden = config.hidden_size
    assert size.head == config.vocab_size * hidden
    assert size.head_bytes == 4 * size.head
    inner = getattr(config, "n_inner", None) or getattr(config, "intermediate_size", None) or 4 * hidden
    key_values = (
        hidden * getattr(config, "num_key_value_heads", config.num_attention_heads) // config.num_attention_heads
    )
    mlp = (3 if family == "llama_base" else 2) * hidden * inner
    assert size.body == config.num_hidden_layers * (2 * hidden * hidden + 2 * hidden * key_values + mlp)
    assert size.body_bytes == 4 * size.body
    assert size.trained_whole is (kind == "full")


def test_rates_are_of_this_machine() -> None:
    """Between a toy and what no machine reaches."""
    device = torch.device("cpu")
    assert 1e8 < matrix_rate(torch.float32, device) < 1e16
    assert 1e8 < bandwidth(device) < 1e14
