"""One agent's update, on real tiny models."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from lit_cory import ops
from lit_cory.kl_control import KLSettings
from lit_cory.types import Response
from lit_cory.update import UpdateSettings
from tests.agents import (
    QUERIES,
    adam,
    backward,
    digest,
    make_agents,
    make_team,
    make_update,
    push_away,
)
from tests.tiny import make_base


class RatioSpy:
    """Keeps the largest |log ratio| of every loss that PPO computes, by looking at what it is called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[float] = []
        real = ops.policy_loss

        def watch(logprobs: torch.Tensor, old: torch.Tensor, *rest: object) -> ops.PolicyLoss:
            self.seen.append(float((logprobs - old).abs().max()))
            result = real(logprobs, old, *rest)  # type: ignore[arg-type]
            assert result.clip_fraction == 0
            assert abs(float(result.approx_kl)) < 1e-9
            return result

        monkeypatch.setattr(ops, "policy_loss", watch)


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("passes", [4096, 40])
def test_every_ratio_is_one_at_learning_rate_zero(
    tmp_path: Path, family: str, kind: Literal["shared_lora", "full"], passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 prompts of 1 to 9 tokens, minibatches of 3, 3 and 2, 4 epochs, pad = eos, dropout configured."""
    spy = RatioSpy(monkeypatch)
    agents = make_agents(make_base(tmp_path / "base", family, pad="eos"), 2, kind)
    for agent in agents:
        push_away(agent)
    settings = UpdateSettings(epochs=4, minibatch_size=3, pass_tokens=passes)
    for rollout in make_team(agents).rollout(QUERIES):
        agent = agents[rollout.agent]
        torch.nn.Module.train(agent, True)  # as a trainer does
        agent.train()
        stats = make_update(agent, settings).run(rollout, adam(agent, lr=0.0), backward)
        assert stats.scalars["steps"] == 12
        assert stats.scalars["approx_kl"] == pytest.approx(0, abs=1e-9)
    assert len(spy.seen) >= 24
    assert max(spy.seen) <= 1e-5


def widen(response: Response, left: int, right: int, garbage: int) -> Response:
    """The same answers with more padding on both sides, of another id."""

    def pad(x: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.functional.pad(x, (left, 0), value=value)

    def tail(x: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, right), value=value)

    return replace(
        response,
        prompt_ids=pad(response.prompt_ids, garbage),
        prompt_mask=pad(response.prompt_mask, 0),
        tokens=tail(response.tokens, garbage),
        mask=tail(response.mask, 0),
    )


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_padding_width_changes_no_statistic(tiny_base: Callable[[str], Path], family: str) -> None:
    results = []
    for left, right in ((0, 0), (7, 5)):
        agent = make_agents(tiny_base(family), 1)[0]
        push_away(agent)
        torch.manual_seed(2)
        rollout = make_team([agent], tokens=(9, 9)).rollout(QUERIES)[0]
        rollout = replace(rollout, response=widen(rollout.response, left, right, garbage=17))
        update = make_update(agent, UpdateSettings(epochs=2), KLSettings(coef=0.3))
        results.append(update.run(rollout, adam(agent, 1e-3), backward).scalars)
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        assert results[1][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("minibatch", [None, 3])
def test_passes_of_any_size_make_the_same_step(gpt2_base: Path, minibatch: int | None) -> None:
    weights = []
    for tokens in (4096, 40):
        agent = make_agents(gpt2_base, 1)[0]
        push_away(agent)
        torch.manual_seed(2)
        rollout = make_team([agent], tokens=(9, 9)).rollout(QUERIES)[0]
        settings = UpdateSettings(epochs=2, minibatch_size=minibatch, pass_tokens=tokens)
        # Plain gradient descent: Adam would blow the last bit of a tiny gradient up to a whole step.
        optimizer = torch.optim.SGD(list(agent.trainable().values()), lr=0.1)
        make_update(agent, settings).run(rollout, optimizer, backward)
        weights.append(torch.cat([p.detach().flatten() for p in agent.trainable().values()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-6)


def test_passes_hold_rows_of_like_length_and_no_needless_padding(
    gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of 1 to 9 tokens, three rows a pass: each pass is as wide as its own longest row."""
    agent = make_agents(gpt2_base, 1)[0]
    rollout = make_team([agent]).rollout(QUERIES)[0]
    widths: list[int] = []
    forward = agent.lm.base_model.forward

    def watch(*args: object, **inputs: torch.Tensor) -> object:
        widths.append(inputs["input_ids"].shape[1])
        return forward(*args, **inputs)

    monkeypatch.setattr(agent.lm.base_model, "forward", watch)
    widest = rollout.response.prompt_ids.shape[1] + rollout.response.tokens.shape[1]
    update = make_update(agent, UpdateSettings(pass_tokens=3 * widest))
    update.run(rollout, adam(agent), backward)
    rows = rollout.response
    spans = sorted(zip(rows.prompt_mask.sum(1).tolist(), rows.mask.sum(1).tolist(), strict=True), key=sum)
    thirds = [spans[0:3], spans[3:6], spans[6:8]]
    needed = [max(p for p, _ in third) + max(r for _, r in third) - 1 for third in thirds]
    assert needed[0] < needed[2], "else nothing is shown"
    assert widths == 3 * needed  # reference, old policy, new policy


def test_one_pass_for_old_and_new_policy_makes_the_step_of_two(
    gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = []
    for shared in (True, False):
        agent = make_agents(gpt2_base, 1)[0]
        push_away(agent)
        torch.manual_seed(2)
        rollout = make_team([agent]).rollout(QUERIES)[0]
        update = make_update(agent)
        if not shared:
            monkeypatch.setattr(update, "one_pass", lambda rows: False)
        update.run(rollout, torch.optim.SGD(list(agent.trainable().values()), lr=0.1), backward)
        assert update.one_pass(len(QUERIES)) is shared
        weights.append(torch.cat([p.detach().flatten() for p in agent.trainable().values()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-7, rtol=0)


def test_each_row_is_used_equally_often() -> None:
    agent_free = UpdateSettings(epochs=3, minibatch_size=3)
    from lit_cory.update import AgentUpdate

    update = AgentUpdate.__new__(AgentUpdate)
    update.settings = agent_free
    batches = list(update.minibatches(8))
    assert [len(batch) for batch in batches] == [3, 3, 2] * 3
    assert torch.cat(batches).bincount().tolist() == [3] * 8


def test_gradients_are_clipped_and_their_norm_is_logged(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent)
    rollout = make_team([agent]).rollout(QUERIES)[0]
    rollout = replace(rollout, team_score=rollout.team_score * 1e6)
    before = torch.cat([p.detach().flatten() for p in agent.trainable().values()])
    descent = torch.optim.SGD(list(agent.trainable().values()), lr=1.0)
    stats = make_update(agent, UpdateSettings(max_grad_norm=1.0)).run(rollout, descent, backward)
    after = torch.cat([p.detach().flatten() for p in agent.trainable().values()])
    assert stats.scalars["grad_norm"] > 1e3
    assert float((after - before).norm()) == pytest.approx(1.0, abs=1e-3)
    assert all(p.grad is None for p in agent.trainable().values()), "no gradient is held beyond the update"


def test_epochs_stop_before_the_step_that_starts_too_far_off(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent)
    rollout = make_team([agent]).rollout(QUERIES)[0]
    stats = make_update(agent, UpdateSettings(epochs=50, target_kl=0.01)).run(rollout, adam(agent, 0.05), backward)
    assert 1 <= stats.scalars["steps"] < 50


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_score_skips_the_update_and_leaves_no_trace(gpt2_base: Path, bad: float) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent)
    rollout = make_team([agent]).rollout(QUERIES)[0]
    rollout.team_score[3] = bad
    update = make_update(agent, kl=KLSettings(adaptive=True), scaling="normalize")
    before, state = digest(agent.trainable().values()), update.state_dict()
    stats = update.run(rollout, adam(agent), backward)
    assert stats.skipped == "non-finite team score"
    assert digest(agent.trainable().values()) == before
    assert update.state_dict() == state | {"skipped_in_a_row": 1}
    rollout.team_score[3] = 1.0
    assert update.run(rollout, adam(agent), backward).skipped is None
    assert update.skipped_in_a_row == 0


def test_a_non_finite_gradient_never_reaches_the_weights(gpt2_base: Path) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent)
    rollout = make_team([agent]).rollout(QUERIES)[0]
    agent.value_head.linear.bias.register_hook(lambda gradient: gradient * math.nan)
    before = digest(agent.trainable().values())
    stats = make_update(agent).run(rollout, adam(agent), backward)
    assert stats.skipped == "non-finite gradient"
    assert digest(agent.trainable().values()) == before
