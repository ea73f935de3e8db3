"""What code and settings of others may do wrong, each told in one line that names who was at it and the remedy."""

import traceback
import warnings
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lit_cory.errors import UserError
from lit_cory.types import Query


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put ``where`` before the message of a UserError that is raised inside the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


@contextmanager
def one_line_for(what: str) -> Iterator[None]:
    """Tell in one line of whatever makers of parsers, trainers and tasks raise for values that they can't use.

    Raises:
        UserError: for whatever is raised inside the block.
    """
    try:
        yield
    except (UserError, ArgumentError):
        raise
    except Exception as error:
        told = next((cause for cause in causes(error) if isinstance(cause, UserError)), None)
        raise told or UserError(f"{what} {unusable(error)}; mend the key that this is about") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """What led to an error, the nearest first: parsers put what a class raises behind an error of their own."""
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def unusable(error: Exception) -> str:
    """That something can't be used, and why."""
    why = str(error).strip().splitlines() or ["no reason given"]
    return f"can't be used ({type(error).__name__}: {why[0]})"


@contextmanager
def task_call(task: object, method: str) -> Iterator[None]:
    """Tell in one line of what a task's method raises, and where in its code.

    Raises:
        UserError: for whatever is raised inside the block.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{type(task).__name__}.{method} raised {why} ({Path(frame.filename).name}, line {frame.lineno}); mend the "
            "task, then resume the run"
        ) from error


def checked_scores(task: object, scores: Any, queries: Sequence[Query], who: str) -> Tensor:
    """A task's scores as [B] fp32, on the CPU. Warns of those that are no finite numbers: their updates are skipped.

    Args:
        task: whose they are.
        scores: what it gave.
        queries: the B queries that were answered.
        who: answered them.

    Raises:
        UserError: where they are not one number an answer.
    """
    name = f"{type(task).__name__}.score"
    try:
        values = torch.as_tensor(scores, dtype=torch.float32).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{name} gave no list of numbers ({error}); let it give one number an answer") from error
    if values.ndim != 1 or len(values) != len(queries):
        given = len(values) if values.ndim == 1 else f"an array of shape {list(values.shape)} of"
        raise UserError(f"{name} gave {given} scores for {len(queries)} answers; let it give one number an answer")
    odd = (~values.isfinite()).nonzero().flatten().tolist()
    if odd:
        rows = f"{values[odd[0]]:g} for the answer to row {queries[odd[0]].row}"
        warnings.warn(
            f"{who}: {name} gave {len(odd)} of {len(values)} scores that are not finite ({rows})", stacklevel=2
        )
    return values
