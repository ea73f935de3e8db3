import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lit_cory.data import PermutationStream, QueryDataModule
from lit_cory.errors import UserError
from lit_cory.types import Query


class Numbers(QueryDataModule):
    """Rows 0..train-1 to train on, 1000..1000+held_out-1 held out."""

    def __init__(self, train: int, held_out: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes, self.loads = (train, held_out), 0

    def load_queries(self) -> tuple[list[Query], list[Query]]:
        self.loads += 1
        train, held_out = self.sizes
        return [Query(f"q{row}", row) for row in range(train)], [Query("v", 1000 + row) for row in range(held_out)]


def ready(train: int, held_out: int = 3, stage: str = "fit", **kwargs: Any) -> Numbers:
    data = Numbers(train, held_out, **kwargs)
    data.setup(stage)
    return data


def rows(batches: Any) -> list[list[int]]:
    return [[query.row for query in batch] for batch in batches]


def test_each_pass_of_the_stream_is_a_fresh_permutation() -> None:
    stream = PermutationStream(50, seed=3)
    passes = [list(islice(stream, 50)) for _ in range(4)]
    assert all(sorted(one) == list(range(50)) for one in passes)
    assert len({tuple(one) for one in passes}) == 4


def test_stream_is_a_function_of_seed_and_pass() -> None:
    drawn = list(islice(PermutationStream(7, seed=3), 21))
    assert list(islice(PermutationStream(7, seed=3), 21)) == drawn
    assert list(islice(PermutationStream(7, seed=4), 21)) != drawn
    jumped = PermutationStream(7, seed=3)
    jumped.load_state_dict({"drawn": 16})  # pass 2 without having drawn passes 0 and 1
    assert list(islice(jumped, 5)) == drawn[16:]


def test_stream_of_one_row() -> None:
    assert list(islice(PermutationStream(1, seed=0), 3)) == [0, 0, 0]


@pytest.mark.parametrize("size", [4, 5, 10])
def test_batches_are_full_and_run_across_passes(size: int) -> None:
    batches = rows(islice(ready(10, batch_size=size).train_dataloader(), 20 // size * 2))
    assert all(len(batch) == size for batch in batches)
    drawn = [row for batch in batches for row in batch]
    for start in range(0, len(drawn) - 9, 10):
        assert sorted(drawn[start : start + 10]) == list(range(10))


def test_five_rows_in_batches_of_four() -> None:
    batches = rows(islice(ready(5, batch_size=4).train_dataloader(), 5))
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4]
    assert Counter(row for batch in batches for row in batch) == dict.fromkeys(range(5), 4)


def test_loader_resumes_in_the_middle_of_a_pass() -> None:
    unbroken = rows(islice(ready(10, batch_size=4).train_dataloader(), 6))  # 24 rows: the cut after 12 is mid-pass
    loader = ready(10, batch_size=4).train_dataloader()
    first = rows(islice(loader, 3))
    state = json.loads(json.dumps(loader.state_dict()))  # plain types only
    fresh = ready(10, batch_size=4).train_dataloader()
    fresh.load_state_dict(state)
    assert first + rows(islice(fresh, 3)) == unbroken


def test_loaders_leave_the_global_random_state_alone() -> None:
    data = ready(10, batch_size=4)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(islice(data.train_dataloader(), 3)), list(data.val_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_validation_keeps_order_and_the_last_smaller_batch() -> None:
    data = ready(10, held_out=10, batch_size=4, val_batch_size=4)
    expected = [[1000, 1001, 1002, 1003], [1004, 1005, 1006, 1007], [1008, 1009]]
    assert rows(data.val_dataloader()) == expected
    assert rows(data.val_dataloader()) == expected  # a second validation reads the same


def test_held_out_choice_is_seeded_sorted_and_leaves_the_test_whole() -> None:
    def choice(seed: int) -> list[int]:
        return [query.row for query in ready(20, 100, val_size=10, seed=seed).val_queries]

    assert choice(0) == choice(0) == sorted(set(choice(0)))
    assert choice(0) != choice(1)
    assert len(choice(0)) == 10
    data = ready(20, 100, val_size=10)
    assert sum(map(len, data.test_dataloader())) == 100
    assert [query.row for query in data.queries] == [*range(20), *range(1000, 1100)]
    assert len(ready(20, 3, val_size=10).val_queries) == 3


def test_source_is_read_once() -> None:
    data = ready(20, stage="validate")
    data.setup("fit")
    data.setup("test")
    assert data.loads == 1


def test_batch_larger_than_the_data() -> None:
    with pytest.raises(UserError, match=r"^data\.batch_size=4, .*only 3 queries .*set it to 3 or less.*$"):
        ready(3, batch_size=4)
    data = ready(3, batch_size=4, stage="validate")  # no training batch is wanted
    with pytest.raises(UserError, match="batch_size=4"):
        data.setup("fit")
    assert rows(islice(ready(4, batch_size=4).train_dataloader(), 1))[0] != []


@pytest.mark.parametrize(("train", "held_out", "purpose"), [(0, 3, "train on"), (3, 0, "hold out"), (0, 0, "train on")])
def test_no_queries(train: int, held_out: int, purpose: str) -> None:
    with pytest.raises(UserError, match=f"no queries to {purpose}; add rows"):
        ready(train, held_out, batch_size=1)


@pytest.mark.parametrize(("key", "value"), [("batch_size", 0), ("val_batch_size", -1), ("val_size", 0), ("seed", -1)])
def test_sizes_out_of_range(key: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"^data\.{key}={value}: must be at least"):
        Numbers(3, **{key: value})


def test_tokenizer_must_be_named() -> None:
    with pytest.raises(UserError, match=r"^data\.tokenizer: name the base"):
        Numbers(3).loaded_tokenizer()


def test_split_is_seeded_and_disjoint() -> None:
    queries = [Query("q", row) for row in range(20)]
    train, held_out = Numbers(1, seed=5).split(queries, 0.25)
    assert (len(train), len(held_out)) == (15, 5)
    assert sorted(query.row for query in train + held_out) == list(range(20))
    assert Numbers(1, seed=5).split(queries, 0.25) == (train, held_out)
    assert Numbers(1, seed=6).split(queries, 0.25) != (train, held_out)
    assert [len(part) for part in Numbers(1).split(queries[:2], 0.01)] == [1, 1]


class Recorder(L.LightningModule):
    """Writes down the rows of each batch; saves a checkpoint after the third."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: list[list[int]] = []
        self.validated: list[list[int]] = []
        self.checkpoint = checkpoint

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: list[Query], batch_idx: int) -> None:
        self.optimizers().step()  # type: ignore[union-attr, call-arg]
        self.seen.append([query.row for query in batch])

    def validation_step(self, batch: list[Query], batch_idx: int) -> None:
        self.validated.append([query.row for query in batch])

    def on_train_batch_end(self, *args: Any) -> None:
        if len(self.seen) == 3 and not self.checkpoint.exists():
            self.trainer.save_checkpoint(self.checkpoint)


def test_a_lightning_run_resumes_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    def run(**kwargs: Any) -> Recorder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=1,
            limit_train_batches=6,
            check_val_every_n_epoch=None,
            val_check_interval=2,
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Recorder(tmp_path / "third.ckpt")
        trainer.fit(module, datamodule=Numbers(10, batch_size=4), **kwargs)
        return module

    unbroken = run()
    resumed = run(ckpt_path=tmp_path / "third.ckpt")
    assert len(unbroken.seen) == 6
    assert resumed.seen == unbroken.seen[3:]
    assert unbroken.validated == [[1000, 1001, 1002]] * 3
