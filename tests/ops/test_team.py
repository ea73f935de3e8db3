from typing import cast

import pytest
import torch
from torch import Tensor

from lit_cory.ops import TEAM_SCORES, TeamScore, team_scores

SCORES = torch.tensor([[1.0, -2.0], [5.0, 4.0], [3.0, 10.0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", [[9.0, 12.0]] * 3),
        ("own", [[1.0, -2.0], [5.0, 4.0], [3.0, 10.0]]),
        ("mean", [[3.0, 4.0]] * 3),
        ("max", [[5.0, 10.0]] * 3),
        ("difference", [[-3.0, -9.0], [3.0, 0.0], [0.0, 9.0]]),
        ("causal", [[9.0, 12.0], [8.0, 14.0], [3.0, 10.0]]),
    ],
)
def test_three_roles_by_hand(kind: TeamScore, expected: list[list[float]]) -> None:
    torch.testing.assert_close(team_scores(SCORES, kind), torch.tensor(expected))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", [[6.0], [6.0]]),
        ("own", [[1.0], [5.0]]),
        ("mean", [[3.0], [3.0]]),
        ("max", [[5.0], [5.0]]),
        ("difference", [[-4.0], [4.0]]),
        ("causal", [[6.0], [5.0]]),
    ],
)
def test_pioneer_and_observer_by_hand(kind: TeamScore, expected: list[list[float]]) -> None:
    assert team_scores(SCORES[:2, :1], kind).tolist() == expected


@pytest.mark.parametrize("weights", [[[1, 0.5], [0, -2]], torch.tensor([[1, 0.5], [0, -2]], dtype=torch.float64)])
def test_weighted_by_hand(weights: Tensor | list[list[float]]) -> None:
    # Row k is what role k is paid: 1 + 2.5 and -10; -2 + 2 and -8.
    assert team_scores(SCORES[:2], "weighted", weights).tolist() == [[3.5, 0.0], [-10.0, -8.0]]


@pytest.mark.parametrize("kind", TEAM_SCORES)
def test_one_agent_is_paid_its_own_score(kind: TeamScore) -> None:
    weights = [[1.0]] if kind == "weighted" else None
    assert team_scores(SCORES[:1], kind, weights).tolist() == [[1.0, -2.0]]


def test_result_is_its_own_memory() -> None:
    for kind in TEAM_SCORES:
        paid = team_scores(SCORES.clone(), kind, torch.eye(3).tolist() if kind == "weighted" else None)
        paid[0] += 100
        assert paid[1].max() < 50


def test_a_score_that_is_not_finite_reaches_only_who_is_paid_of_it() -> None:
    scores = torch.tensor([[float("nan")], [2.0]])
    assert team_scores(scores, "own")[1].item() == 2.0
    assert team_scores(scores, "causal")[1].item() == 2.0
    assert team_scores(scores, "sum").isnan().all()


@pytest.mark.parametrize(
    "weights", [None, [[1.0, 0.0]], [0.5, 0.5], [[1.0], [1.0, 2.0]], torch.ones(3, 3), [["a", 1], [1, 1]]]
)
def test_weights_that_do_not_fit_are_refused(weights: Tensor | list[list[float]] | None) -> None:
    with pytest.raises(ValueError, match=r"2 rows of 2 weights; others are sum, own, mean, max, difference, causal$"):
        team_scores(SCORES[:2], "weighted", weights)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="'avg': use one of sum, own, mean, max, difference, causal, weighted"):
        team_scores(SCORES, cast(TeamScore, "avg"))
    with pytest.raises(ValueError, match="belong to the team score 'weighted', not to 'sum'"):
        team_scores(SCORES, "sum", torch.eye(3))
    with pytest.raises(ValueError, match=r"\[N, B\]"):
        team_scores(SCORES[0], "sum")


