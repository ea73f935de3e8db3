"""Slow, plain float64 versions of the equations, written from their definitions without the package under test."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def softmax(logits: Array) -> Array:
    p = np.exp(logits - logits.max())
    return np.asarray(p / p.sum(), dtype=np.float64)


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def score_function_gradient(p: Array, f: Array) -> Array:
    """Sum over actions of p(a) f(a) grad log p(a) for a softmax over its own logits: p (f - E f)."""
    return np.asarray(p * (f - p @ f), dtype=np.float64)


def gae_by_definition(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The O(T^2) sum over one row of real tokens."""
    after = [*values[1:], 0.0]
    deltas = [r + gamma * nxt - v for r, v, nxt in zip(rewards, values, after, strict=True)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


def policy_loss_by_loops(
    logprobs: Array, old: Array, advantages: Array, mask: npt.NDArray[np.bool_], clip: float
) -> tuple[float, float, float]:
    losses, binds, kls = [], [], []
    for index in zip(*np.nonzero(mask), strict=True):
        ratio, a = np.exp(logprobs[index] - old[index]), advantages[index]
        held = min(max(ratio, 1 - clip), 1 + clip)
        losses.append(-min(ratio * a, held * a))
        binds.append(held * a < ratio * a)
        kls.append(ratio - 1 - np.log(ratio))
    return float(np.mean(losses)), float(np.mean(binds)), float(np.mean(kls))
