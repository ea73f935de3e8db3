"""RLOO, GRPO and REINFORCE put the equations together as published: hand-worked."""

import math

import pytest
import torch

from lit_cory.algorithms import GRPO, REINFORCE, RLOO
from lit_cory.errors import UserError
from lit_cory.types import Scores

MASK = torch.tensor([[True, True], [True, False]])
REWARDS = torch.tensor([[-0.5, 2.5], [1.0, 99.0]])  # returns 2 and 1; the 99 is masked


def scores(logprobs: list[list[float]]) -> Scores:
    return Scores(torch.tensor(logprobs), torch.zeros(2, 2), torch.zeros(2, 2))


def test_rloo_gives_every_token_its_response_less_the_other() -> None:
    advantages, returns = RLOO(group_size=2).advantages(REWARDS, torch.full((2, 2), 7.0), MASK)
    assert advantages.tolist() == [[1.0, 1.0], [-1.0, 0.0]]
    assert returns.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_grpo_whitens_within_the_group() -> None:
    advantages, _ = GRPO(group_size=2).advantages(REWARDS, torch.zeros(2, 2), MASK)
    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert advantages.flatten().tolist() == pytest.approx([expected, expected, -expected, 0.0], abs=1e-6)


def test_losses_differ_in_the_clip() -> None:
    """Ratio 1.5 at one token of advantage 1, ratio 1 at two of advantage 1 and -1."""
    new, old = scores([[math.log(1.5) - 1, -1.0], [-1.0, 0.0]]), scores([[-1.0, -1.0], [-1.0, 0.0]])
    advantages = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
    for algorithm, expected in ((RLOO(2), -(1.5 + 1 - 1) / 3), (GRPO(2), -(1.2 + 1 - 1) / 3)):
        loss, scalars = algorithm.loss(new, old, advantages, torch.zeros(2, 2), MASK)
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        assert scalars["approx_kl"].item() == pytest.approx((0.5 - math.log(1.5)) / 3, abs=1e-6)


def test_reinforce_is_return_minus_value_without_a_clip() -> None:
    """Rewards 0, 1, values 0.25, 0.5: returns 1, 1, advantages 0.75, 0.5, whitened. A ratio of 3 counts whole."""
    mask = torch.tensor([[True, True]])
    algorithm = REINFORCE()
    advantages, returns = algorithm.advantages(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.5]]), mask)
    assert returns.tolist() == [[1.0, 1.0]]
    assert advantages.tolist()[0] == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-6)
    new = Scores(torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2), torch.zeros(1, 2))
    old = Scores(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
    _, scalars = algorithm.loss(new, old, torch.tensor([[1.0, 1.0]]), torch.zeros(1, 2), mask)
    assert scalars["policy_loss"].item() == pytest.approx(-2.0, abs=1e-6)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.algorithm\.group_size=1: must be at least 2"):
        RLOO(group_size=1)
