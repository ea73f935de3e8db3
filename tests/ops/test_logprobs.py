import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from lit_cory.ops import entropy, token_logprobs


def test_logprobs_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [math.log(7.0), 0.0]]])
    logprobs = token_logprobs(logits, torch.tensor([[1, 1]]))
    assert logprobs.tolist()[0] == pytest.approx([math.log(0.75), math.log(0.125)], rel=1e-6)


def test_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -torch.inf, -torch.inf], [200.0, 0.0, 0.0, 0.0]])
    assert entropy(logits).tolist() == pytest.approx([math.log(4), math.log(2), 0.0], rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(), (5,), (2, 3)]), st.sampled_from([1e-3, 1.0, 50.0]))
def test_against_scipy(seed: int, lead: tuple[int, ...], scale: float) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(*lead, 11, generator=g, dtype=torch.float64) * scale
    tokens = torch.randint(0, 11, lead, generator=g)
    expected = np.take_along_axis(special.log_softmax(logits.numpy(), -1), tokens.numpy()[..., None], -1)[..., 0]
    np.testing.assert_allclose(token_logprobs(logits, tokens).numpy(), expected, rtol=1e-12, atol=1e-14)
    nats = stats.entropy(special.softmax(logits.numpy(), -1), axis=-1)
    np.testing.assert_allclose(entropy(logits).numpy(), nats, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_softmax_of_half_precision_logits_runs_in_float32(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    logits = (torch.randn(64, 1000, generator=g) * 4).to(dtype)
    tokens = logits.argmax(-1)
    exact = special.log_softmax(logits.double().numpy(), -1)[np.arange(64), tokens.numpy()]
    logprobs = token_logprobs(logits, tokens)
    assert logprobs.dtype == torch.float32
    assert (logprobs <= 0).all()
    np.testing.assert_allclose(logprobs.numpy(), exact, rtol=0, atol=2e-6)
    # The same in half precision is off by far more, so the tolerance above tells the two apart.
    naive = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0].double().numpy()
    assert np.abs(naive - exact).max() > 1e-4


def test_rows_do_not_depend_on_their_batch() -> None:
    logits = torch.randn(6, 7, 33, generator=torch.Generator().manual_seed(1))
    tokens = torch.randint(0, 33, (6, 7), generator=torch.Generator().manual_seed(2))
    flat = token_logprobs(logits.reshape(-1, 33), tokens.reshape(-1))
    assert torch.equal(flat.reshape(6, 7), token_logprobs(logits, tokens))
    assert torch.equal(token_logprobs(logits[2:4], tokens[2:4]), token_logprobs(logits, tokens)[2:4])


def test_gradients() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    tokens = torch.tensor([[0, 1, 2], [3, 4, 0]])
    assert torch.autograd.gradcheck(lambda x: token_logprobs(x, tokens), (logits,))
    assert torch.autograd.gradcheck(entropy, (logits,))


def test_impossible_tokens_leave_finite_gradients() -> None:
    logits = torch.tensor([1.0, 2.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(entropy(logits), logits)
    without = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(entropy(without), without)
    assert grad.tolist() == pytest.approx([*expected.tolist(), 0.0], abs=1e-15)


@pytest.mark.parametrize("shape", [(2, 1), (2,), (2, 3, 5)])
def test_tokens_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="tokens"):
        token_logprobs(torch.zeros(2, 3, 5), torch.zeros(shape, dtype=torch.long))
