"""Team score: what each role is paid of everyone's task scores."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from lit_cory.ops._inputs import promote

TeamScore = Literal["sum", "own", "mean", "max", "difference", "causal", "weighted"]
TEAM_SCORES: tuple[TeamScore, ...] = get_args(TeamScore)


def team_scores(scores: Tensor, kind: TeamScore, weights: Tensor | Sequence[Sequence[float]] | None = None) -> Tensor:
    """What each role is paid: task scores [N, B] in role order -> [N, B].

    ``sum`` (Ma, Hu et al. 2024, arXiv 2410.06101), ``mean`` and ``max`` pay all roles alike; ``own`` is no team;
    ``difference`` is competition, own score minus the mean of the others' (alone: own). ``causal`` pays role k the
    scores from k on, those its answer can influence: the earlier ones don't depend on it, so they add nothing to the
    expected gradient of ``sum``, only noise (unless they happen to offset the later ones). ``weighted`` takes an N x N
    matrix whose row k says how much role k is paid of each role's score.

    Raises:
        ValueError: unknown kind, or weights that don't fit it.
    """
    if scores.ndim != 2:
        raise ValueError(f"scores must be [N, B], roles by prompts, got {list(scores.shape)}")
    if weights is not None and kind != "weighted":
        raise ValueError(f"weights belong to the team score 'weighted', not to {kind!r}")
    scores = promote(scores)
    if kind == "max":
        return scores.amax(0).expand_as(scores).clone()
    share = _weights(weights, scores) if kind == "weighted" else _share(kind, scores)
    share = share.unsqueeze(-1)
    # Filled, since a score that is not finite must not reach a role that is paid nothing of it.
    return (share * scores).masked_fill(share == 0, 0).sum(1)


def _share(kind: str, scores: Tensor) -> Tensor:
    """[N, N], row k = what role k is paid of each role's score."""
    n = len(scores)
    ones, own = scores.new_ones(n, n), torch.eye(n, dtype=scores.dtype, device=scores.device)
    match kind:
        case "sum":
            return ones
        case "own":
            return own
        case "mean":
            return ones / n
        case "difference":
            return own - (ones - own) / max(n - 1, 1)
        case "causal":
            return ones.triu()
    raise ValueError(f"unknown team score {kind!r}: use one of {', '.join(TEAM_SCORES)}")


def _weights(weights: Tensor | Sequence[Sequence[float]] | None, scores: Tensor) -> Tensor:
    """The weights as [N, N], checked."""
    n = len(scores)
    try:
        matrix = None if weights is None else torch.as_tensor(weights, dtype=scores.dtype, device=scores.device)
    except (TypeError, ValueError):  # ragged, or not numbers
        matrix = None
    if matrix is None or matrix.shape != (n, n):
        others = ", ".join(kind for kind in TEAM_SCORES if kind != "weighted")
        raise ValueError(f"the team score 'weighted' needs {n} rows of {n} weights; others are {others}")
    return matrix
