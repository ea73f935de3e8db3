"""PPO puts the equations together as they stand in the paper: hand-worked on two tokens."""

import math

import pytest
import torch

from lit_cory.algorithms import PPO
from lit_cory.types import Scores

MASK = torch.tensor([[True, True]])


def scores(logprobs: list[float], values: list[float]) -> Scores:
    return Scores(torch.tensor([logprobs]), torch.tensor([values]), torch.zeros(1, 2))


def test_advantages_are_whitened_and_returns_are_not() -> None:
    """Rewards 0, 1, values 0.5, 0.25, lambda 0.5: deltas -0.25, 0.75; advantages 0.125, 0.75; returns 0.625, 1."""
    advantages, returns = PPO(lam=0.5).advantages(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), MASK)
    assert returns.tolist() == [[0.625, 1.0]]
    # Two values, unbiased: -+ 1 / sqrt(2).
    assert advantages.tolist()[0] == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-6)


def test_loss_is_clipped_policy_loss_plus_weighted_value_loss() -> None:
    """Ratios 1.5 and 1 with advantages 1 and -1: -(1.2 - 1) / 2. Values 1, 0 of returns 0, 0, old values 0.5, 0:
    clipped to 0.7, the larger square is 1, so 0.5 * (1 + 0) / 2."""
    new, old = scores([math.log(1.5) - 1, -1.0], [1.0, 0.0]), scores([-1.0, -1.0], [0.5, 0.0])
    loss, scalars = PPO(clip=0.2, value_clip=0.2, value_coef=0.1).loss(
        new, old, torch.tensor([[1.0, -1.0]]), torch.zeros(1, 2), MASK
    )
    assert loss.item() == pytest.approx(-0.1 + 0.1 * 0.25, abs=1e-6)
    assert scalars["policy_loss"].item() == pytest.approx(-0.1, abs=1e-6)
    assert scalars["value_loss"].item() == pytest.approx(0.25, abs=1e-6)
    assert scalars["clip_fraction"].item() == 0.5
    assert scalars["approx_kl"].item() == pytest.approx((0.5 - math.log(1.5)) / 2, abs=1e-6)


def test_an_unclipped_critic_follows_the_plain_square() -> None:
    new, old = scores([-1.0, -1.0], [2.0, 0.0]), scores([-1.0, -1.0], [0.0, 0.0])
    _, scalars = PPO(value_clip=None).loss(new, old, torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), MASK)
    assert scalars["value_loss"].item() == pytest.approx(0.5 * (1 + 0) / 2, abs=1e-6)
