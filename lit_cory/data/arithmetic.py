"""Word problems made on the spot, in the form of GSM8K: a question, a worked solution, and the answer as a number."""

import random
from dataclasses import dataclass
from itertools import count
from typing import Literal

from transformers import PreTrainedTokenizerBase

from lit_cory.data.base import QueryDataModule
from lit_cory.data.stories import LEVELS, load_stories
from lit_cory.errors import UserError
from lit_cory.types import Query

MOST = {1: 100, 2: 200, 3: 400, 4: 800}
"""The largest number in a problem of each level, computed ones included."""

MOST_PROBLEMS = 100_000
"""As many of each split are certainly to be had without a question coming twice."""


@dataclass(frozen=True)
class Problem:
    """A word problem.

    Attributes:
        question: the story and what is asked.
        solution: a line for each step, with its calculation as in ``3*4 = <<3*4=12>>12``, and ``#### 12`` at the end.
        answer: a positive integer.
    """

    question: str
    solution: str
    answer: int


def problem(seed: int, split: Literal["train", "test"], index: int, level: int) -> Problem:
    """The problem number ``index`` of a split, a pure function of its arguments.

    There is one for every index; they go round the stories of the split, and no story is in both splits. The answer is
    the exact value of the story's expression tree, of ``level`` operations. Rarely, a question comes back at another
    index.

    Raises:
        ValueError: a level that isn't 1 to 4, or another split.
    """
    if level not in MOST or split not in ("train", "test"):
        raise ValueError(f"split={split}, level={level}: must be train or test, and 1 to {LEVELS}")
    stories = load_stories(split)
    frame = stories[index % len(stories)].frames[level - 1]
    question, lines, answer = frame.draw(random.Random(f"{seed} {split} {index} {level}"), MOST[level])
    return Problem(question, "\n".join([*lines, f"#### {answer}"]), answer)


class ArithmeticDataModule(QueryDataModule):
    """Word problems that ship with lit_cory; nothing is fetched.

    They tell over 70 everyday stories. Those of ``stories_train.txt`` are to train on and those of ``stories_test.txt``
    are held out, whatever the seed: a held-out problem differs from all training problems in its story, not only in its
    numbers. The problems of a split go round its stories, so that each story comes equally often, and no question comes
    twice.

    Args:
        level: arithmetic steps of a problem, 1 to 4; or the least and the most of them, each as often as the others.
        train_size: how many problems to train on.
        test_size: how many are held out.
        batch_size: see :class:`QueryDataModule`, as for the arguments below.
        val_batch_size: see there.
        val_size: see there.
        seed: see there; it draws the problems too, those held out included.
        tokenizer: see there; not needed here.

    Raises:
        UserError: a number out of range.
    """

    source = "bundled:arithmetic"

    def __init__(
        self,
        level: int | tuple[int, int] = 1,
        train_size: int = 4000,
        test_size: int = 400,
        batch_size: int = 16,
        val_batch_size: int = 64,
        val_size: int = 256,
        seed: int = 0,
        tokenizer: str | PreTrainedTokenizerBase = "",
    ) -> None:
        super().__init__(batch_size, val_batch_size, val_size, seed, tokenizer)
        least, most = (level, level) if isinstance(level, int) else level
        if not 1 <= least <= most <= LEVELS:
            raise UserError(f"data.level={level}: must be 1 to {LEVELS}, or the least and the most in this range")
        for key, size in {"train_size": train_size, "test_size": test_size}.items():
            if not 1 <= size <= MOST_PROBLEMS:
                raise UserError(f"data.{key}={size}: must be 1 to {MOST_PROBLEMS}")
        self.levels, self.train_size, self.test_size = range(least, most + 1), train_size, test_size

    def load_queries(self) -> tuple[list[Query], list[Query]]:
        """Questions with their answers; ``row`` is the index of the problem."""
        return self._queries("train", self.train_size), self._queries("test", self.test_size)

    def _queries(self, split: Literal["train", "test"], size: int) -> list[Query]:
        queries: dict[str, Query] = {}
        rounds = len(load_stories(split))
        for index in count():
            if len(queries) == size:
                break
            level = self.levels[index // rounds % len(self.levels)]  # each round through the stories has one level
            made = problem(self.seed, split, index, level)
            queries.setdefault(made.question, Query(made.question, index, str(made.answer)))
        return list(queries.values())
