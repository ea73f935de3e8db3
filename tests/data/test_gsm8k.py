import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lit_cory.data import Gsm8kDataModule
from lit_cory.data.files import read_hub
from lit_cory.errors import UserError
from lit_cory.tasks.gsm8k import extract_answer
from lit_cory.types import Query

TRAIN = [
    ("How many legs have 270 hens and 135 dogs?", "270*2=540, 135*4=540\n540+540=<<540+540=1080>>1080\n#### 1,080"),
    ('A "net" price, twice?', "It is 2*9=18 less 20\n#### -2"),
    ("Two\nlines, caf\u00e9?", "####007"),
    ("Half of one?", "#### 1/2 "),
]
TRAIN_QUERIES = [
    Query(TRAIN[0][0], 0, "1,080"),
    Query(TRAIN[1][0], 1, "-2"),
    Query(TRAIN[2][0], 2, "007"),
    Query(TRAIN[3][0], 3, "1/2"),
]
TEST = [("What is 2+2?", "#### 4"), ("And 2+3?", "#### 5")]
TEST_QUERIES = [Query("What is 2+2?", 0, "4"), Query("And 2+3?", 1, "5")]

Rows = list[tuple[Any, Any]]


def write(path: Path, rows: Rows, names: tuple[str, str] = ("question", "answer")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=list(names), dtype=object)
    frame.insert(1, "level", range(len(rows)))  # a column that isn't asked for
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")), encoding="utf-8")
    return path


def module(source: Path | str, **kwargs: Any) -> Gsm8kDataModule:
    data = Gsm8kDataModule(str(source), **{"batch_size": 1, **kwargs})
    data.setup("fit")
    return data


def refusal(source: Path | str, **kwargs: Any) -> str:
    with pytest.raises(UserError) as error:
        module(source, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_folder_gives_the_same_queries_in_each_format(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"train.{suffix}", TRAIN)
    write(tmp_path / f"test.{suffix}", TEST)
    data = module(tmp_path)
    assert data.train_queries == TRAIN_QUERIES
    assert data.held_out_queries == data.val_queries == TEST_QUERIES
    assert [extract_answer("#### " + str(query.gold)) for query in data.train_queries] == [1080, -2, 7, 0.5]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_single_file_is_split(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"problems.{suffix}", TRAIN, ("task", "solution"))
    data = module(path, question_column="task", answer_column="solution", val_fraction=0.5)
    assert len(data.train_queries) == len(data.held_out_queries) == 2
    assert sorted(data.queries, key=lambda query: query.row) == TRAIN_QUERIES


def test_shards_are_numbered_through_but_messages_count_within_the_file(tmp_path: Path) -> None:
    write(tmp_path / "train-00000.jsonl", TRAIN[:3])
    second = write(tmp_path / "train-00001.jsonl", TRAIN[3:])
    write(tmp_path / "test.jsonl", TEST)
    assert module(tmp_path).train_queries == TRAIN_QUERIES
    write(second, [*TRAIN[3:], ("?", "4")])
    assert f"row 1 of {second} " in refusal(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("question", "answer", "fault"),
    [
        ("Q?", "so 4 and 5 it is", "has 0 #### in its answer, not one; mend or remove it"),
        ("Q?", "### 4", "has 0 #### in its answer, not one; mend or remove it"),
        ("Q?", "", "has 0 #### in its answer, not one; mend or remove it"),
        ("Q?", None, "has 0 #### in its answer, not one; mend or remove it"),
        ("Q?", "#### 4\n#### 5", "has 2 #### in its answer, not one; mend or remove it"),
        ("Q?", "4\n####", "has '' after ####, no number; mend it"),
        ("Q?", "4\n#### four\nor so", "has 'four\\nor so' after ####, no number; mend it"),
        ("Q?", "#### 4 or 5", "has '4 or 5' after ####, no number; mend it"),
        ("Q?", "#### 1,08", "has '1,08' after ####, no number; mend it"),
        ("Q?", "#### 1/0", "has '1/0' after ####, no number; mend it"),
        (" ", "#### 4", "has no question; mend or remove it"),
        (None, "#### 4", "has no question; mend or remove it"),
    ],
)
def test_unusable_rows_are_refused(
    tmp_path: Path, suffix: str, question: str | None, answer: str | None, fault: str
) -> None:
    write(tmp_path / f"train.{suffix}", TRAIN)
    path = write(tmp_path / f"test.{suffix}", [*TEST, (question, answer), *TEST])
    assert refusal(tmp_path) == f"data: row 2 of {path} {fault}"


@pytest.mark.parametrize(
    ("gold", "value"),
    [("1,080", 1080), ("+3", 3), ("\u22123", -3), ("-$1,234.50", -1234.5), ("15%", 15), ("3/4", 0.75), ("$0.25", 0.25)],
)
def test_a_gold_that_is_accepted_is_one_that_the_task_reads(tmp_path: Path, gold: str, value: float) -> None:
    (query,) = module(write(tmp_path / "a.jsonl", [("Q?", "1 2 #### " + gold)] * 2)).train_queries
    assert query.gold == gold
    assert extract_answer("#### " + gold) == value


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("key", "names"), [("question", ("q", "answer")), ("answer", ("question", "a"))])
def test_missing_column_names_file_and_columns(tmp_path: Path, suffix: str, key: str, names: tuple[str, str]) -> None:
    path = write(tmp_path / f"problems.{suffix}", TRAIN, names)
    there = ", ".join(sorted([*names, "level"]))
    assert refusal(path) == f"data.{key}_column={key}: {path} has no such column; name one of those it has ({there})"


