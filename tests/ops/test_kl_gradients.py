"""Which KL estimator may stand where: exact expected gradients on softmax policies, all actions enumerated."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from lit_cory.ops import KL_ESTIMATORS, KLEstimator, full_kl, kl_per_token, policy_loss, shape_rewards
from tests.ops.oracle import Array, cosine, score_function_gradient, softmax

Kind = Literal["k1", "k2", "k3", "abs", "full"]
KINDS: tuple[Kind, ...] = (*KL_ESTIMATORS, "full")
SEEDS = range(200)


def pair(seed: int, distance: float, actions: int = 8) -> tuple[Tensor, Tensor]:
    """Logits of a policy and of the reference ``distance`` away from it."""
    g = torch.Generator().manual_seed(seed)
    ref = torch.randn(actions, generator=g, dtype=torch.float64)
    return ref + distance * torch.randn(actions, generator=g, dtype=torch.float64), ref


def one_token(logits: Tensor, ref: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
    """Every action as one row of a batch [V, 1]: its log-probability and its KL by ``kind``, both with a graph."""
    logprobs = logits.log_softmax(-1).unsqueeze(-1)
    if kind == "full":
        return logprobs, full_kl(logits, ref).expand_as(logprobs)
    return logprobs, kl_per_token(logprobs, ref.log_softmax(-1).unsqueeze(-1), kind)


def loss_as_penalty(logits: Tensor, ref: Tensor, kind: Kind) -> Tensor:
    """Expected policy loss where the KL is taken off the reward, with a task score of 0."""
    logprobs, kl = one_token(logits, ref, kind)
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    rewards = shape_rewards(torch.zeros(len(logprobs), dtype=torch.float64), kl.detach(), mask, 1.0)
    probability = logprobs.detach().exp()
    # A mean over V rows, each weighted V times its probability, is the expectation.
    return policy_loss(logprobs, logprobs.detach(), len(logprobs) * probability * rewards, mask).loss


def loss_as_term(logits: Tensor, ref: Tensor, kind: Kind) -> Tensor:
    """Expected KL term of the loss over sampled actions: the probabilities that sampled them carry no gradient."""
    logprobs, kl = one_token(logits, ref, kind)
    return (logprobs.detach().exp() * kl).sum()


PLACES = {"reward": loss_as_penalty, "loss": loss_as_term}


def gradient(place: str, kind: Kind, logits: Tensor, ref: Tensor) -> Array:
    logits = logits.clone().requires_grad_()
    (grad,) = torch.autograd.grad(PLACES[place](logits, ref, kind), logits)
    return np.asarray(grad.numpy(), dtype=np.float64)


def closed_form(place: str, kind: Kind, logits: Tensor, ref: Tensor) -> Array:
    """The same gradient on paper: p (f - E f), with f the estimator in the reward, its slope in d as a loss."""
    p, q = softmax(logits.numpy()), softmax(ref.numpy())
    d = np.log(p / q)
    if kind == "full":
        return score_function_gradient(p, d) if place == "loss" else np.zeros_like(p)
    value = {"k1": d, "k2": d**2 / 2, "k3": np.exp(-d) - 1 + d, "abs": np.abs(d)}
    slope = {"k1": np.ones_like(d), "k2": d, "k3": 1 - np.exp(-d), "abs": np.sign(d)}
    return score_function_gradient(p, (value if place == "reward" else slope)[kind])


def true_gradient(logits: Tensor, ref: Tensor) -> Array:
    """Gradient of sum_v p(v) log(p(v) / q(v)) over the policy's logits."""
    p, q = softmax(logits.numpy()), softmax(ref.numpy())
    return score_function_gradient(p, np.log(p / q))


def cosines(place: str, kind: Kind, distance: float) -> Array:
    pairs = [pair(seed, distance) for seed in SEEDS]
    return np.array([cosine(gradient(place, kind, *x), true_gradient(*x)) for x in pairs])


