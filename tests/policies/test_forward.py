"""Logits in chunks: the same numbers and gradients, and a bounded peak of memory."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lit_cory.policies import forward
from tests.agents import QUERIES, make_agents, push_away


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
@pytest.mark.parametrize("estimator", ["k1", "full"])
def test_chunks_change_neither_numbers_nor_gradients(
    llama_base: Path, kind: str, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = make_agents(llama_base, 2, kind)  # type: ignore[arg-type]
    push_away(agent)
    torch.manual_seed(0)
    response = agent.generate([query.text for query in QUERIES], 6)
    weights = torch.randn(4, *response.mask.shape)

    def run() -> tuple[list[Tensor], list[Tensor]]:
        reference = agent.reference_scores(response)
        scores = agent.score(response, reference if estimator == "full" else None)
        parts = [scores.logprobs, scores.values, scores.entropy, reference.logprobs]
        parts += [] if scores.full_kl is None else [scores.full_kl]
        loss = (weights[0] * scores.logprobs + weights[1] * scores.values).sum()
        if scores.full_kl is not None:
            loss = loss + (weights[2] * scores.full_kl).sum()
        agent.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return parts, [p.grad.clone() for p in agent.trainable().values() if p.grad is not None]

    whole = run()
    vocabulary = agent.lm.config.vocab_size
    positions = int(response.mask.sum()) // 4 - 1
    monkeypatch.setattr(forward, "LOGITS_AT_ONCE", positions * vocabulary)  # several chunks, the last one smaller
    assert int(response.mask.sum()) % positions
    chunked = run()
    for a, b in zip(whole, chunked, strict=True):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert float((y - x).norm()) <= 1e-6 * float(x.norm())


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_gradient_checkpointing_keeps_less_and_changes_nothing(
    family: str, kind: str, tiny_base: Callable[[str], Path]
) -> None:
    """The gpt2 base has dropout in its configuration; and by the backward pass another agent is active."""
    agent, other = make_agents(tiny_base(family), 2, kind)  # type: ignore[arg-type]
    push_away(agent, seed=1)
    push_away(other, seed=2)
    torch.manual_seed(0)
    response = agent.generate([query.text for query in QUERIES], 6)
    weights = torch.randn(2, *response.mask.shape)

    def run() -> tuple[Tensor, list[Tensor], int]:
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            scores = agent.score(response)
        with other.model():
            (weights[0] * scores.logprobs + weights[1] * scores.values).sum().backward()
        gradients = [p.grad.clone() for p in agent.trainable().values() if p.grad is not None]
        agent.zero_grad()
        return scores.logprobs.detach(), gradients, sum(kept.values())

    logprobs, gradients, size = run()
    agent.gradient_checkpointing = True
    same_logprobs, same_gradients, smaller = run()
    assert torch.equal(logprobs, same_logprobs)
    assert len(gradients) == len(same_gradients) > 10
    for a, b in zip(gradients, same_gradients, strict=True):
        assert float((a - b).norm()) <= 1e-6 * float(a.norm())
    assert smaller < 0.8 * size
    assert not any(module.training for module in agent.lm.modules())
    torch.manual_seed(0)
    assert torch.equal(agent.generate([query.text for query in QUERIES], 6).tokens, response.tokens)


def test_peak_memory_does_not_grow_with_the_logits() -> None:
    """A vocabulary of 128,000 at 32 x 32 positions: a copy of all logits takes 500 MB, and the naive way several."""
    result = subprocess.run([sys.executable, "-c", SCRIPT, "32", "32"], capture_output=True, text=True, check=True)
    found = re.fullmatch(r"(\d+) MB\n", result.stdout)
    assert found is not None
    assert int(found[1]) < 1500


SCRIPT = """
import resource, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from lit_cory.policies import LoraSettings, shared_lora_policies
from lit_cory.types import Response
from tests.tiny import make_tokenizer

rows, width = int(sys.argv[1]), int(sys.argv[2])
base = LlamaForCausalLM(LlamaConfig(
    vocab_size=128_000, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    eos_token_id=0, tie_word_embeddings=True))
agent = shared_lora_policies(base.requires_grad_(False), make_tokenizer(pad="eos"), ["agent_0"], LoraSettings())[0]
tokens = torch.randint(128_000, (rows, width))
real = torch.ones(rows, width, dtype=torch.bool)
prompt = torch.zeros(rows, 1, dtype=torch.long)
response = Response(prompt, real[:, :1], tokens, real, real[:, 0], [""] * rows)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scores = agent.score(response, agent.reference_scores(response))
(scores.logprobs.sum() + scores.full_kl.sum()).backward()
assert all(p.grad is not None for n, p in agent.trainable().items() if "lora" in n)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, "MB")
"""
