"""Shaped rewards, GAE and the policy loss together: the exact expected gradient over enumerated responses."""

import itertools

import pytest
import torch
from torch import Tensor

from lit_cory.ops import full_kl, gae, kl_per_token, policy_loss, shape_rewards

V, EOS, LIMIT = 3, 0, 3
KL_COEF = 0.3


def responses() -> list[tuple[int, ...]]:
    """Every response of at most LIMIT tokens: it ends with its first EOS or is cut off at the limit."""
    found = []
    for length in range(1, LIMIT + 1):
        for tokens in itertools.product(range(V), repeat=length):
            if EOS not in tokens[:-1] and (tokens[-1] == EOS or length == LIMIT):
                found.append(tokens)
    return found


def states() -> list[tuple[int, ...]]:
    """Every beginning of a response after which another token is drawn."""
    return sorted({tokens[:t] for tokens in responses() for t in range(len(tokens))})


def tables(seed: int) -> tuple[Tensor, Tensor, dict[tuple[int, ...], float]]:
    """Logits of policy and reference in each state [S, V], and a task score for each response."""
    g = torch.Generator().manual_seed(seed)
    policy, ref = (torch.randn(len(states()), V, generator=g, dtype=torch.float64) for _ in range(2))
    scores = torch.randn(len(responses()), generator=g, dtype=torch.float64).tolist()
    return policy.requires_grad_(), ref, dict(zip(responses(), scores, strict=True))


def gathered(logits: Tensor, tokens: tuple[int, ...]) -> Tensor:
    """Log-probabilities [len(tokens)] of the tokens of one response."""
    index = states().index
    return torch.stack([logits.log_softmax(-1)[index(tokens[:t]), tokens[t]] for t in range(len(tokens))])


def true_objective(policy: Tensor, ref: Tensor, scores: dict[tuple[int, ...], float]) -> Tensor:
    """E[score] - KL_COEF * KL over whole responses, by the chain rule over states: KL = sum_s P(s) KL(.|s)."""
    value = policy.new_zeros(())
    for tokens, score in scores.items():
        value = value + gathered(policy, tokens).sum().exp() * score
    for s, state in enumerate(states()):
        reach = gathered(policy, state).sum().exp() if state else policy.new_ones(())
        value = value - KL_COEF * reach * full_kl(policy[s], ref[s])
    return value


def padded(x: Tensor, filler: float) -> Tensor:
    return torch.cat([x, x.new_full((LIMIT - len(x),), filler)]).unsqueeze(0)


def expected_gradient(policy: Tensor, ref: Tensor, scores: dict[tuple[int, ...], float], lam: float) -> Tensor:
    """Sum over all responses of their probability times the gradient of PPO's loss on each alone."""
    total = torch.zeros_like(policy)
    value = torch.randn(LIMIT, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for tokens, score in scores.items():
        logprobs = padded(gathered(policy, tokens), float("nan"))
        mask = torch.arange(LIMIT).unsqueeze(0) < len(tokens)
        kl = kl_per_token(logprobs.detach(), padded(gathered(ref, tokens), float("nan")))
        rewards = shape_rewards(torch.tensor([score], dtype=torch.float64), kl, mask, KL_COEF)
        advantages, _ = gae(rewards, value.unsqueeze(0), mask, gamma=1.0, lam=lam)
        loss = policy_loss(logprobs, logprobs.detach(), advantages, mask).loss * len(tokens)  # mean -> sum
        (grad,) = torch.autograd.grad(-loss, policy)
        total += logprobs.detach()[mask].sum().exp() * grad
    return total


@pytest.mark.parametrize("seed", range(3))
def test_expected_gradient_is_that_of_score_minus_kl(seed: int) -> None:
    # With lambda 1 the values are a baseline alone: whatever they are, the expected gradient is exact.
    policy, ref, scores = tables(seed)
    (expected,) = torch.autograd.grad(true_objective(policy, ref, scores), policy)
    assert expected.norm() > 0.1
    torch.testing.assert_close(expected_gradient(policy, ref, scores, lam=1.0), expected, rtol=0, atol=1e-13)


def test_wrong_values_bias_a_lambda_below_1() -> None:
    policy, ref, scores = tables(0)
    (expected,) = torch.autograd.grad(true_objective(policy, ref, scores), policy)
    assert (expected_gradient(policy, ref, scores, lam=0.5) - expected).norm() > 1e-2