class Game:
    """A pioneer with 3 actions and an observer with 4 that sees the pioneer's; every outcome is enumerated."""

    def __init__(self, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.pioneer = torch.randn(3, generator=g, dtype=torch.float64, requires_grad=True)
        self.observer = torch.randn(3, 4, generator=g, dtype=torch.float64, requires_grad=True)
        first = torch.rand(3, generator=g, dtype=torch.float64)
        second = torch.rand(3, 4, generator=g, dtype=torch.float64)
        self.outcomes = [(a, b) for a in range(3) for b in range(4)]
        self.scores = torch.stack([torch.stack([first[a], second[a, b]]) for a, b in self.outcomes], 1)

    def score_gradients(self) -> tuple[list[float], list[list[Tensor]]]:
        """Probability of each outcome; and for each role and outcome the gradient of its log-probability, flat."""
        probabilities: list[float] = []
        gradients: list[list[Tensor]] = [[], []]
        for a, b in self.outcomes:
            logprobs = (self.pioneer.log_softmax(-1)[a], self.observer.log_softmax(-1)[a, b])
            probabilities.append((logprobs[0] + logprobs[1]).exp().item())
            for role, (logprob, logits) in enumerate(zip(logprobs, (self.pioneer, self.observer), strict=True)):
                gradients[role].append(torch.autograd.grad(logprob, logits, retain_graph=True)[0].flatten())
        return probabilities, gradients

    def moments(self, kind: TeamScore) -> tuple[list[Tensor], list[float]]:
        """Mean and trace of the covariance of each role's policy gradient under the game's exact distribution."""
        paid = team_scores(self.scores, kind)
        probabilities, gradients = self.score_gradients()
        means, variances = [], []
        for role in range(2):
            samples = [paid[role, i] * gradient for i, gradient in enumerate(gradients[role])]
            mean = torch.stack([p * x for p, x in zip(probabilities, samples, strict=True)]).sum(0)
            means.append(mean)
            spread = [p * (x - mean).square().sum().item() for p, x in zip(probabilities, samples, strict=True)]
            variances.append(sum(spread))
        return means, variances

    def true_gradients(self) -> list[Tensor]:
        """Gradient of the expected sum of both scores by automatic differentiation of the enumerated expectation."""
        joint = self.pioneer.softmax(-1)[:, None] * self.observer.softmax(-1)
        value = (joint.flatten() * self.scores.sum(0)).sum()
        return [g.flatten() for g in torch.autograd.grad(value, [self.pioneer, self.observer])]


@pytest.mark.parametrize("seed", range(5))
def test_causal_has_the_gradient_of_sum_and_less_variance(seed: int) -> None:
    game = Game(seed)
    causal, causal_variance = game.moments("causal")
    total, total_variance = game.moments("sum")
    for role, true in enumerate(game.true_gradients()):
        torch.testing.assert_close(total[role], true, rtol=0, atol=1e-10)
        torch.testing.assert_close(causal[role], true, rtol=0, atol=1e-10)
    assert causal_variance[0] == pytest.approx(total_variance[0], rel=1e-12)  # the pioneer is paid the same
    assert causal_variance[1] < 0.9 * total_variance[1]


@pytest.mark.parametrize("seed", range(5))
def test_own_is_another_gradient_for_the_pioneer(seed: int) -> None:
    game = Game(seed)
    pioneer, observer = game.moments("own")[0]
    assert (pioneer - game.true_gradients()[0]).norm() > 1e-3
    torch.testing.assert_close(observer, game.true_gradients()[1], rtol=0, atol=1e-10)


def test_earlier_scores_that_offset_later_ones_are_the_exception() -> None:
    # With r1 = -r2 the sum is a constant 0: causal keeps the (zero) expected gradient but not the lower variance.
    game = Game(0)
    game.scores = torch.stack([-game.scores[1], game.scores[1]])
    assert game.moments("sum")[1][1] == 0.0
    assert game.moments("causal")[1][1] > 0.0
