"""What a task is: prompts, score and metrics of one job."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from lit_cory.types import Prompt, Query


class Task(ABC):
    """What agents are asked and paid for. A new job is one subclass in one file, and one YAML."""

    def prepare(self, device: torch.device) -> None:
        """Load what scoring needs (a reward model, say) onto ``device``. Called once, after the data was checked."""
        del device

    @abstractmethod
    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        """What an agent reads: the query, and the answers given before it in role order (none for the pioneer)."""

    @abstractmethod
    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        """One score a response, higher is better; read from the response, never from text in another agent's prompt."""
