"""What a task is: prompts, score and metrics of one job."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from lit_cory.types import Prompt, Query


class Verdict(NamedTuple):
    """What an answer comes to, in a task where answers are right or wrong.

    Attributes:
        correct: whether it is right.
        answer: what it answers, equal texts for equal answers, which can so be voted on; None where it gives none.
        given: how it gives its answer, one of ``Task.WAYS``.
        ran_on: whether it goes on to answer more than once.
    """

    correct: bool
    answer: str | None
    given: str
    ran_on: bool


class Task(ABC):
    """What agents are asked and paid for. A new job is one subclass in one file, and one YAML.

    Attributes:
        WAYS: in which an answer may be given, for the shares that evaluation reports.
    """

    WAYS: tuple[str, ...] = ()

    def prepare(self, device: torch.device) -> None:
        """Load what scoring needs (a reward model, say) onto ``device``. Called once, after the data was checked."""
        del device

    @abstractmethod
    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        """What an agent reads: the query, and the answers given before it in role order (none for the pioneer)."""

    @abstractmethod
    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        """One score a response, higher is better; read from the response, never from text in another agent's prompt."""

    def verdicts(self, queries: Sequence[Query], responses: Sequence[str]) -> list[Verdict]:
        """A verdict a response, where answers are right or wrong; none at all (the default) where they are not."""
        del queries, responses
        return []