def test_sources_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    assert refusal(missing) == f"data.source={missing}: there is no such file or folder; check the path"
    assert "no train file" in refusal(tmp_path)
    (tmp_path / "a.txt").write_text("Q? #### 4\n")
    expected = f"data.source={tmp_path / 'a.txt'}: a file must be one of .parquet, .csv, .jsonl; convert it"
    assert refusal(tmp_path / "a.txt") == expected


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_val_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(UserError, match=rf"^data\.val_fraction={fraction}: must be above 0 and below 1$"):
        Gsm8kDataModule(val_fraction=fraction)


@pytest.fixture
def hub_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set with two subsets in the hub's own form, which its library loads from a folder too."""
    folder = tmp_path / "hub"
    for subset, rows in {"main": (TRAIN, TEST), "other": (TEST, TEST)}.items():
        for part, part_rows in zip(("train", "test"), rows, strict=True):
            write(folder / subset / f"{part}.parquet", part_rows)
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n"
        + "".join(f"  - split: {part}\n    path: {name}/{part}.parquet\n" for part in ("train", "test"))
        for name in ("main", "other")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("lit_cory.data.gsm8k.is_local", lambda source: False)
    return str(folder)


def test_subset_of_a_hub_data_set(hub_folder: str) -> None:
    data = module(hub_folder)
    assert (data.train_queries, data.held_out_queries) == (TRAIN_QUERIES, TEST_QUERIES)
    assert module(hub_folder, subset="other").train_queries == TEST_QUERIES
    for subset in (None, "third"):
        assert refusal(hub_folder, subset=subset).startswith(f"data.source={hub_folder}: it can't be fetched")


def test_row_of_a_hub_data_set_is_named(hub_folder: str) -> None:
    write(Path(hub_folder) / "main" / "test.parquet", [*TEST, ("Q?", "4")])
    assert refusal(hub_folder) == (
        f"data: row 2 of {hub_folder} (test) has 0 #### in its answer, not one; mend or remove it"
    )


def test_hub_without_subset_is_read_as_before(hub_folder: str) -> None:
    assert [row[0] for row in read_hub(f"{hub_folder}/main", "test", {"q": "question"})] == [q for q, _ in TEST]


def test_all_real_rows(shared_data: Path) -> None:
    if not (shared_data / "gsm8k" / "train.jsonl").is_file():
        pytest.skip(f"GSM8K isn't there: {shared_data / 'gsm8k'}")
    data = module(shared_data / "gsm8k")
    parts = (data.train_queries, data.held_out_queries)
    assert [len(part) for part in parts] == [7473, 1319]
    golds = [[str(query.gold) for query in part] for part in parts]
    assert [sum("," in gold for gold in part) for part in golds] == [79, 14]
    assert [Counter(gold[0] for gold in part)["-"] for part in golds] == [3, 2]
    # None has a decimal point, so that int without its commas is the value.
    values = [int(gold.replace(",", "")) for part in golds for gold in part]
    assert [extract_answer("#### " + gold) for part in golds for gold in part] == values
