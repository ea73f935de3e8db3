import math
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from lit_cory.ops import KL_ESTIMATORS, KLEstimator, full_kl, kl_per_token, token_logprobs

SEEDS = st.integers(0, 10_000)


def two_policies(vocabulary: int = 50, distance: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    ref = torch.randn(vocabulary, generator=g, dtype=torch.float64)
    return ref + distance * torch.randn(vocabulary, generator=g, dtype=torch.float64), ref


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [1.0, -1.0, 0.0]),
        ("k2", [0.5, 0.5, 0.0]),
        ("k3", [math.exp(-1), math.e - 2, 0.0]),
        ("abs", [1.0, 1.0, 0.0]),
    ],
)
def test_estimators_by_hand(estimator: KLEstimator, expected: list[float]) -> None:
    logprobs, ref = torch.tensor([[-1.0, -3.0, -2.0]]), torch.tensor([[-2.0, -2.0, -2.0]])
    assert kl_per_token(logprobs, ref, estimator).tolist()[0] == pytest.approx(expected, rel=1e-6)


def test_default_is_k1() -> None:
    assert kl_per_token(torch.tensor([[-1.0]]), torch.tensor([[-1.5]])).item() == 0.5


def test_plain_and_absolute_means_differ() -> None:
    logprobs, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -1.0]])
    assert kl_per_token(logprobs, ref, "k1").mean().item() == 0.0
    assert kl_per_token(logprobs, ref, "abs").mean().item() == 1.0


def test_full_kl_by_hand() -> None:
    # p = (3/4, 1/4) against q = (1/2, 1/2), and the reverse: the direction matters.
    p, q = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[5.0, 5.0]])
    assert full_kl(p, q).item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-6)
    assert full_kl(q, p).item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([(), (4,), (2, 3)]))
def test_full_kl_against_scipy(seed: int, lead: tuple[int, ...]) -> None:
    g = torch.Generator().manual_seed(seed)
    logits, ref = (3 * torch.randn(*lead, 9, generator=g, dtype=torch.float64) for _ in range(2))
    expected = stats.entropy(special.softmax(logits.numpy(), -1), special.softmax(ref.numpy(), -1), axis=-1)
    np.testing.assert_allclose(full_kl(logits, ref).numpy(), expected, rtol=1e-10)


@settings(max_examples=50, deadline=None)
@given(st.floats(-20, 20), st.floats(-20, 20))
def test_k2_k3_and_abs_are_not_negative_and_vanish_at_equality_alone(a: float, b: float) -> None:
    logprobs, ref = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    estimators: tuple[KLEstimator, ...] = ("k2", "k3", "abs")
    for estimator in estimators:
        kl = kl_per_token(logprobs, ref, estimator).item()
        assert kl >= -1e-15 * abs(a - b)
        assert (kl > 0) or abs(a - b) < 1e-7


def test_equal_policies_have_no_kl() -> None:
    logits = torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0))
    logprobs = token_logprobs(logits, torch.zeros(3, 4, dtype=torch.long))
    assert full_kl(logits, logits.clone()).eq(0).all()
    for estimator in KL_ESTIMATORS:
        assert kl_per_token(logprobs, logprobs.clone(), estimator).eq(0).all()


def test_k3_keeps_its_digits_near_equality() -> None:
    kl = kl_per_token(torch.tensor([[-1.0]]), torch.tensor([[-1.0 - 2**-13]]), "k3")
    assert kl.item() == pytest.approx(2**-27, rel=1e-3)  # d^2 / 2 with d = 2^-13; float32 exp(-d) - 1 is off by 5e-4 d


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_sampled_kl_agrees_with_the_exact_one(estimator: KLEstimator) -> None:
    logits, ref = two_policies()
    tokens = torch.multinomial(logits.softmax(-1), 4000, replacement=True, generator=torch.Generator().manual_seed(9))
    rows = torch.Size((4000, 50))
    kl = kl_per_token(token_logprobs(logits.expand(rows), tokens), token_logprobs(ref.expand(rows), tokens), estimator)
    exact = full_kl(logits, ref).item()
    assert exact > 0.02
    assert abs(kl.mean().item() - exact) < 3 * kl.std().item() / 4000**0.5


def test_sampled_kl_under_top_k_is_wrong() -> None:
    # Why filtered sampling warns: its tokens are not from the policy that is scored, and the estimate says nothing.
    logits, ref = two_policies()
    top = logits.topk(5)
    drawn = torch.multinomial(
        top.values.softmax(-1), 4000, replacement=True, generator=torch.Generator().manual_seed(9)
    )
    tokens, rows = top.indices[drawn], torch.Size((4000, 50))
    kl = kl_per_token(token_logprobs(logits.expand(rows), tokens), token_logprobs(ref.expand(rows), tokens))
    assert abs(kl.mean().item() - full_kl(logits, ref).item()) > 10 * kl.std().item() / 4000**0.5


def test_k1_can_be_negative_where_the_reference_is_surer() -> None:
    assert kl_per_token(torch.tensor([[-3.0]]), torch.tensor([[-1.0]])).item() == -2.0


def test_impossible_tokens() -> None:
    inf = torch.inf
    logits = torch.tensor([0.0, 0.0, -inf], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([math.log(3.0), 0.0, -inf], dtype=torch.float64)
    kl = full_kl(logits, ref)
    assert kl.item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))
    (grad,) = torch.autograd.grad(kl, logits)
    assert grad.isfinite().all()
    assert full_kl(torch.zeros(3), torch.tensor([0.0, 0.0, -inf])).item() == inf


def test_gradients() -> None:
    logits, ref = two_policies(6, 1.0)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: full_kl(x, ref), (logits,))
    a = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[-1.5, -0.5]], dtype=torch.float64)
    for estimator in KL_ESTIMATORS:
        assert torch.autograd.gradcheck(lambda x, e=estimator: kl_per_token(x, b, e), (a,))


def test_bad_input() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="k1, k2, k3, abs"):
        kl_per_token(x, x, cast(KLEstimator, "full"))
    with pytest.raises(ValueError, match=r"ref_logprobs \[2, 1\]"):
        kl_per_token(x, x[:, :1])
    with pytest.raises(ValueError, match=r"ref_logits \[1, 3\]"):
        full_kl(x, x[:1])
