"""What holds for agents of either kind, on real tiny models of several families."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from lit_cory.errors import UserError
from lit_cory.policies import LoraSettings, Policy, shared_lora_policies
from lit_cory.policies.forward import check_head, logits_from_hidden
from lit_cory.policies.loading import load_model, load_tokenizer
from lit_cory.types import Response
from tests.agents import QUERIES, make_agents, push_away
from tests.tiny import FAMILIES, make_base

Kind = Literal["shared_lora", "full"]
KINDS: list[Kind] = ["shared_lora", "full"]
PROMPTS = [query.text for query in QUERIES]


def whole_vocabulary(agent: Policy, response: Response, row: int, *, reference: bool = False) -> Tensor:
    """Log-probs [n, V] of one unpadded row by a plain forward of the model itself: the independent oracle."""
    prompt = response.prompt_ids[row][response.prompt_mask[row]]
    tokens = response.tokens[row][response.mask[row]]
    with torch.no_grad(), agent.model(reference=reference) as lm:
        logits: Tensor = lm(input_ids=torch.cat([prompt, tokens])[None]).logits[0]
    return logits[len(prompt) - 1 : -1].log_softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_padded_batch_is_scored_like_each_row_alone(tiny_base: Callable[[str], Path], family: str, kind: Kind) -> None:
    agent = make_agents(tiny_base(family), 2, kind)[1]
    push_away(agent)
    response = agent.generate(PROMPTS, 7)
    with torch.no_grad():
        scores, reference = agent.score(response), agent.reference_scores(response)
    lengths = response.prompt_mask.sum(1)
    assert lengths.min() == 1, "learned positions show only where padding differs"
    assert lengths.max() >= 9
    for row in range(len(PROMPTS)):
        real = response.mask[row]
        tokens = response.tokens[row][real][:, None]
        own, start = (whole_vocabulary(agent, response, row, reference=r) for r in (False, True))
        torch.testing.assert_close(scores.logprobs[row][real], own.gather(1, tokens)[:, 0], atol=1e-4, rtol=0)
        torch.testing.assert_close(reference.logprobs[row][real], start.gather(1, tokens)[:, 0], atol=1e-4, rtol=0)
        entropy = -(own.exp() * own).sum(-1)
        torch.testing.assert_close(scores.entropy[row][real], entropy, atol=1e-4, rtol=1e-4)
        assert not scores.logprobs[row][~real].any()


@pytest.mark.parametrize("kind", KINDS)
def test_full_kl_is_that_of_the_two_models_over_the_whole_vocabulary(gpt2_base: Path, kind: Kind) -> None:
    agent = make_agents(gpt2_base, 1, kind)[0]
    push_away(agent)
    response = agent.generate(PROMPTS, 7)
    scores = agent.score(response, agent.reference_scores(response))
    assert scores.full_kl is not None
    for row in range(len(PROMPTS)):
        own, start = (whole_vocabulary(agent, response, row, reference=r) for r in (False, True))
        kl = (own.exp() * (own - start)).sum(-1)
        torch.testing.assert_close(scores.full_kl[row][response.mask[row]].detach(), kl, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_starts_at_the_reference(llama_base: Path, kind: Kind) -> None:
    for agent in make_agents(llama_base, 2, kind):
        response = agent.generate(PROMPTS, 6)
        with torch.no_grad():
            scores, reference = agent.score(response), agent.reference_scores(response)
            full = agent.score(response, reference).full_kl
        assert (scores.logprobs - reference.logprobs).abs().max() == 0
        assert full is not None
        assert full.abs().max() < 1e-6
        assert not scores.values.any(), "the critic starts at 0"


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_stays_off_after_the_trainer_turns_training_mode_on(gpt2_base: Path, kind: Kind) -> None:
    agent = make_agents(gpt2_base, 1, kind)[0]
    assert agent.lm.config.attn_pdrop == 0.1, "the test needs a model with dropout"
    push_away(agent)
    response = agent.generate(PROMPTS, 6)
    first = agent.score(response).logprobs
    torch.nn.ModuleList([agent]).train()
    assert torch.equal(agent.score(response).logprobs, first)


def test_reference_is_left_however_the_block_ends(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 2)[0]
    push_away(agent)
    response = agent.generate(PROMPTS, 6)
    before = agent.score(response).logprobs
    with pytest.raises(RuntimeError, match="in the middle"), agent.model(reference=True):
        raise RuntimeError("in the middle")
    assert torch.equal(agent.score(response).logprobs, before)


def test_sampled_tokens_are_drawn_from_the_policy_that_is_scored(gpt2_base: Path) -> None:
    """20,000 draws of one token at T = 0.5: frequencies within 3 standard errors of exp(log-prob)."""
    agent = make_agents(gpt2_base, 1, temperature=0.5)[0]
    push_away(agent)
    torch.manual_seed(0)
    draws = 20_000
    response = agent.generate(["The film"] * draws, 1)
    with torch.no_grad():
        logprobs = agent.score(response).logprobs[:, 0]
    tokens = response.tokens[:, 0]
    common = tokens.bincount().topk(5).indices
    for token in common:
        p = logprobs[tokens == token][0].exp().item()
        seen = (tokens == token).float().mean().item()
        assert abs(seen - p) < 3 * (p * (1 - p) / draws) ** 0.5, (int(token), seen, p)
    assert logprobs.max() <= 0


def test_reference_is_scored_at_the_same_temperature(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1, temperature=0.5)[0]
    response = agent.generate(PROMPTS, 6)
    with torch.no_grad():
        assert torch.equal(agent.score(response).logprobs, agent.reference_scores(response).logprobs)


def test_sampled_kl_agrees_with_the_exact_one(gpt2_base: Path) -> None:
    """Over 4,000 tokens of a perturbed policy the mean of log p - log p_ref is within 3 standard errors of the KL."""
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent, 0.05)
    torch.manual_seed(0)
    response = agent.generate(["It was"] * 800, 6)
    with torch.no_grad():
        reference = agent.reference_scores(response)
        scores = agent.score(response, reference)
    assert scores.full_kl is not None
    mask = response.mask
    assert mask.sum() >= 4000
    # Exact minus sampled has mean 0 given what was sampled before, token by token.
    difference = (scores.logprobs - reference.logprobs - scores.full_kl)[mask]
    assert scores.full_kl[mask].mean() > 0.01
    assert difference.mean().abs() < 3 * difference.std() / mask.sum() ** 0.5


def test_generation_settings_saved_with_a_model_do_not_reach_the_rollouts(tmp_path: Path) -> None:
    odd = {"repetition_penalty": 1.3, "top_p": 0.8, "temperature": 0.7, "do_sample": True, "top_k": 5}
    answers = []
    for name, generation in (("plain", {}), ("odd", odd)):
        agent = make_agents(make_base(tmp_path / name, "llama", generation=generation), 1)[0]
        torch.manual_seed(3)
        answers.append(agent.generate(PROMPTS * 4, 8).tokens)
    assert torch.equal(*answers)


def test_greedy_continuation_does_not_depend_on_the_saved_padding_side(tiny_base: Callable[[str], Path]) -> None:
    """At a low temperature sampling is greedy: rows give the same tokens alone and in a padded batch."""
    agent = make_agents(tiny_base("llama"), 1, temperature=1e-4)[0]
    assert agent.tokenizer.padding_side == "left"
    together = agent.generate(PROMPTS, 6)
    for row, prompt in enumerate(PROMPTS):
        alone = agent.generate([prompt], 6)
        real = together.mask[row]
        assert torch.equal(together.tokens[row][real], alone.tokens[0][alone.mask[0]])


@pytest.mark.parametrize("pad", [None, "eos", "own"])
@pytest.mark.parametrize("bos", [False, True])
def test_any_pad_token_serves_and_the_vocabulary_keeps_its_size(
    tmp_path: Path, pad: Literal["eos", "own"] | None, bos: bool
) -> None:
    folder = make_base(tmp_path / "base", "gpt2", pad=pad, bos=bos)
    size = load_model(str(folder), "float32", torch.device("cpu")).get_input_embeddings().weight.shape
    agent = make_agents(folder, 1)[0]
    assert agent.lm.get_input_embeddings().weight.shape == size
    response = agent.generate(PROMPTS, 6)
    assert response.mask[:, 0].all()
    assert agent.score(response).logprobs.isfinite().all()


def end_at_once(agent: Policy) -> None:
    """Make the end of the sequence all but certain: its row of the output matrix follows the last hidden state."""

    def lift(module: torch.nn.Module, args: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[..., 0] += 50
        return logits

    agent.lm.get_output_embeddings().register_forward_hook(lift)


def test_an_answer_that_ends_at_once_is_one_action(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    end_at_once(agent)
    response = agent.generate(PROMPTS, 8)
    assert response.texts == [""] * len(PROMPTS)
    assert response.mask.sum(1).tolist() == [1] * len(PROMPTS)
    assert response.ended.all()
    assert response.tokens.shape[1] == 1, "the batch stops when all answers have ended"
    assert agent.score(response).logprobs.shape == (len(PROMPTS), 1)


def test_an_end_of_sequence_token_inside_the_prompt_stays_visible_and_ends_nothing(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    response = agent.generate(["One.<|end|>Two", "The film was warm and funny, and"], 4)
    assert (response.prompt_ids[0][response.prompt_mask[0]] == 0).sum() == 1
    assert response.ended.tolist() == (response.tokens == 0).any(1).tolist()
    alone = whole_vocabulary(agent, response, 0)
    real = response.mask[0]
    expected = alone.gather(1, response.tokens[0][real][:, None])[:, 0]
    torch.testing.assert_close(agent.score(response).logprobs[0][real].detach(), expected, atol=1e-4, rtol=0)


def test_prompts_that_do_not_fit_are_refused_in_one_line(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    with pytest.raises(UserError, match=r"prompt of \d+ tokens and 8 new ones exceed the 128 positions of"):
        agent.generate(["word " * 200], 8)
    with pytest.raises(UserError, match="no tokens"):
        agent.generate(["", "The"], 8)


def test_a_chat_goes_through_the_template_of_a_base_that_has_one(tmp_path: Path, gpt2_base: Path) -> None:
    chat = [{"role": "user", "content": "What?"}]
    agent = make_agents(make_base(tmp_path / "chat", "gpt2", chat=True), 1)[0]
    ids, mask = agent.encode([chat], 4)
    assert agent.tokenizer.decode(ids[0][mask[0]]) == "<user>What?<|end|>\n<assistant>"
    with pytest.raises(UserError, match=r"no chat template.*model\.task\.chat=false"):
        make_agents(gpt2_base, 1)[0].encode([chat], 4)


def test_non_finite_logits_name_agent_and_prompt(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    with torch.no_grad():
        next(iter(agent.lm_parameters().values())).fill_(float("nan"))
        agent.lm.get_output_embeddings().weight.fill_(float("nan"))
    with pytest.raises(UserError, match="agent_0: non-finite logits for prompt 0 of the batch"):
        agent.generate(PROMPTS, 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_from_hidden_states_are_the_models_own(tiny_base: Callable[[str], Path], family: str) -> None:
    lm = load_model(str(tiny_base(family)), "float32", torch.device("cpu"))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        hidden = lm.base_model(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(logits_from_hidden(lm, hidden), lm(input_ids=ids).logits[0], atol=1e-5, rtol=1e-5)
    check_head(lm, family)


def test_a_family_with_other_logits_is_refused(tiny_base: Callable[[str], Path]) -> None:
    lm = load_model(str(tiny_base("gemma2")), "float32", torch.device("cpu"))
    assert lm.config.final_logit_softcapping is not None
    plain = lm.forward
    lm.forward = lambda *args, **kwargs: scaled(plain(*args, **kwargs))
    with pytest.raises(UserError, match="gemma2"):
        check_head(lm, "some-base")


def scaled(output: object) -> object:
    output.logits = output.logits * 0.5  # type: ignore[attr-defined]
    return output


def test_log_probabilities_are_computed_in_float32_from_a_bfloat16_base(llama_base: Path) -> None:
    """At equal shapes a ratio is exactly 1; the log-probs are those of the bfloat16 logits, taken in float32."""
    base = load_model(str(llama_base), "bfloat16", torch.device("cpu"))
    agent = shared_lora_policies(base, load_tokenizer(str(llama_base)), ["agent_0"], LoraSettings(r=4))[0]
    assert {p.dtype for p in agent.trainable().values()} == {torch.float32}
    response = agent.generate(PROMPTS[3:4], 6)
    with torch.no_grad():
        scores, again = agent.score(response), agent.score(response)
        logits = agent.lm(input_ids=torch.cat([response.prompt_ids, response.tokens], 1)[:, :-1]).logits
    assert logits.dtype == torch.bfloat16
    assert scores.logprobs.dtype == torch.float32
    assert scores.logprobs.max() <= 0
    assert torch.equal(scores.logprobs, again.logprobs)
    last = logits[0, response.prompt_ids.shape[1] - 1 :].double().log_softmax(-1)
    expected = last.gather(1, response.tokens[0][:, None])[:, 0]
    torch.testing.assert_close(scores.logprobs[0].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_half_precision_bases_are_finite_on_padded_rows(
    tiny_base: Callable[[str], Path], family: str, dtype: str
) -> None:
    folder = str(tiny_base(family))
    base = load_model(folder, dtype, torch.device("cpu"))
    agent = shared_lora_policies(base, load_tokenizer(folder), ["agent_0"], LoraSettings(r=4))[0]
    response = agent.generate(["A", "word " * 15], 6)
    assert response.prompt_mask.sum(1).min() == 1
    assert response.prompt_mask.sum(1).max() >= 30
    with torch.no_grad():
        scores, reference = agent.score(response), agent.reference_scores(response)
    assert scores.logprobs.isfinite().all()
    assert torch.equal(scores.logprobs, reference.logprobs)
