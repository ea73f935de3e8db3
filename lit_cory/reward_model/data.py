"""Reviews with their labels, in batches that each have a length of their own."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from torch.utils.data import Sampler
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from lit_cory.data.files import Row, existing, is_local, part_files, read_files, read_hub, read_text
from lit_cory.data.prompts import clean
from lit_cory.errors import UserError
from lit_cory.hub import hub_model
from lit_cory.policies import bundled
from lit_cory.policies.loading import resolve_base

LABELS = {"0": 0, "neg": 0, "negative": 0, "1": 1, "pos": 1, "positive": 1}


class Review(NamedTuple):
    """A text and its label, 1 = positive."""

    text: str
    label: int


class Batch(NamedTuple):
    """Reviews that go through the classifier together, each cut to its first ``limit`` tokens."""

    reviews: list[Review]
    limit: int


class Onward(Sampler[int]):
    """0, 1 ... n - 1, once. It is its own iterator, so that a second ``iter`` (the trainer makes several) goes on."""

    def __init__(self, n: int) -> None:
        self.n, self.drawn = n, 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.drawn == self.n:
            raise StopIteration
        self.drawn += 1
        return self.drawn - 1

    def state_dict(self) -> dict[str, int]:
        """How many were drawn."""
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after those."""
        self.drawn = state["drawn"]


