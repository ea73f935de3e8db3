"""Labelled reviews: what is read, what is chosen, and how batches are cut."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch

from lit_cory.errors import UserError
from lit_cory.reward_model import LabelledReviews
from tests.reward_model.reviews import write_reviews
from tests.tasks.tiny_classifier import make_classifier


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_classifier(tmp_path_factory.mktemp("encoder")))


def reviews(source: Path, encoder: str, **options: int) -> LabelledReviews:
    data = LabelledReviews(str(source), tokenizer=encoder, **options)  # type: ignore[arg-type]
    data.setup("fit")
    return data


def test_every_review_comes_once_a_pass_in_batches_of_one_length(tmp_path: Path, encoder: str) -> None:
    data = reviews(write_reviews(tmp_path), encoder, epochs=2, batch_size=48, min_tokens=4, max_tokens=6)
    batches = data.training_batches()
    assert [len(batch.reviews) for batch in batches] == [48, 48, 48, 16] * 2
    assert data.steps == 8
    passes = [[r for batch in part for r in batch.reviews] for part in (batches[:4], batches[4:])]
    assert Counter(passes[0]) == Counter(passes[1]) == Counter(data.train)
    assert passes[0] != passes[1]
    assert {batch.limit for batch in batches} <= {4, 5, 6}
    assert batches == reviews(tmp_path, encoder, epochs=2, batch_size=48, min_tokens=4, max_tokens=6).training_batches()
    loaded = list(data.train_dataloader())
    for batch, tensors in zip(batches, loaded, strict=True):
        # [CLS] the film was good and long [SEP] has 8 tokens, so that each is cut.
        assert tensors["input_ids"].shape == (len(batch.reviews), batch.limit)
        assert tensors["labels"].tolist() == [review.label for review in batch.reviews]


def test_padding_is_masked_and_the_test_reads_most(tmp_path: Path, encoder: str) -> None:
    frame = pd.DataFrame({"text": ["good", "the film was<br />bad"], "label": [1, 0]})
    for part in ("train", "test"):
        frame.to_parquet(tmp_path / f"{part}.parquet")
    (batch,) = reviews(tmp_path, encoder, min_tokens=3, max_tokens=20).test_dataloader()
    # Words count from 4 on: the film was good bad ...
    assert batch["input_ids"].tolist() == [[2, 7, 3, 0, 0, 0], [2, 4, 5, 6, 8, 3]]
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 6]
    assert torch.equal(batch["labels"], torch.tensor([1, 0]))


def test_choices_are_seeded_and_keep_both_labels_in_order(tmp_path: Path, encoder: str) -> None:
    write_reviews(tmp_path, train=400)
    few, again, other = (reviews(tmp_path, encoder, train_size=50, test_size=1000, seed=s) for s in (0, 0, 1))
    assert (len(few.train), len(few.test)) == (50, 60)
    assert few.train == again.train != other.train
    labels = [review.label for review in few.train]
    assert labels == sorted(labels)
    assert 10 < sum(labels) < 40


def test_the_archives_folders_and_named_labels(tmp_path: Path, encoder: str) -> None:
    for part in ("train", "test"):
        for label, text in {"pos": "great", "neg": "dull"}.items():
            (tmp_path / part / label).mkdir(parents=True)
            (tmp_path / part / label / "0_1.txt").write_text(text)
    assert reviews(tmp_path, encoder).train == [("great", 1), ("dull", 0)]
    named = tmp_path / "named"
    named.mkdir()
    for part in ("train", "test"):
        (named / f"{part}.csv").write_text("text,label\ngreat,positive\ndull,neg\n,pos\n")
    assert reviews(named, encoder).test == [("great", 1), ("dull", 0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\ngood,1\nbad,2\n", r"data.label_column=label: row 1 of .* \(train\) holds '2'; a label is one of"),
        ("text,label\ngood,1\nlong,1\n", r"train has no reviews of both labels"),
        ("text,mark\ngood,1\n", r"data.label_column=label: .*has no such column.*\(mark, text\)"),
    ],
)
def test_a_source_that_cannot_be_used(tmp_path: Path, encoder: str, content: str, message: str) -> None:
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        reviews(tmp_path, encoder)


def test_labels_that_are_no_whole_numbers(tmp_path: Path, encoder: str) -> None:
    pd.DataFrame({"text": ["good"], "label": [0.5]}).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"data.label_column=label: row 0 of .*train.parquet holds float"):
        reviews(tmp_path, encoder)


def test_a_single_file_has_nothing_to_test_on(tmp_path: Path, encoder: str) -> None:
    (tmp_path / "all.csv").write_text("text,label\ngood,1\n")
    with pytest.raises(UserError, match=r"all.csv: a file has no part to test on; name a folder"):
        reviews(tmp_path / "all.csv", encoder)
