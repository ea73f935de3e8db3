import json
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from huggingface_hub import constants

from lit_cory.data import ImdbDataModule
from lit_cory.data.files import is_local
from lit_cory.data.prompts import clean
from lit_cory.errors import UserError
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()

TRAIN = [
    "NA",
    "null",
    "007",
    'He said "no, thanks", twice',
    None,
    "Two\nlines",
    "caf\u00e9 noir",
    "3.50",
    "None",
    "nan",
]
KEPT = ["NA", "null", "007", 'He said "no, thanks", twice', "Two lines", "caf\u00e9 noir", "3.50", "None", "nan"]
TEST = ["A test review", "Another one"]


def write(path: Path, texts: Sequence[str | None], column: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({column: pd.Series(list[Any](texts), dtype=object), "label": range(len(texts))})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")), encoding="utf-8")
    return path


def module(source: Path | str, **kwargs: Any) -> ImdbDataModule:
    data = ImdbDataModule(str(source), **{"tokenizer": TOKENIZER, "batch_size": 1, **kwargs})
    data.setup("fit")
    return data


def refusal(source: Path | str, **kwargs: Any) -> str:
    with pytest.raises(UserError) as error:
        module(source, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_folder_gives_the_same_queries_in_each_format(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "with [brackets] *"
    write(folder / f"train.{suffix}", TRAIN)
    write(folder / f"test.{suffix}", TEST)
    data = module(folder, min_prompt_tokens=99, max_prompt_tokens=99)
    assert [query.text for query in data.train_queries] == KEPT
    assert [query.row for query in data.train_queries] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [query.text for query in data.val_queries] == TEST
    assert [r.getMessage() for r in caplog.records] == ["data: 1 of 10 reviews were left out: no text"]


def test_a_single_file_gives_the_same_batches_in_each_format(tmp_path: Path) -> None:
    batches = []
    for suffix in ("csv", "jsonl", "parquet"):
        data = module(write(tmp_path / f"reviews.{suffix}", TRAIN), val_fraction=0.34, batch_size=3)
        loader = iter(data.train_dataloader())
        batches.append(([next(loader) for _ in range(4)], list(data.val_dataloader())))
    assert batches[0] == batches[1] == batches[2]
    train, held_out = ({query.row for query in part} for part in (data.train_queries, data.val_queries))
    assert len(held_out) == 3  # round(9 * 0.34)
    assert not train & held_out
    assert len(train) == 6


def test_csv_of_numbers_alone_stays_text(tmp_path: Path) -> None:
    data = module(write(tmp_path / "numbers.csv", ["007", "1e5", "12.0"]), max_prompt_tokens=9, min_prompt_tokens=9)
    assert sorted(query.text for query in data.queries) == ["007", "12.0", "1e5"]


def test_shards_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "train-00001-of-00002.jsonl", ["second"])
    write(tmp_path / "train-00000-of-00002.jsonl", ["first"])
    write(tmp_path / "trained.jsonl", ["not this"])
    write(tmp_path / "test.jsonl", TEST)
    data = module(tmp_path, min_prompt_tokens=50, max_prompt_tokens=50)
    assert [query.text for query in data.train_queries] == ["first", "second"]


def test_original_archive(tmp_path: Path) -> None:
    for name, text in {
        "train/pos/0_9.txt": "good one",
        "train/pos/1_7.txt": "good two<br />lines",
        "train/neg/0_2.txt": "bad one",
        "train/unsup/0_0.txt": "not this",
        "test/pos/0_8.txt": "good test",
        "test/neg/0_1.txt": "bad test",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    data = module(tmp_path, min_prompt_tokens=50, max_prompt_tokens=50)
    assert [query.text for query in data.train_queries] == ["good one", "good two lines", "bad one"]
    assert [query.text for query in data.val_queries] == ["good test", "bad test"]


def test_text_file_has_one_review_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "reviews.txt"
    path.write_bytes("\ufefffirst\r\n\r\n  \nnext\x85line and \u2028more\nlast".encode())
    data = module(path, min_prompt_tokens=50, max_prompt_tokens=50)
    found = sorted((query.row, query.text) for query in data.queries)
    assert found == [(0, "first"), (3, "next line and more"), (4, "last")]
    assert [r.getMessage() for r in caplog.records] == ["data: 2 of 5 reviews were left out: no text"]


def test_text_column_and_prompt_lengths(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.jsonl", ["xyzxyzxyzxyz"] * 200, column="body")  # a token is a byte
    data = module(path, text_column="body", min_prompt_tokens=2, max_prompt_tokens=4)
    assert set(Counter(len(query.text) for query in data.queries)) == {2, 3, 4}


def test_bundled_openings() -> None:
    data = module("bundled:openings", min_prompt_tokens=99, max_prompt_tokens=99)
    train, held_out = ([query.text for query in part] for part in (data.train_queries, data.held_out_queries))
    assert len(train) >= 340
    assert len(held_out) >= 160
    openings = train + held_out
    assert len({opening.lower() for opening in openings}) == len(openings)
    assert all(6 <= len(opening.split()) <= 14 for opening in openings)
    assert max(Counter(tuple(opening.lower().split()[:4]) for opening in openings).values()) <= 3
    assert all(opening == opening.strip() and opening[-1].isalpha() for opening in openings)
    assert all(query.row % 3 == 2 for query in data.held_out_queries)
    other = module("bundled:openings", min_prompt_tokens=99, max_prompt_tokens=99, seed=7)
    assert [query.text for query in other.held_out_queries] == held_out  # the split doesn't follow the seed


def test_tokenizer_by_name(gpt2_base: Path) -> None:
    data = module("bundled:openings", tokenizer=str(gpt2_base))
    assert data.queries == module("bundled:openings").queries  # that base has the same tokenizer


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_missing_column_names_file_column_and_columns(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"train.{suffix}", TRAIN)
    path = write(tmp_path / f"test.{suffix}", TEST, column="review")
    message = refusal(tmp_path)
    assert message == (f"data.text_column=text: {path} has no such column; name one of those it has (label, review)")


def test_column_that_holds_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.jsonl", TEST)
    assert f"data.text_column=label: row 0 of {path} holds int, not text" in refusal(path, text_column="label")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content in {
        "a.parquet": b"PAR1 no",
        "a.jsonl": b'{"text": "one"}\n{"text": ',
        "a.txt": b"\xff\xfe",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert str(tmp_path / name) in refusal(tmp_path / name)
    (tmp_path / "a.tsv").write_text("text\nx\n")
    assert "must be one of .parquet, .csv, .jsonl, .txt" in refusal(tmp_path / "a.tsv")


@pytest.mark.parametrize("content", ["", "text,label\n", "text,label\n,1\n"])
def test_file_without_rows(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert refusal(tmp_path / "a.csv").startswith("data")


def test_one_review_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one review\n")
    assert "no queries to train on" in refusal(tmp_path / "a.txt")


def test_folders_that_lack_a_part_or_are_ambiguous(tmp_path: Path) -> None:
    assert "no train file" in refusal(tmp_path)
    write(tmp_path / "train.csv", TEST)
    assert "no test file" in refusal(tmp_path)
    write(tmp_path / "train.jsonl", TEST)
    assert "several kinds (train.csv, train.jsonl)" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"min_prompt_tokens": 0}, "data.min_prompt_tokens=0, data.max_prompt_tokens=8: must be 1 <= min <= max"),
        ({"min_prompt_tokens": 9}, "data.min_prompt_tokens=9, data.max_prompt_tokens=8: must be 1 <= min <= max"),
        ({"val_fraction": 0.0}, "data.val_fraction=0.0: must be above 0 and below 1"),
        ({"val_fraction": 1.0}, "data.val_fraction=1.0: must be above 0 and below 1"),
    ],
)
def test_numbers_out_of_range(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        ImdbDataModule(**keys)
    assert str(error.value) == message


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub isn't declared offline, but any attempt to reach another machine fails the test."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        pytest.fail(f"the network was tried: {args}")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("source", ["none.csv", "data/none.parquet", "./none", "/none/at/all", "~/none", "a/b/c"])
def test_missing_path_is_refused_without_the_network(source: str) -> None:
    assert refusal(source) == f"data.source={source}: there is no such file or folder; check the path"


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_local_files_are_read_without_the_network(tmp_path: Path, suffix: str) -> None:
    assert len(module(write(tmp_path / f"a.{suffix}", TRAIN)).queries) == 9


def test_what_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "reviews").mkdir()
    assert is_local("org/reviews")
    assert not any(is_local(name) for name in ("stanfordnlp/imdb", "imdb", "org/imdb-v1.1"))


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    message = refusal("stanfordnlp/imdb")
    assert message.startswith("data.source=stanfordnlp/imdb: no such folder, and the hub is out of reach")
    assert "a local folder with train and test files, or one file" in message


def test_hub_switched_off() -> None:
    assert "data.source=stanfordnlp/imdb: it can't be fetched" in refusal("stanfordnlp/imdb")


def test_real_reviews(shared_data: Path, tmp_path: Path) -> None:
    reviews = {}
    for part in ("train", "test"):
        frame = pd.read_parquet(shared_data / "imdb" / f"{part}.parquet").iloc[::100]  # 250 rows keep the test quick
        frame.to_parquet(tmp_path / f"{part}.parquet", index=False)
        reviews[part] = [clean(text) for text in frame["text"]]
    data = module(tmp_path, val_size=100)
    assert len(data.train_queries) == len(data.held_out_queries) == 250
    assert len(data.val_queries) == 100
    for part, queries in (("train", data.train_queries), ("test", data.held_out_queries)):
        for query in queries:
            assert reviews[part][query.row].startswith(query.text)
            whole = TOKENIZER(reviews[part][query.row][:400])["input_ids"]
            assert any(str(TOKENIZER.decode(whole[:n])).startswith(query.text) for n in range(2, 9))
    tokens = Counter(len(TOKENIZER(query.text)["input_ids"]) for query in data.train_queries)
    assert {2, 3, 4, 5, 6, 7, 8} <= set(tokens)
    assert max(tokens) == 8