@pytest.mark.parametrize("distance", [0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_expected_gradients_are_those_on_paper(place: str, kind: Kind, distance: float) -> None:
    for seed in range(10):
        logits, ref = pair(seed, distance)
        expected = closed_form(place, kind, logits, ref)
        np.testing.assert_allclose(gradient(place, kind, logits, ref), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("distance", [0.1, 1.0])
@pytest.mark.parametrize(("place", "kind"), [("reward", "k1"), ("loss", "k2"), ("loss", "full")])
def test_cosine_is_1(place: str, kind: Kind, distance: float) -> None:
    for seed in range(10):
        logits, ref = pair(seed, distance)
        expected = true_gradient(logits, ref)
        np.testing.assert_allclose(gradient(place, kind, logits, ref), expected, rtol=0, atol=1e-14)
        assert cosine(gradient(place, kind, logits, ref), expected) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("distance", [0.1, 1.0])
@pytest.mark.parametrize(("place", "kind"), [("loss", "k1"), ("reward", "full")])
def test_gradient_is_zero(place: str, kind: Kind, distance: float) -> None:
    for seed in range(10):
        logits, ref = pair(seed, distance)
        assert np.abs(true_gradient(logits, ref)).max() > 1e-3
        assert np.abs(gradient(place, kind, logits, ref)).max() < 1e-15


@pytest.mark.parametrize(
    ("place", "kind", "distance", "low", "high"),
    [
        ("loss", "k3", 0.1, 0.99, 1.0),
        ("loss", "k3", 1.0, 0.90, 0.99),
        ("loss", "abs", 0.1, 0.80, 0.93),
        ("loss", "abs", 1.0, 0.80, 0.93),
        # Near the reference these are even in d: they fine an action alike for being too likely and too rare.
        ("reward", "k2", 0.1, -0.2, 0.2),
        ("reward", "k3", 0.1, -0.2, 0.2),
        ("reward", "abs", 0.1, -0.2, 0.2),
        ("reward", "k2", 1.0, -0.5, 0.5),
        ("reward", "k3", 1.0, -0.5, 0.5),
        ("reward", "abs", 1.0, -0.5, 0.5),
    ],
)
def test_mean_cosine_of_the_others(place: str, kind: Kind, distance: float, low: float, high: float) -> None:
    found = cosines(place, kind, distance)
    assert low <= found.mean() <= high
    if place == "reward":
        assert (found < 0).mean() > 0.15  # often it drives away from the reference


@pytest.mark.parametrize(("place", "kind"), [("reward", "k1"), ("loss", "k2"), ("loss", "k3"), ("loss", "full")])
def test_a_policy_pushed_away_returns_to_the_reference(place: str, kind: Kind) -> None:
    start, ref = pair(3, 1.5, actions=4)
    assert full_kl(start, ref).item() > 0.3
    assert full_kl(ascend(place, kind, start, ref), ref).item() < 1e-12


@pytest.mark.parametrize(("place", "kind"), [("loss", "k1"), ("reward", "full")])
def test_a_policy_without_gradient_stays_away(place: str, kind: Kind) -> None:
    start, ref = pair(3, 1.5, actions=4)
    torch.testing.assert_close(ascend(place, kind, start, ref, steps=50), start, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["k2", "k3", "abs"])
def test_the_others_in_the_reward_can_drive_a_policy_away(kind: KLEstimator) -> None:
    # d is about (-0.6, 0, 0.4): the first action, too rare already, is fined most and so becomes rarer still.
    ref = torch.zeros(3, dtype=torch.float64)
    start = torch.tensor([-0.6, 0.0, 0.4], dtype=torch.float64)
    before = full_kl(start, ref).item()
    assert full_kl(ascend("reward", kind, start, ref, steps=25), ref).item() > 2 * before
    assert full_kl(ascend("reward", "k1", start, ref, steps=25), ref).item() < before / 2


def ascend(place: str, kind: Kind, start: Tensor, ref: Tensor, steps: int = 150) -> Tensor:
    """Exact gradient steps on the expected loss from ``start``."""
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([logits], lr=2.0)
    for _ in range(steps):
        (logits.grad,) = torch.autograd.grad(PLACES[place](logits, ref, kind), logits)
        optimizer.step()
    return logits.detach()
