import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.ops import shape_rewards


def test_by_hand() -> None:
    rewards = shape_rewards(
        torch.tensor([10.0, -3.0]),
        torch.tensor([[0.5, -1.0, 2.0], [4.0, 9.0, 9.0]]),
        torch.tensor([[True, True, True], [True, False, False]]),
        kl_coef=0.2,
    )
    assert rewards[0].tolist() == pytest.approx([-0.1, 0.2, 9.6], rel=1e-6)
    assert rewards[1].tolist() == pytest.approx([-3.8, 0.0, 0.0], rel=1e-6)


def test_a_lone_end_token_takes_the_score() -> None:
    mask = torch.tensor([[True, False], [True, False]])
    assert shape_rewards(torch.tensor([1.0, 2.0]), torch.zeros(2, 2), mask, 0.1).tolist() == [[1.0, 0.0], [2.0, 0.0]]


def test_last_is_the_last_real_token_of_any_mask() -> None:
    mask = torch.tensor([[False, True, False, True, False], [False, False, False, False, True], [False] * 5])
    rewards = shape_rewards(torch.tensor([7.0, 8.0, 9.0]), torch.zeros(3, 5), mask, 0.1)
    assert rewards.tolist() == [[0, 0, 0, 7, 0], [0, 0, 0, 0, 8], [0, 0, 0, 0, 0]]


def test_equal_policies_pay_the_score_alone() -> None:
    mask = torch.tensor([[True, True]])
    assert shape_rewards(torch.tensor([-0.0]), torch.zeros(1, 2), mask, 5.0).eq(0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 5))
def test_a_row_sums_to_the_penalised_score_whatever_the_padding(seed: int, width: int) -> None:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (4,), generator=g)
    mask = torch.arange(7 + width) < lengths[:, None]
    score = torch.randn(4, generator=g, dtype=torch.float64)
    kl = torch.full((4, 7 + width), float("nan"), dtype=torch.float64)
    kl[:, :7] = torch.randn(4, 7, generator=g, dtype=torch.float64)
    rewards = shape_rewards(score, kl, mask, 0.3)
    for b, length in enumerate(lengths.tolist()):
        assert rewards[b].sum().item() == pytest.approx(score[b].item() - 0.3 * sum(kl[b, :length].tolist()), abs=1e-12)
        assert rewards[b, length:].eq(0).all()


def test_gradients() -> None:
    score = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    kl = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    assert torch.autograd.gradcheck(lambda s, k: shape_rewards(s, k, mask, 0.3), (score, kl))


@pytest.mark.parametrize("shape", [(1,), (2, 1), ()])
def test_score_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="score"):
        shape_rewards(torch.zeros(shape), torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), 0.1)