def encoder_source(name: str) -> str:
    """What transformers can load for the name of an encoder: a folder, or a hub id where the hub answers.

    Raises:
        UserError: as ``resolve_base`` does, and for a hub out of reach.
    """
    path = resolve_base(name)
    remedy = f"a local folder or {bundled.names(encoder=True)}"
    return path if Path(path).is_dir() else hub_model(path, "model.base", remedy)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of an encoder, which must have a pad token.

    Raises:
        UserError: as :func:`encoder_source` does, and for one that can't be read or can't pad.
    """
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(encoder_source(name))
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"model.base={name}: its tokenizer can't be loaded ({why}); name another encoder") from error
    if tokenizer.pad_token is None:
        raise UserError(f"model.base={name}: its tokenizer has no pad token; name an encoder, of the BERT kind say")
    return tokenizer


class LabelledReviews(L.LightningDataModule):
    """Reviews to learn sentiment from, and others to test on.

    Sources are those of ``ImdbDataModule`` that have labels and both parts: an id on the hub, a folder with ``train``
    and ``test`` files as .parquet, .csv or .jsonl, or the folder of the original archive (``train/pos/*.txt`` ...).
    A label is 0, neg or negative, or 1, pos or positive.

    A training batch is cut to a number of tokens of its own, drawn uniformly, both ends included: what agents write is
    far shorter than a review, and the classifier is to read both. It makes training cheaper, too.

    Args:
        source: where reviews come from.
        text_column: the column that holds the review, where the source has columns.
        label_column: the column that holds the label.
        train_size: reviews to train on, a seeded choice; null takes all.
        test_size: reviews to test on, likewise.
        epochs: passes over the reviews to train on.
        min_tokens: fewest tokens that a training batch is cut to.
        max_tokens: most of them, and those that a test reads; the tokenizer's own marks count.
        batch_size: reviews in a training batch; the last of a pass may be smaller.
        test_batch_size: reviews in a test batch.
        seed: of the choices, of the order and of the lengths.
        tokenizer: name of the encoder that texts are cut for.

    Raises:
        UserError: a number out of range; in ``setup``, whatever is wrong with the source.
    """

    def __init__(
        self,
        source: str = "stanfordnlp/imdb",
        text_column: str = "text",
        label_column: str = "label",
        train_size: int | None = None,
        test_size: int | None = None,
        epochs: int = 1,
        min_tokens: int = 16,
        max_tokens: int = 128,
        batch_size: int = 32,
        test_batch_size: int = 128,
        seed: int = 0,
        tokenizer: str = "",
    ) -> None:
        super().__init__()
        counts = {"train_size": train_size, "test_size": test_size, "epochs": epochs}
        counts |= {"batch_size": batch_size, "test_batch_size": test_batch_size}
        for key, value in counts.items():
            if value is not None and value < 1:
                raise UserError(f"data.{key}={value}: must be at least 1")
        if not 3 <= min_tokens <= max_tokens:
            raise UserError(f"data.min_tokens={min_tokens}, data.max_tokens={max_tokens}: must be 3 <= min <= max")
        if seed < 0:
            raise UserError(f"data.seed={seed}: must be at least 0")
        self.source, self.columns = source, {"data.text_column": text_column, "data.label_column": label_column}
        self.train_size, self.test_size, self.epochs, self.seed = train_size, test_size, epochs, seed
        self.min_tokens, self.max_tokens = min_tokens, max_tokens
        self.batch_size, self.test_batch_size, self.tokenizer_name = batch_size, test_batch_size, tokenizer
        self.train: list[Review] = []
        self.test: list[Review] = []

    def setup(self, stage: str) -> None:
        """Read both parts once, and load the tokenizer.

        Raises:
            UserError: a source that can't be read, a label that is none, or a part without one of the two labels.
        """
        del stage
        if not self.train:
            train, test = (self.reviews(part) for part in ("train", "test"))
            self.train, self.test = self.choice(train, self.train_size, 0), self.choice(test, self.test_size, 1)
            self.tokenizer = load_tokenizer(self.tokenizer_name)

    def reviews(self, part: str) -> list[Review]:
        """All reviews of ``train`` or ``test`` that have text."""
        found: list[Review] = []
        for number, (text, label) in enumerate(self.rows(part)):
            if label not in LABELS:
                raise UserError(
                    f"data.label_column={self.columns['data.label_column']}: row {number} of {self.source} ({part}) "
                    f"holds {label!r}; a label is one of {', '.join(LABELS)}"
                )
            if text and (cleaned := clean(text)):
                found.append(Review(cleaned, LABELS[label]))
        if len({review.label for review in found}) < 2:
            raise UserError(f"data.source={self.source}: {part} has no reviews of both labels; add some")
        return found

    def rows(self, part: str) -> Iterable[Row]:
        """Text and label of each row of the source."""
        if not is_local(self.source):
            return read_hub(self.source, part, self.columns, numbers="data.label_column")
        folder = existing(self.source)
        if not folder.is_dir():
            raise UserError(f"data.source={folder}: a file has no part to test on; name a folder with train and test")
        if (folder / part / "pos").is_dir():
            files = [
                (file, label) for label in ("pos", "neg") for file in sorted((folder / part / label).glob("*.txt"))
            ]
            return ((read_text(file), label) for file, label in files)
        return read_files(part_files(folder, part), self.columns, numbers="data.label_column")

    def choice(self, reviews: list[Review], size: int | None, stream: int) -> list[Review]:
        """``size`` of the reviews in the order of the source; all, where there are fewer."""
        count = len(reviews) if size is None else min(size, len(reviews))
        chosen = np.random.default_rng((stream, self.seed)).choice(len(reviews), count, replace=False)
        return [reviews[place] for place in sorted(chosen.tolist())]

    @property
    def steps(self) -> int:
        """How many training batches there are, over all epochs."""
        return self.epochs * math.ceil(len(self.train) / self.batch_size)

    def training_batches(self) -> list[Batch]:
        """The batches of all epochs in order, a function of the seed."""
        batches: list[Batch] = []
        for epoch in range(self.epochs):
            random = np.random.default_rng((2, self.seed, epoch))
            order = random.permutation(len(self.train)).tolist()
            for start in range(0, len(order), self.batch_size):
                limit = int(random.integers(self.min_tokens, self.max_tokens, endpoint=True))
                batches.append(Batch([self.train[i] for i in order[start : start + self.batch_size]], limit))
        return batches

    def train_dataloader(self) -> StatefulDataLoader[Batch]:
        """Every epoch in one pass; the loader's state resumes in the middle of it."""
        batches = self.training_batches()
        return self.loader(batches, Onward(len(batches)))

    def test_dataloader(self) -> StatefulDataLoader[Batch]:
        """The reviews to test on, in the order of the source."""
        parts = range(0, len(self.test), self.test_batch_size)
        return self.loader([Batch(self.test[i : i + self.test_batch_size], self.max_tokens) for i in parts], None)

    def loader(self, batches: list[Batch], sampler: Sampler[int] | None) -> StatefulDataLoader[Batch]:
        """``batches`` as tensors, one after another."""
        own = torch.Generator().manual_seed(0)  # else each iterator draws from torch's global stream
        return StatefulDataLoader(batches, batch_size=None, sampler=sampler, collate_fn=self.encode, generator=own)

    def encode(self, batch: Batch) -> dict[str, Any]:
        """What the classifier reads: token ids and mask [B, P], padded to the longest, and ``labels`` [B] int64."""
        texts = [review.text for review in batch.reviews]
        encoded = self.tokenizer(texts, truncation=True, max_length=batch.limit, padding=True, return_tensors="pt")
        return {**encoded, "labels": torch.tensor([review.label for review in batch.reviews])}
