"""Baselines from several responses to the same query."""

from torch import Tensor

from lit_cory.ops._inputs import promote


def leave_one_out(returns: Tensor, size: int) -> Tensor:
    """Each return minus the mean of the others of its group: [B] -> [B] (RLOO, arXiv 2402.14740, section 3.2).

    The baseline of a response doesn't depend on it, so the expected policy gradient stays what it is.

    Args:
        returns: [B], each ``size`` in a row a group.
        size: responses to a query, at least 2.

    Raises:
        ValueError: groups of one, or B that isn't a multiple of ``size``.
    """
    groups = _groups(returns, size)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (size - 1)
    return (groups - others).flatten()


def group_whiten(returns: Tensor, size: int, eps: float = 1e-4) -> Tensor:
    """Each return minus the mean of its group, over its deviation: [B] -> [B] (GRPO, arXiv 2402.03300, section 4.1.2).

    Args:
        returns: [B], each ``size`` in a row a group.
        size: responses to a query, at least 2.
        eps: added to the deviation (n - 1), which is 0 where all of a group are paid alike.

    Raises:
        ValueError: as :func:`leave_one_out`.
    """
    groups = _groups(returns, size)
    deviation = groups.std(dim=1, keepdim=True)
    return ((groups - groups.mean(dim=1, keepdim=True)) / (deviation + eps)).flatten()


def _groups(returns: Tensor, size: int) -> Tensor:
    """The returns as [B / size, size]."""
    if size < 2 or returns.ndim != 1 or len(returns) % size:
        raise ValueError(f"groups of {size} can't be made of returns {list(returns.shape)}; a group has 2 or more")
    return promote(returns).reshape(-1, size)
