"""What the processes of one run do together. In a run of one process every function gives back what it was given.

Each function is a collective: all processes must call it, in the same order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lit_cory.errors import UserError

T = TypeVar("T")


def count() -> int:
    """How many processes the run has."""
    return dist.get_world_size() if together() else 1


def own() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if together() else 0


def together() -> bool:
    """Whether there are others to talk to."""
    return dist.is_available() and dist.is_initialized()


def share(items: Sequence[T]) -> list[T]:
    """Every n-th of ``items``, from this process' number on: what it has to do of what all have to."""
    return list(items[own() :: count()])


def gather(values: Tensor) -> Tensor:
    """The rows of all processes: [n, ...] of each, their n may differ, -> [N, ...] in the order of processes."""
    return values if count() == 1 else torch.cat(_gather(values))


def over_all(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """``function`` of the rows of all processes, from which it makes as many; returns those of this one."""
    if count() == 1:
        return function(values)
    parts = _gather(values)
    made: list[Tensor] = list(torch.split(function(torch.cat(parts)), [len(part) for part in parts]))
    return made[own()]


def total(value: Tensor) -> Tensor:
    """The sum over all processes of a tensor that has the same shape in each."""
    if count() == 1:
        return value
    value = value.clone()
    with others_alive():
        dist.all_reduce(value)
    return value


def largest(number: int) -> int:
    """The largest of all processes' numbers."""
    return max(gather_objects(number))


def first(number: int) -> int:
    """The number of the first process."""
    return gather_objects(number)[0]


def gather_objects(item: T) -> list[T]:
    """The items of all processes, in their order."""
    if count() == 1:
        return [item]
    items: list[T | None] = [None] * count()
    with others_alive():
        dist.all_gather_object(items, item)
    return [item for item in items if item is not None]


def add_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace each gradient by the sum over all processes; where one has none, it counts as 0."""
    if count() == 1:
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = total(torch.cat([gradient.flatten() for gradient in gradients]))
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter).clone()


def _gather(values: Tensor) -> list[Tensor]:
    """The rows of each process."""
    lengths = gather_objects(len(values))
    padded = values.new_zeros(max(lengths), *values.shape[1:])
    padded[: len(values)] = values.detach()
    parts = [torch.empty_like(padded) for _ in lengths]
    with others_alive():
        dist.all_gather(parts, padded)
    return [part[:length] for part, length in zip(parts, lengths, strict=True)]


@contextmanager
def others_alive() -> Iterator[None]:
    """Say in one line that another process is gone, where a collective fails for it."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"process {own()} of {count()} lost another one ({str(error).splitlines()[0][:200]}); see what that one "
            "said last, then go on from the last checkpoint with fit --resume RUN"
        ) from error
