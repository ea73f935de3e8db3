"""What all ops promise alike: dtypes, masks, shapes, no change in place, nothing through masked places."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from lit_cory import ops

MASK = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])

Op = Callable[..., Tensor | tuple[Tensor, ...]]

MASKED: dict[str, tuple[Op, int]] = {
    "masked_mean": (ops.masked_mean, 1),
    "masked_sum": (ops.masked_sum, 1),
    "masked_whiten": (ops.masked_whiten, 1),
    "shape_rewards": (lambda kl, mask: ops.shape_rewards(kl.new_ones(len(kl)), kl, mask, 0.2), 1),
    "gae": (ops.gae, 2),
    "policy_loss": (ops.policy_loss, 3),
    "value_loss": (ops.value_loss, 3),
    "value_loss with clip": (partial(ops.value_loss, clip=0.2), 3),
}

UNMASKED: dict[str, tuple[Op, list[tuple[int, ...]]]] = {
    "token_logprobs": (lambda x: ops.token_logprobs(x, torch.zeros(3, 4, dtype=torch.long)), [(3, 4, 5)]),
    "entropy": (ops.entropy, [(3, 4, 5)]),
    "full_kl": (ops.full_kl, [(3, 4, 5), (3, 4, 5)]),
    **{e: (lambda a, b, e=e: ops.kl_per_token(a, b, e), [(3, 4), (3, 4)]) for e in ops.KL_ESTIMATORS},
    **{k: (lambda x, k=k: ops.team_scores(x, k), [(3, 4)]) for k in ops.TEAM_SCORES if k != "weighted"},
    "weighted": (lambda x: ops.team_scores(x, "weighted", torch.eye(3).tolist()), [(3, 4)]),
}

CALLS: dict[str, tuple[Op, list[tuple[int, ...]]]] = {
    **{name: (lambda *x, op=op: op(*x, MASK), [(3, 4)] * n) for name, (op, n) in MASKED.items()},
    **UNMASKED,
}


def tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=g, dtype=torch.float64).to(dtype) for shape in shapes]


def results(outcome: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outcome,) if isinstance(outcome, Tensor) else tuple(outcome)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLS)
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    op, shapes = CALLS[name]
    inputs = tensors(shapes, dtype)
    expected = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    outcome = results(op(*inputs))
    assert {x.dtype for x in outcome} == {expected}
    for x, promoted in zip(outcome, results(op(*(x.to(expected) for x in inputs))), strict=True):
        assert torch.equal(x, promoted)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_changed_in_place(name: str) -> None:
    op, shapes = CALLS[name]
    inputs, mask = tensors(shapes), MASK.clone()
    copies = [x.clone() for x in inputs]
    for x in results(op(*inputs)):
        x.add_(1)  # nor is a result a view of an input
    assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))
    assert torch.equal(MASK, mask)


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), -float("inf"), 1e300])
@pytest.mark.parametrize("name", MASKED)
def test_masked_places_reach_neither_results_nor_gradients(name: str, junk: float) -> None:
    op, n = MASKED[name]
    clean = tensors([(3, 4)] * n)

    def run(filler: float) -> list[Tensor]:
        inputs = [x.masked_fill(~MASK, filler).requires_grad_() for x in clean]
        outcome = results(op(*inputs, MASK))
        total = torch.stack([(x * (1 + x)).sum() for x in outcome]).sum()
        return [*outcome, *(g for g in torch.autograd.grad(total, inputs, allow_unused=True) if g is not None)]

    found = run(junk)
    assert len(found) > len(results(op(*clean, MASK)))  # gradients are among them
    for x, expected in zip(found, run(0.0), strict=True):
        assert torch.equal(x, expected)
        if x.shape == MASK.shape:
            assert x[~MASK].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
@pytest.mark.parametrize("name", MASKED)
def test_masks_are_bool(name: str, dtype: torch.dtype) -> None:
    op, n = MASKED[name]
    with pytest.raises(TypeError, match=r"^mask must be bool, True = a real token, got torch\.\w+$"):
        op(*tensors([(3, 4)] * n), MASK.to(dtype))


@pytest.mark.parametrize("shape", [(3, 1), (1, 4), (4,), (3, 5), (3, 4, 1)])
@pytest.mark.parametrize("name", MASKED)
def test_masks_are_not_broadcast(name: str, shape: tuple[int, ...]) -> None:
    op, n = MASKED[name]
    with pytest.raises(ValueError, match="shapes must be equal") as caught:
        op(*tensors([(3, 4)] * n), torch.ones(shape, dtype=torch.bool))
    assert f"mask {list(shape)}" in str(caught.value)


@pytest.mark.parametrize("name", [name for name, (_, n) in MASKED.items() if n > 1])
def test_inputs_are_not_broadcast(name: str) -> None:
    op, n = MASKED[name]
    for i in range(n):
        inputs = tensors([(3, 4)] * n)
        inputs[i] = inputs[i][:, :1]
        with pytest.raises(ValueError, match=r"shapes must be equal, got .*\[3, 1\]"):
            op(*inputs, MASK)


def test_all_names_are_exported() -> None:
    assert all(hasattr(ops, name) for name in ops.__all__)
    assert sorted(ops.__all__) == sorted({n for n in dir(ops) if callable(getattr(ops, n)) or n.isupper()})
