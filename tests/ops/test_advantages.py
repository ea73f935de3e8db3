import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.ops import gae
from tests.ops.oracle import gae_by_definition


def random_case(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rewards, values [4, 8] in float64 and a mask of any pattern."""
    g = torch.Generator().manual_seed(seed)
    rewards, values = (torch.randn(4, 8, generator=g, dtype=torch.float64) for _ in range(2))
    return rewards, values, torch.rand(4, 8, generator=g) < 0.7


def test_by_hand() -> None:
    # delta = (1 + 0.5*2 - 4, 3 + 0.5*8 - 2, 5 - 8) = (-2, 5, -3), decay 0.25: advantages -3, 4.25 - 0.0625*3 ...
    advantages, returns = gae(
        torch.tensor([[1.0, 3.0, 5.0, 99.0]]),
        torch.tensor([[4.0, 2.0, 8.0, 99.0]]),
        torch.tensor([[True, True, True, False]]),
        gamma=0.5,
        lam=0.5,
    )
    assert advantages.tolist() == [[-0.9375, 4.25, -3.0, 0.0]]
    assert returns.tolist() == [[3.0625, 6.25, 5.0, 0.0]]


def test_defaults_are_gamma_1_and_lambda_095() -> None:
    # delta = (0 + 2 - 1, 3 - 2) = (1, 1)
    advantages, _ = gae(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 2.0]]), torch.tensor([[True, True]]))
    assert advantages.tolist()[0] == pytest.approx([1.95, 1.0], rel=1e-6)


def test_lambda_1_is_return_minus_value_and_lambda_0_is_one_step() -> None:
    rewards, values = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[3.0, 5.0, 7.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    advantages, returns = gae(rewards, values, mask, 1.0, 1.0)
    assert advantages.tolist() == [[4.0, 1.0, -3.0]]
    assert returns.tolist() == [[7.0, 6.0, 4.0]]
    assert gae(rewards, values, mask, 1.0, 0.0)[0].tolist() == [[3.0, 4.0, -3.0]]


def test_a_lone_token() -> None:
    advantages, returns = gae(torch.tensor([[2.0]]), torch.tensor([[0.5]]), torch.tensor([[True]]))
    assert (advantages.item(), returns.item()) == (1.5, 2.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_against_the_definition(seed: int, gamma: float, lam: float) -> None:
    rewards, values, mask = random_case(seed)
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    for b, row in enumerate(mask):
        expected = gae_by_definition(rewards[b][row].tolist(), values[b][row].tolist(), gamma, lam)
        assert advantages[b][row].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)
        assert (returns - values)[b][row].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert advantages[~mask].eq(0).all()
    assert returns[~mask].eq(0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_padding_width_and_content_change_nothing(seed: int, width: int) -> None:
    rewards, values, mask = random_case(seed)
    advantages, returns = gae(rewards, values, mask)
    pad = torch.full((4, width), float("nan"), dtype=torch.float64)
    r, v = (torch.cat([x.masked_fill(~mask, float("inf")), pad], 1) for x in (rewards, values))
    wide_advantages, wide_returns = gae(r, v, torch.cat([mask, torch.zeros(4, width, dtype=torch.bool)], 1))
    assert torch.equal(wide_advantages[:, :8], advantages)
    assert torch.equal(wide_returns[:, :8], returns)
    assert wide_advantages[:, 8:].eq(0).all()
    assert wide_returns[:, 8:].eq(0).all()


def test_gradients() -> None:
    rewards, values, mask = random_case(3)
    assert torch.autograd.gradcheck(
        lambda r, v: gae(r, v, mask, 0.9, 0.8), (rewards.requires_grad_(), values.requires_grad_())
    )
