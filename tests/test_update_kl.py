"""What an update makes of the drift from the reference, on real tiny models."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lit_cory.kl_control import KLSettings
from lit_cory.types import Response, Rollout
from tests.agents import QUERIES, ConstantTask, adam, backward, make_agents, make_team, make_update, push_away


def test_the_controller_is_fed_the_sum_over_a_response(gpt2_base: Path) -> None:
    """Responses of 2 and 10 tokens, every log-ratio 0.1: (0.2 + 1.0) / 2 = 0.6, the mean over tokens would be 0.1."""
    agent = make_agents(gpt2_base, 1)[0]
    response = agent.generate(["The", "It was not"], 10)
    mask = torch.arange(10)[None] < torch.tensor([[2], [10]])
    rollout = Rollout(0, 0, replace(response, mask=mask), torch.zeros(2), torch.zeros(2))
    real = agent.reference_scores

    def shifted(answers: Response) -> object:
        scores = real(answers)
        return replace(scores, logprobs=scores.logprobs - 0.1 * answers.mask)

    agent.reference_scores = shifted  # type: ignore[method-assign, assignment]
    update = make_update(agent, kl=KLSettings(coef=0.2, adaptive=True, target=0.3, horizon=100))
    stats = update.run(rollout, adam(agent, 0.0), backward)
    assert stats.scalars["ref_kl"] == pytest.approx(0.6, abs=1e-5)
    # Error clipped to 0.2, two responses: 0.2 * (1 + 0.2 * 2 / 100).
    assert update.kl.coef == pytest.approx(0.2 * 1.004, abs=1e-12)
    assert stats.scalars["kl_coef"] == 0.2


def test_the_penalty_logged_is_the_one_in_the_reward(gpt2_base: Path) -> None:
    penalties = {}
    for estimator in ("k1", "abs", "k2", "k3", "full"):
        agent = make_agents(gpt2_base, 1)[0]
        push_away(agent)
        torch.manual_seed(2)
        rollout = make_team([agent]).rollout(QUERIES)[0]
        stats = make_update(agent, kl=KLSettings(estimator=estimator)).run(rollout, adam(agent, 0.0), backward)  # type: ignore[arg-type]
        penalties[estimator] = stats.scalars["kl_penalty"]
        with torch.no_grad():
            drift = agent.score(rollout.response).logprobs - agent.reference_scores(rollout.response).logprobs
        assert stats.scalars["ref_kl"] == pytest.approx(drift.sum(1).mean().item(), abs=1e-5)
    assert penalties["abs"] == pytest.approx(drift.abs().sum(1).mean().item(), rel=1e-5)
    assert penalties["k2"] == pytest.approx((drift**2 / 2).sum(1).mean().item(), rel=1e-5)
    assert len(set(penalties.values())) == 5


@pytest.mark.parametrize(
    ("estimator", "placement"), [("k1", "reward"), ("k2", "loss"), ("k3", "loss"), ("full", "loss")]
)
def test_without_a_score_a_policy_pushed_away_returns_to_the_reference(
    gpt2_base: Path, estimator: str, placement: str
) -> None:
    agent = make_agents(gpt2_base, 1)[0]
    push_away(agent, 0.15)
    kl = KLSettings(coef=1.0, estimator=estimator, placement=placement)  # type: ignore[arg-type]
    update, optimizer = make_update(agent, kl=kl), adam(agent, 2e-2)
    team = make_team([agent], ConstantTask(), tokens=(3, 3))
    queries = [QUERIES[1]] * 32

    def exact_kl() -> float:
        torch.manual_seed(7)
        with torch.no_grad():
            response = agent.generate([query.text for query in queries], 3)
            full = agent.score(response, agent.reference_scores(response)).full_kl
        assert full is not None
        return full.sum(1).mean().item()

    before = exact_kl()
    torch.manual_seed(3)
    for _ in range(12):
        update.run(team.rollout(queries)[0], optimizer, backward)
    after = exact_kl()
    assert before > 0.5
    assert after < 0.5 * before, (before, after)


def test_a_weight_on_the_kl_keeps_a_policy_nearer_to_the_reference(gpt2_base: Path) -> None:
    drift = {}
    for coef in (0.0, 1.0):
        agent = make_agents(gpt2_base, 1)[0]
        update, optimizer, team = make_update(agent, kl=KLSettings(coef=coef)), adam(agent, 2e-2), make_team([agent])
        torch.manual_seed(3)
        history = [update.run(team.rollout(QUERIES * 2)[0], optimizer, backward).scalars for _ in range(15)]
        drift[coef] = sum(step["ref_kl"] for step in history[-5:]) / 5
    assert drift[0.0] > 1
    assert drift[1.0] < 0.5 * drift[0.0]


@pytest.mark.parametrize(
    ("estimator", "placement", "warns"),
    [
        ("k1", "reward", False),
        ("k2", "loss", False),
        ("k3", "loss", False),
        ("full", "loss", False),
        ("full", "reward", True),
        ("abs", "reward", True),
        ("k2", "reward", True),
        ("k3", "reward", True),
        ("k1", "loss", True),
        ("abs", "loss", True),
    ],
)
def test_choices_with_a_wrong_gradient_warn(estimator: str, placement: str, warns: bool) -> None:
    text = KLSettings(estimator=estimator, placement=placement).warning()  # type: ignore[arg-type]
    assert (text is not None) is warns
    assert text is None or "model.kl" in text
