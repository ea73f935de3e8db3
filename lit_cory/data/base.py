"""What every source of queries shares: held-out choice, order, batches, checks."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator

import lightning
import numpy as np
import torch
from torch.utils.data import Sampler
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import PreTrainedTokenizerBase

from lit_cory.errors import UserError
from lit_cory.types import Query

# First number of the entropy of each seeded choice made here, so that no two of them share a stream.
_ORDER, _HELD_OUT, _SPLIT = range(3)


class PermutationStream(Sampler[int]):
    """Row numbers without end: fresh permutations of ``range(n)``, one after another.

    Batches drawn from it are always full and run across passes; within a pass each row comes once. Pass ``p`` is
    a pure function of ``(seed, p)``, so the number of rows drawn is all the state there is. The stream is its own
    iterator: a second ``iter`` goes on where the first one stopped.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.drawn = n, seed, 0
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        number, place = divmod(self.drawn, self.n)
        if number != self._pass:
            self._pass, self._order = number, np.random.default_rng((_ORDER, self.seed, number)).permutation(self.n)
        self.drawn += 1
        return int(self._order[place])

    def state_dict(self) -> dict[str, int]:
        """The number of rows drawn so far."""
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after the rows that were drawn when ``state`` was taken."""
        self.drawn = state["drawn"]


class QueryDataModule(lightning.LightningDataModule, ABC):
    """Batches of queries: training without end in seeded order, held-out ones in the order of the source.

    A batch is a list of :class:`Query`. How long training lasts is not a matter of the data: the training loader has no
    length, and its batches run across passes. A subclass says where queries come from, in :meth:`load_queries`.

    Args:
        batch_size: queries in a training batch, that is in a rollout.
        val_batch_size: queries in a validation batch; the last one may be smaller.
        val_size: how many held-out queries to validate on, a seeded choice; all where there are fewer.
        seed: of the training order, of the held-out choice and of whatever else the subclass draws.
        tokenizer: the base model that prompts are cut for, or its tokenizer already loaded.

    Raises:
        UserError: a size below 1 or a negative seed.
    """

    source = ""
    """Where the queries come from, for messages."""

    def __init__(
        self,
        batch_size: int = 16,
        val_batch_size: int = 64,
        val_size: int = 256,
        seed: int = 0,
        tokenizer: str | PreTrainedTokenizerBase = "",
    ) -> None:
        super().__init__()
        for key, value in {"batch_size": batch_size, "val_batch_size": val_batch_size, "val_size": val_size}.items():
            if value < 1:
                raise UserError(f"data.{key}={value}: must be at least 1")
        if seed < 0:
            raise UserError(f"data.seed={seed}: must be at least 0")
        self.batch_size, self.val_batch_size, self.val_size, self.seed = batch_size, val_batch_size, val_size, seed
        self.tokenizer = tokenizer
        self.train_queries: list[Query] = []
        self.held_out_queries: list[Query] = []
        self.val_queries: list[Query] = []

    @abstractmethod
    def load_queries(self) -> tuple[list[Query], list[Query]]:
        """All queries to train on, and all that are held out. Rows that can't be used are left out here."""

    @property
    def queries(self) -> list[Query]:
        """Every query there is after ``setup``: those to train on, then those held out."""
        return self.train_queries + self.held_out_queries

    def setup(self, stage: str) -> None:
        """Read the source once, choose the held-out queries, check that a training batch can be filled.

        Raises:
            UserError: no queries on one side, or fewer training queries than ``batch_size``.
        """
        if not self.queries:
            train, held_out = self.load_queries()
            for purpose, queries in (("train on", train), ("hold out", held_out)):
                if not queries:
                    raise UserError(f"data.source={self.source}: no queries to {purpose}; add rows that hold text")
            chosen = _choice(len(held_out), self.val_size, (_HELD_OUT, self.seed))
            self.train_queries, self.held_out_queries = train, held_out
            self.val_queries = [held_out[place] for place in chosen]
        if stage == "fit" and self.batch_size > len(self.train_queries):
            most = len(self.train_queries)
            raise UserError(
                f"data.batch_size={self.batch_size}, but there are only {most} queries to train on;"
                f" set it to {most} or less, or add data"
            )

    def train_dataloader(self) -> StatefulDataLoader[Query]:
        """Full batches without end; the loader's state resumes in the middle of a pass."""
        order = PermutationStream(len(self.train_queries), self.seed)
        return self._loader(self.train_queries, self.batch_size, order)

    def val_dataloader(self) -> StatefulDataLoader[Query]:
        """The held-out choice, in the order of the source."""
        return self._loader(self.val_queries, self.val_batch_size, None)

    def test_dataloader(self) -> StatefulDataLoader[Query]:
        """All held-out queries, whatever ``val_size``, in the order of the source."""
        return self._loader(self.held_out_queries, self.val_batch_size, None)

    def transfer_batch_to_device(self, batch: list[Query], device: torch.device, dataloader_idx: int) -> list[Query]:
        """Queries are text: nothing moves (Lightning's own walk refuses frozen dataclasses)."""
        del device, dataloader_idx
        return batch

    def loaded_tokenizer(self) -> PreTrainedTokenizerBase:
        """The base's tokenizer, read at the first call.

        Raises:
            UserError: no base was named, or it can't be found.
        """
        if isinstance(self.tokenizer, str):
            if not self.tokenizer:
                raise UserError("data.tokenizer: name the base model that prompts are cut for")
            from lit_cory.policies.loading import load_tokenizer  # policies are needed only where a name was given

            self.tokenizer = load_tokenizer(self.tokenizer)
        return self.tokenizer

    def split(self, queries: list[Query], fraction: float) -> tuple[list[Query], list[Query]]:
        """Training and held-out part of a source without parts of its own: a seeded choice, at least one held out."""
        count = max(1, round(len(queries) * fraction))
        held_out = set(_choice(len(queries), count, (_SPLIT, self.seed)))
        return (
            [query for place, query in enumerate(queries) if place not in held_out],
            [query for place, query in enumerate(queries) if place in held_out],
        )

    @staticmethod
    def _loader(queries: list[Query], batch_size: int, sampler: Sampler[int] | None) -> StatefulDataLoader[Query]:
        # A generator of its own: without one, each new iterator draws a number from torch's global stream, and with it
        # validation would change what training samples.
        own = torch.Generator().manual_seed(0)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "'set_vital' is deprecated"
            )  # torchdata's call, nothing to do with the user
            return StatefulDataLoader(queries, batch_size, sampler=sampler, collate_fn=list, generator=own)


def _choice(n: int, count: int, entropy: tuple[int, ...]) -> list[int]:
    """``count`` of ``range(n)`` (all, where there are fewer), ascending."""
    chosen = np.random.default_rng(entropy).choice(n, size=min(n, count), replace=False)
    return sorted(int(place) for place in chosen)
