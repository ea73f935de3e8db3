"""Several adapters on one base: separate, reversible, and without a second copy."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import LoraLayer

from lit_cory.errors import UserError
from lit_cory.policies import LoraSettings, shared_lora_policies
from lit_cory.policies.loading import load_model, load_tokenizer
from tests.agents import QUERIES, adam, backward, digest, make_agents, make_team, make_update, push_away

PROMPTS = [query.text for query in QUERIES]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_switching_equals_pefts_own_calls(tiny_base: Callable[[str], Path], family: str) -> None:
    agents = make_agents(tiny_base(family), 3)
    for seed, agent in enumerate(agents):
        push_away(agent, seed=seed)
    lm = agents[0].lm
    ids = torch.tensor([[5, 6, 7, 8]])
    ours, references = [], []
    with torch.no_grad():
        for agent in agents:
            with agent.model() as model:
                ours.append(model(input_ids=ids).logits)
            with agent.model(reference=True) as model:
                references.append(model(input_ids=ids).logits)
        tuner = [module for module in lm.modules() if isinstance(module, LoraLayer)]
        for layer in tuner:
            del layer.forward  # what is left is peft's
        for agent, own, reference in zip(agents, ours, references, strict=True):
            for layer in tuner:
                layer.set_adapter(agent.name)
            assert torch.equal(own, lm(input_ids=ids).logits)
            for layer in tuner:
                layer.enable_adapters(False)
            assert torch.equal(reference, lm(input_ids=ids).logits)
            for layer in tuner:
                layer.enable_adapters(True)
            assert not torch.equal(own, reference)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_adapted_layer_is_pefts(tiny_base: Callable[[str], Path], family: str, dtype: str) -> None:
    """Outputs and gradients of every layer, at a scale that rounds."""
    folder = str(tiny_base(family))
    base, tokenizer = load_model(folder, dtype, torch.device("cpu")), load_tokenizer(folder)
    (agent,) = shared_lora_policies(base, tokenizer, ["agent_0"], LoraSettings(r=3, alpha=7))
    push_away(agent)
    for layer in (module for module in agent.lm.modules() if isinstance(module, LoraLayer)):
        x = torch.randn(2, 5, int(layer.in_features or 0), dtype=agent.lm.dtype, requires_grad=True)
        found = []
        for forward in (layer.forward, partial(type(layer).forward, layer)):
            parameters = [x, *(m["agent_0"].get_parameter("weight") for m in (layer.lora_A, layer.lora_B))]
            output = forward(x)
            found.append((output, *torch.autograd.grad(output.float().square().sum(), parameters)))
        for ours, theirs in zip(*found, strict=True):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=1e-5 if dtype == "float32" else 2e-2, atol=1e-5)


def test_every_adapter_keeps_its_gradient_when_another_is_active(gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 2)
    for agent in agents:
        push_away(agent)
    response = agents[0].generate(PROMPTS, 5)
    losses = [agent.score(response).logprobs.sum() for agent in agents]
    with torch.no_grad():
        agents[0].reference_scores(response)
    backward(torch.stack(losses).sum())
    for agent in agents:
        assert all(p.requires_grad and p.grad is not None for p in agent.lm_parameters().values())
        assert sum(float(p.grad.abs().sum()) for p in agent.lm_parameters().values() if p.grad is not None) > 0
    frozen = [p for n, p in agents[0].lm.named_parameters() if "lora_" not in n]
    assert not any(p.requires_grad for p in frozen)


@pytest.mark.parametrize("last_active", [0, 1])
def test_training_one_agent_changes_its_own_adapter_and_head_only(gpt2_base: Path, last_active: int) -> None:
    agents = make_agents(gpt2_base, 2)
    for agent in agents:
        push_away(agent)
    rollouts = make_team(agents).rollout(QUERIES)
    with torch.no_grad():
        agents[last_active].score(rollouts[0].response)
        agents[last_active].lm(input_ids=torch.tensor([[1, 2]]))

    def digests() -> dict[str, str]:
        base = [p for n, p in agents[0].lm.named_parameters() if "lora_" not in n]
        return {"base": digest(base)} | {
            f"{agent.name} {part}": digest(p for n, p in agent.trainable().items() if n.startswith(part))
            for agent in agents
            for part in ("lm", "value_head")
        }

    before = digests()
    make_update(agents[0]).run(rollouts[0], adam(agents[0]), backward)
    after = digests()
    assert {name for name in before if before[name] != after[name]} == {"agent_0 lm", "agent_0 value_head"}


def test_the_base_is_held_once(llama_base: Path) -> None:
    base = load_model(str(llama_base), "float32", torch.device("cpu"))
    weights = {p.data_ptr() for p in base.parameters()}
    agents = shared_lora_policies(base, load_tokenizer(str(llama_base)), ["agent_0", "agent_1"], LoraSettings(r=4))
    everything = {p.data_ptr() for agent in agents for p in agent.parameters()}
    trained = {p.data_ptr() for agent in agents for p in agent.trainable().values()}
    assert everything == weights | trained
    assert not weights & trained


def test_value_heads_are_not_adapted_and_names_do_not_depend_on_the_agent(llama_base: Path) -> None:
    first, second = make_agents(llama_base, 2)
    assert first.trainable().keys() == second.trainable().keys()
    assert not any(first.name in name for name in first.trainable())
    assert {"value_head.linear.weight", "value_head.linear.bias"} <= first.trainable().keys()
    assert not {id(p) for p in first.trainable().values()} & {id(p) for p in second.trainable().values()}


def test_small_steps_reach_the_trained_weights_of_a_bfloat16_base(llama_base: Path) -> None:
    """A step of 1e-6 vanishes in bfloat16 (0.02 stays 0.02001953); adapters, heads and Adam are float32."""
    base = load_model(str(llama_base), "bfloat16", torch.device("cpu"))
    agent = shared_lora_policies(base, load_tokenizer(str(llama_base)), ["agent_0"], LoraSettings(r=4))[0]
    push_away(agent)
    before = {name: p.detach().clone() for name, p in agent.trainable().items()}
    optimizer = adam(agent, lr=1e-6)
    make_update(agent).run(make_team([agent]).rollout(QUERIES)[0], optimizer, backward)
    for name, parameter in agent.trainable().items():
        gradient = optimizer.state[parameter]["exp_avg"] / 0.1  # what Adam's first average is a tenth of
        # Adam's first step is the learning rate in every weight; a gradient near its epsilon makes less of it.
        strong = (before[name].abs() < 0.5) & (gradient.abs() > 1e-6)
        assert (parameter != before[name])[strong].all(), name
        assert (gradient != 0).any(), name
    assert {v.dtype for s in optimizer.state.values() for v in s.values()} == {torch.float32}


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "gemma", "mistral"])
def test_targets_left_out_suit_the_family(tiny_base: Callable[[str], Path], family: str) -> None:
    names = {name.split(".lora_")[0].split(".")[-1] for name in make_agents(tiny_base(family), 1)[0].lm_parameters()}
    llama = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert names == ({"c_attn", "c_proj", "c_fc"} if family == "gpt2" else llama)


def test_wrong_targets_are_refused_with_the_names_that_there_are(gpt2_base: Path) -> None:
    base = load_model(str(gpt2_base), "float32", torch.device("cpu"))
    with pytest.raises(UserError, match="c_attn"):
        shared_lora_policies(base, load_tokenizer(str(gpt2_base)), ["agent_0"], LoraSettings(target_modules=["q_proj"]))
