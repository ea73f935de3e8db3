import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.ops import policy_loss, value_loss
from tests.ops.oracle import policy_loss_by_loops


def random_case(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probs, old ones, advantages [3, 6] in float64 and a mask with at least one real token."""
    g = torch.Generator().manual_seed(seed)
    logprobs = -2 + torch.randn(3, 6, generator=g, dtype=torch.float64)
    old = logprobs + 0.4 * torch.randn(3, 6, generator=g, dtype=torch.float64)
    mask = torch.rand(3, 6, generator=g) < 0.6
    mask[0, 0] = True
    return logprobs, old, torch.randn(3, 6, generator=g, dtype=torch.float64), mask


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "bound"),
    [
        (1.0, 2.0, -2.0, -2.0, 0.0),
        (1.5, 2.0, -2.4, 0.0, 1.0),  # gained enough: held at 1.2
        (0.5, 2.0, -1.0, -1.0, 0.0),  # fell behind: may come back
        (1.5, -2.0, 3.0, 3.0, 0.0),
        (0.5, -2.0, 1.6, 0.0, 1.0),
        (1.1, 2.0, -2.2, -2.2, 0.0),
        (1.5, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, loss: float, slope: float, bound: float) -> None:
    old = torch.tensor([[-2.0]], dtype=torch.float64)
    logprobs = (old + math.log(ratio)).requires_grad_()
    result = policy_loss(logprobs, old, torch.full((1, 1), advantage, dtype=torch.float64), torch.tensor([[True]]))
    (grad,) = torch.autograd.grad(result.loss, logprobs)
    assert result.loss.item() == pytest.approx(loss, rel=1e-12)
    assert grad.item() == pytest.approx(slope, rel=1e-12)  # d ratio / d logprob = ratio
    assert result.clip_fraction.item() == bound
    assert result.approx_kl.item() == pytest.approx(ratio - 1 - math.log(ratio), rel=1e-9, abs=1e-15)


def test_fractions_are_of_real_tokens() -> None:
    logprobs = torch.log(torch.tensor([[1.5, 1.0, 1.0], [1.0, 1.5, 1.5]]))
    mask = torch.tensor([[True, True, True], [True, False, False]])
    result = policy_loss(logprobs, torch.zeros(2, 3), torch.ones(2, 3), mask)
    assert result.clip_fraction.item() == 0.25
    assert result.loss.item() == pytest.approx(-(1.2 + 3) / 4, rel=1e-6)
    assert result.approx_kl.item() == pytest.approx((0.5 - math.log(1.5)) / 4, rel=1e-5)


def test_before_the_first_step_the_ratio_is_1() -> None:
    logprobs, _, advantages, mask = random_case(0)
    logprobs.requires_grad_()
    result = policy_loss(logprobs, logprobs.detach(), advantages, mask)
    (grad,) = torch.autograd.grad(result.loss, logprobs)
    assert (result.clip_fraction.item(), result.approx_kl.item()) == (0.0, 0.0)
    torch.testing.assert_close(grad, torch.where(mask, -advantages, 0.0) / mask.sum(), rtol=1e-14, atol=0)


def test_approx_kl_keeps_its_digits_near_1() -> None:
    result = policy_loss(torch.tensor([[2.0**-13]]), torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([[True]]))
    assert result.approx_kl.item() == pytest.approx(2**-27, rel=1e-3)


def test_only_the_loss_has_a_graph() -> None:
    logprobs, old, advantages, mask = random_case(1)
    result = policy_loss(logprobs.requires_grad_(), old, advantages, mask)
    assert [x.requires_grad for x in result] == [True, False, False]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.2, 0.5]))
def test_policy_loss_against_loops(seed: int, clip: float) -> None:
    logprobs, old, advantages, mask = random_case(seed)
    result = policy_loss(logprobs, old, advantages, mask, clip)
    expected = policy_loss_by_loops(logprobs.numpy(), old.numpy(), advantages.numpy(), mask.numpy(), clip)
    assert [x.item() for x in result] == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_policy_gradients() -> None:
    logprobs, old, advantages, mask = random_case(5)
    inputs = (logprobs.requires_grad_(), advantages.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, a: policy_loss(x, old, a, mask).loss, inputs)


def test_value_loss_by_hand() -> None:
    values, old = torch.tensor([[1.0, 5.0, 99.0]]), torch.tensor([[1.5, 2.0, 99.0]])
    returns, mask = torch.tensor([[3.0, 6.0, 0.0]]), torch.tensor([[True, True, False]])
    assert value_loss(values, old, returns, mask).item() == 1.25  # (4 + 1) / 2 / 2
    # 1 lies within 0.5 of 1.5: 4; 5 is held at 2.5: (2.5 - 6)^2 = 12.25 is the larger.
    assert value_loss(values, old, returns, mask, clip=0.5).item() == 4.0625


@pytest.mark.parametrize(
    ("value", "slope"),
    [
        (1.1, -0.9),  # within the clip: value - return
        (1.5, 0.0),  # beyond it, towards the return: nothing to gain
        (0.5, -1.5),  # beyond it, away from the return: pulled back
    ],
)
def test_value_clip_slope_by_hand(value: float, slope: float) -> None:
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    (grad,) = torch.autograd.grad(value_loss(values, one, 2 * one, torch.tensor([[True]]), clip=0.2), values)
    assert grad.item() == pytest.approx(slope, rel=1e-12, abs=1e-15)


def test_value_gradients() -> None:
    values, old, returns, mask = random_case(6)
    for clip in (None, 0.2):
        assert torch.autograd.gradcheck(
            lambda v, r, c=clip: value_loss(v, old, r, mask, c), (values.requires_grad_(), returns.requires_grad_())
        )


def test_empty_mask_gives_zero_losses_with_a_graph() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    empty = torch.zeros(2, 3, dtype=torch.bool)
    result = policy_loss(x, x.detach(), torch.ones(2, 3), empty)
    total = result.loss + value_loss(x, x.detach(), torch.zeros(2, 3), empty, clip=0.2)
    (grad,) = torch.autograd.grad(total, x)
    assert (total.item(), result.clip_fraction.item(), result.approx_kl.item()) == (0.0, 0.0, 0.0)
    assert grad.eq(0).all()
