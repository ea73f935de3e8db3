"""Beginnings of film reviews to go on with: IMDB from the hub, local files of reviews, or the bundled openings."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from lit_cory.data.base import QueryDataModule
from lit_cory.data.files import existing, is_local, part_files, read_files, read_hub, read_text
from lit_cory.data.prompts import cut_prompts
from lit_cory.errors import UserError
from lit_cory.types import Query

BUNDLED = "bundled:openings"


class ImdbDataModule(QueryDataModule):
    """Prompts are the first few tokens of reviews; the task is to write on.

    Sources:

    - an id on the hub with parts ``train`` and ``test`` (held out), ``stanfordnlp/imdb`` or one like it;
    - a folder with ``train`` and ``test`` files as .parquet, .csv or .jsonl;
    - the folder of the original archive: ``train/pos/*.txt``, ``train/neg/*.txt`` and ``test`` likewise (held out);
      ``unsup`` is not read;
    - a single .parquet, .csv or .jsonl file, or a .txt file with one review a line: ``val_fraction`` of its prompts,
      chosen by ``seed``, is held out;
    - ``bundled:openings``: openings of film reviews that ship with lit_cory. Every third line, whatever the seed, is
      held out; the others are to train on.

    Args:
        source: where reviews come from.
        text_column: the column that holds the review, where the source has columns.
        min_prompt_tokens: fewest tokens of a review that make a prompt.
        max_prompt_tokens: most of them. The number is drawn uniformly, both ends included, for each row by ``seed``.
        val_fraction: held-out part of a source that is a single file.
        batch_size: see :class:`QueryDataModule`, as for the arguments below.
        val_batch_size: see there.
        val_size: see there.
        seed: see there.
        tokenizer: see there.

    Raises:
        UserError: a number out of range; in ``setup``, whatever is wrong with the source.
    """

    def __init__(
        self,
        source: str = "stanfordnlp/imdb",
        text_column: str = "text",
        min_prompt_tokens: int = 2,
        max_prompt_tokens: int = 8,
        val_fraction: float = 0.1,
        batch_size: int = 16,
        val_batch_size: int = 64,
        val_size: int = 256,
        seed: int = 0,
        tokenizer: str | PreTrainedTokenizerBase = "",
    ) -> None:
        super().__init__(batch_size, val_batch_size, val_size, seed, tokenizer)
        if not 1 <= min_prompt_tokens <= max_prompt_tokens:
            raise UserError(
                f"data.min_prompt_tokens={min_prompt_tokens}, data.max_prompt_tokens={max_prompt_tokens}:"
                " must be 1 <= min <= max"
            )
        if not 0 < val_fraction < 1:
            raise UserError(f"data.val_fraction={val_fraction}: must be above 0 and below 1")
        self.source, self.text_column, self.val_fraction = source, text_column, val_fraction
        self.min_prompt_tokens, self.max_prompt_tokens = min_prompt_tokens, max_prompt_tokens

    def load_queries(self) -> tuple[list[Query], list[Query]]:
        """Prompts of the whole source, to train on and held out."""
        if self.source == BUNDLED:
            lines = files("lit_cory.data").joinpath("openings.txt").read_text(encoding="utf-8").splitlines()
            queries = self._cut(lines)
            return [q for q in queries if q.row % 3 != 2], [q for q in queries if q.row % 3 == 2]
        if not is_local(self.source):
            return self._cut(self._hub("train")), self._cut(self._hub("test"))
        path = existing(self.source)
        if path.is_dir():
            return self._cut(self._folder(path, "train")), self._cut(self._folder(path, "test"))
        return self.split(self._cut(self._file(path)), self.val_fraction)

    def _cut(self, reviews: Iterable[str | None]) -> list[Query]:
        return cut_prompts(reviews, self.loaded_tokenizer(), self.min_prompt_tokens, self.max_prompt_tokens, self.seed)

    def _hub(self, part: str) -> Iterable[str | None]:
        return (text for (text,) in read_hub(self.source, part, {"data.text_column": self.text_column}))

    def _folder(self, folder: Path, part: str) -> Iterable[str | None]:
        if (folder / part / "pos").is_dir():
            reviews = [path for label in ("pos", "neg") for path in sorted((folder / part / label).glob("*.txt"))]
            return (read_text(path) for path in reviews)
        return (text for (text,) in read_files(part_files(folder, part), {"data.text_column": self.text_column}))

    def _file(self, path: Path) -> Iterable[str | None]:
        if path.suffix == ".txt":
            return read_text(path).removesuffix("\n").split("\n")
        return (text for (text,) in read_files([path], {"data.text_column": self.text_column}))
