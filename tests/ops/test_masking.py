import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.ops import kl_per_token, masked_mean, masked_sum, masked_whiten

SEEDS = st.integers(0, 10_000)


def random_case(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [B, T] in float64 with a mask of any pattern that keeps at least three real tokens."""
    g = torch.Generator().manual_seed(seed)
    b, t = (int(torch.randint(1, 6, (), generator=g)) for _ in range(2))
    x = torch.randn(b, t + 3, generator=g, dtype=torch.float64) * 5 + 2
    mask = torch.rand(b, t + 3, generator=g) < 0.6
    mask[0, :3] = True
    return x, mask


def test_masked_mean_and_sum_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0, 100.0], [6.0, 100.0, 100.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_mean(x, mask).item() == 3.0
    assert masked_sum(x, mask).tolist() == [3.0, 6.0]


def test_mean_over_empty_mask_is_zero_with_a_graph() -> None:
    x = torch.tensor([[1.0, float("nan")]], requires_grad=True)
    mean = masked_mean(x, torch.zeros(1, 2, dtype=torch.bool))
    (grad,) = torch.autograd.grad(mean, x)
    assert mean.item() == 0.0
    assert grad.tolist() == [[0.0, 0.0]]


def test_kl_of_a_response_is_a_sum_and_not_a_mean_per_token() -> None:
    lengths = torch.tensor([2, 10])
    mask = torch.arange(10) < lengths[:, None]
    kl = kl_per_token(torch.full((2, 10), -1.0), torch.full((2, 10), -1.1))
    assert masked_sum(kl, mask).mean().item() == pytest.approx(0.6, rel=1e-6)
    assert masked_mean(kl, mask).item() == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "mask", "expected"),
    [
        ([3.0], [True], [0.0]),
        ([3.0, 3.0], [True, True], [0.0, 0.0]),
        ([1.0, 2.0, 9.0, 9.0], [True, True, False, False], [-(0.5**0.5), 0.5**0.5, 0.0, 0.0]),
        ([0.0, 3.0, 6.0], [True, True, True], [-1.0, 0.0, 1.0]),
        ([5.0, 7.0], [False, False], [0.0, 0.0]),
    ],
)
def test_whitening_by_hand(values: list[float], mask: list[bool], expected: list[float]) -> None:
    white = masked_whiten(torch.tensor([values]), torch.tensor([mask]))
    assert white.tolist()[0] == pytest.approx(expected, abs=1e-6)


def test_whitening_without_shift_adds_the_mean_back() -> None:
    x, mask = torch.tensor([[10.0, 13.0, 16.0, 0.0]]), torch.tensor([[True, True, True, False]])
    assert masked_whiten(x, mask, shift_mean=False).tolist()[0] == pytest.approx([12.0, 13.0, 14.0, 0.0])
    one = torch.tensor([[True, False, False, False]])
    assert masked_whiten(x, one, shift_mean=False).tolist()[0] == [10.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [0.1, -7.3, 1e-20, 1e20])
def test_whitening_does_not_blow_up_rounding(value: float) -> None:
    x = torch.full((50, 20), value)
    x[0, 0] = torch.nextafter(x[0, 0], torch.tensor(float("inf")))
    assert masked_whiten(x, torch.ones(50, 20, dtype=torch.bool)).eq(0).all()


@pytest.mark.parametrize("scale", [1e-15, 1e-3, 1e15])
def test_whitening_of_any_scale(scale: float) -> None:
    x = torch.tensor([[0.0, 3.0, 6.0]]) * scale
    white = masked_whiten(x, torch.ones(1, 3, dtype=torch.bool))
    assert white.tolist()[0] == pytest.approx([-1.0, 0.0, 1.0], abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_against_numpy_over_the_real_tokens(seed: int) -> None:
    x, mask = random_case(seed)
    real = x.numpy()[mask.numpy()]
    assert masked_mean(x, mask).item() == pytest.approx(real.mean(), rel=1e-12)
    expected = (real - real.mean()) / real.std(ddof=1)
    np.testing.assert_allclose(masked_whiten(x, mask)[mask].numpy(), expected, rtol=1e-10, atol=1e-12)
    assert masked_whiten(x, mask)[~mask].eq(0).all()


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 9))
def test_padding_width_and_content_change_nothing(seed: int, width: int) -> None:
    x, mask = random_case(seed)
    wide = torch.cat([x.masked_fill(~mask, float("inf")), torch.full((len(x), width), float("nan"))], 1)
    wide_mask = torch.cat([mask, torch.zeros(len(x), width, dtype=torch.bool)], 1)
    torch.testing.assert_close(masked_mean(wide, wide_mask), masked_mean(x, mask), rtol=1e-14, atol=0)
    torch.testing.assert_close(masked_sum(wide, wide_mask), masked_sum(x, mask), rtol=1e-12, atol=1e-12)
    white = masked_whiten(wide, wide_mask)
    assert torch.equal(white[:, : x.shape[1]], masked_whiten(x, mask))
    assert white[:, x.shape[1] :].eq(0).all()


def test_gradients() -> None:
    x, mask = random_case(7)
    x.requires_grad_()
    for op in (masked_mean, masked_sum, masked_whiten):
        assert torch.autograd.gradcheck(lambda y, op=op: op(y, mask), (x,))
