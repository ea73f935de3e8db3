"""Word problems with worked solutions that end in ``#### N``: GSM8K from the hub, or local files of that form."""

import re
from collections.abc import Iterable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from lit_cory.data.base import QueryDataModule
from lit_cory.data.files import READERS, Row, existing, is_local, part_files, read_files, read_hub
from lit_cory.errors import UserError
from lit_cory.types import Query

MARKER = "####"

_GOLD = re.compile(r"[-+\N{MINUS SIGN}]?\$?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+|/0*[1-9][0-9]*)?%?")


class Gsm8kDataModule(QueryDataModule):
    """A query is a question; its gold is what follows ``####`` in the answer, as the source writes it ("1,080").

    The worked solution before the marker is not used. Each row must have a question, and exactly one marker with a
    number after it: a gold taken from anywhere else would often be wrong.

    Sources:

    - an id on the hub with parts ``train`` and ``test`` (held out), ``openai/gsm8k`` or one like it;
    - a folder with ``train`` and ``test`` files as .parquet, .csv or .jsonl;
    - a single file of those kinds: ``val_fraction`` of its rows, chosen by ``seed``, is held out.

    Args:
        source: where problems come from.
        subset: of the hub's data set, null where it has none; local files have none.
        question_column: the column that holds the question.
        answer_column: the column that holds the solution with the marker.
        val_fraction: held-out part of a source that is a single file.
        batch_size: see :class:`QueryDataModule`, as for the arguments below.
        val_batch_size: see there.
        val_size: see there.
        seed: see there.
        tokenizer: see there; problems are kept whole, so it isn't read.

    Raises:
        UserError: a number out of range; in ``setup``, whatever is wrong with the source, a row with its number (the
            first is row 0, as in all messages) and file.
    """

    def __init__(
        self,
        source: str = "openai/gsm8k",
        subset: str | None = "main",
        question_column: str = "question",
        answer_column: str = "answer",
        val_fraction: float = 0.1,
        batch_size: int = 16,
        val_batch_size: int = 64,
        val_size: int = 256,
        seed: int = 0,
        tokenizer: str | PreTrainedTokenizerBase = "",
    ) -> None:
        super().__init__(batch_size, val_batch_size, val_size, seed, tokenizer)
        if not 0 < val_fraction < 1:
            raise UserError(f"data.val_fraction={val_fraction}: must be above 0 and below 1")
        if source == "bundled:arithmetic":
            raise UserError(
                f"data.source={source}: these problems are a source of their own: --data ArithmeticDataModule"
            )
        self.source, self.subset, self.val_fraction = source, subset, val_fraction
        self.columns = {"data.question_column": question_column, "data.answer_column": answer_column}

    def load_queries(self) -> tuple[list[Query], list[Query]]:
        """Problems of the whole source, to train on and held out."""
        if not is_local(self.source):
            return self._hub("train"), self._hub("test")
        path = existing(self.source)
        if path.is_dir():
            return self._files(part_files(path, "train")), self._files(part_files(path, "test"))
        if path.suffix not in READERS:
            raise UserError(f"data.source={path}: a file must be one of {', '.join(READERS)}; convert it")
        return self.split(self._files([path]), self.val_fraction)

    def _hub(self, part: str) -> list[Query]:
        return problems(read_hub(self.source, part, self.columns, self.subset), f"{self.source} ({part})")

    def _files(self, paths: Iterable[Path]) -> list[Query]:
        queries: list[Query] = []
        for path in paths:  # one at a time, so that messages count rows within the file they name
            queries += problems(read_files([path], self.columns), str(path), len(queries))
        return queries


def problems(rows: Iterable[Row], source: str, first: int = 0) -> list[Query]:
    """Pairs of question and answer as queries.

    Args:
        rows: question and answer of each.
        source: the file they come from, for messages.
        first: ``Query.row`` of the first of them.

    Raises:
        UserError: a row without a question, with no marker or several, or without a number alone after its marker.
    """
    queries = []
    for number, (question, answer) in enumerate(rows):
        if not (question or "").strip():
            raise UserError(f"data: row {number} of {source} has no question; mend or remove it")
        _, *golds = (answer or "").split(MARKER)
        if len(golds) != 1:
            raise UserError(
                f"data: row {number} of {source} has {len(golds)} {MARKER} in its answer, not one; mend or remove it"
            )
        gold = golds[0].strip()
        if not _GOLD.fullmatch(gold):
            raise UserError(f"data: row {number} of {source} has {gold[:40]!r} after {MARKER}, no number; mend it")
        queries.append(Query(str(question), first + number, gold))
    return queries
