"""Baselines from groups, by hand."""

import pytest
import torch

from lit_cory import ops


def test_leave_one_out_by_hand() -> None:
    """Of 1, 2, 6 the others' means are 4, 3.5, 1.5; of 0, 0, 3 they are 1.5, 1.5, 0."""
    advantages = ops.leave_one_out(torch.tensor([1.0, 2.0, 6.0, 0.0, 0.0, 3.0]), 3)
    assert advantages.tolist() == [-3.0, -1.5, 4.5, -1.5, -1.5, 3.0]


def test_group_whiten_by_hand() -> None:
    """1, 3 have mean 2 and deviation sqrt(2); 5, 5 have none: 0."""
    advantages = ops.group_whiten(torch.tensor([1.0, 3.0, 5.0, 5.0], dtype=torch.float64), 2, eps=0.0)
    assert advantages[:2].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-12)
    assert ops.group_whiten(torch.tensor([5.0, 5.0]), 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("op", [ops.leave_one_out, ops.group_whiten])
def test_groups_that_cannot_be_made(op: object) -> None:
    assert callable(op)
    for returns, size in ((torch.zeros(4), 1), (torch.zeros(5), 2), (torch.zeros(2, 2), 2)):
        with pytest.raises(ValueError, match="can't be made"):
            op(returns, size)


def test_a_baseline_of_others_leaves_the_expected_gradient_alone() -> None:
    """Exact, over all pairs of actions of a three-armed policy: with and without it the gradients are equal."""
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    pay = torch.tensor([1.0, 0.0, 4.0], dtype=torch.float64)
    logprobs = logits.log_softmax(0)
    plain = paired = torch.zeros((), dtype=torch.float64)
    for a in range(3):
        for b in range(3):
            chance = (logprobs[a] + logprobs[b]).exp().detach()
            returns = torch.stack([pay[a], pay[b]])
            own = torch.stack([logprobs[a], logprobs[b]])
            plain = plain + chance * (returns * own).mean()
            paired = paired + chance * (ops.leave_one_out(returns, 2) * own).mean()
    (expected,) = torch.autograd.grad(plain, logits, retain_graph=True)
    (found,) = torch.autograd.grad(paired, logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
