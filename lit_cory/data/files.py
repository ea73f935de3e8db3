"""Rows of text from local files (parquet, csv, jsonl, txt) and from the hub."""

import glob
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from lit_cory.errors import UserError
from lit_cory.hub import require_hub

Columns = Mapping[str, str]
"""The columns to read: the configuration key that names each, for messages, and its name."""

Row = tuple[str | None, ...]
"""One row's cells in the order of the columns asked for; None is a cell without a value."""

READERS = {".parquet": "from_parquet", ".csv": "from_csv", ".jsonl": "from_json"}
_KINDS = ", ".join(READERS)
_LOCAL = "a local folder with train and test files, or one file"


def is_local(source: str) -> bool:
    """Whether ``source`` is a path and not a name on the hub: it exists, starts like a path, or has a file suffix."""
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1
    return looks_local or re.search(r"\.[A-Za-z]\w*$", source) is not None or Path(source).exists()


def existing(source: str) -> Path:
    """The path ``source`` names.

    Raises:
        UserError: there is nothing there.
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"data.source={source}: there is no such file or folder; check the path")
    return path


def part_files(folder: Path, part: str) -> list[Path]:
    """The files of one part of a folder: ``train.csv``, say, or shards ``train-*.parquet``.

    Raises:
        UserError: none, or files of several kinds.
    """
    found = sorted(p for p in folder.iterdir() if p.suffix in READERS and re.fullmatch(rf"{part}(-.*)?", p.stem))
    if not found:
        raise UserError(f"data.source={folder}: there is no {part} file ({_KINDS}); add one, or name a single file")
    if len({path.suffix for path in found}) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"data.source={folder}: {part} files of several kinds ({names}); keep one kind")
    return found


def read_files(files: Iterable[Path], columns: Columns, numbers: str | None = None) -> Iterator[Row]:
    """The rows of ``files`` in order. "NA", "null" and "007" stay text; so do the whole numbers of the key ``numbers``.

    Raises:
        UserError: an unknown kind of file, one that can't be read, a missing column, a cell that isn't text.
    """
    for path in files:
        if path.suffix not in READERS:
            raise UserError(f"data.source={path}: a file must be one of {_KINDS}, .txt; convert it")
        yield from _rows(_batches(path, columns), str(path), columns, numbers)


def read_hub(
    name: str, part: str, columns: Columns, subset: str | None = None, numbers: str | None = None
) -> Iterator[Row]:
    """The rows of one part ("train", "test") of a data set on the hub, of one of its subsets where it has several.

    Raises:
        UserError: the hub is out of reach, an unknown name, subset or part, a missing column, a cell that isn't text.
    """
    import datasets  # slow to import, and not needed for bundled data

    if not constants.is_offline_mode():  # switched off, the library may still have it in its cache
        require_hub("dataset", name, "data.source", _LOCAL)
    try:
        data = datasets.load_dataset(name, subset, split=part)
    except Exception as error:  # the library raises a dozen kinds
        raise UserError(
            f"data.source={name}: it can't be fetched ({_line(error)}); name another, or {_LOCAL}"
        ) from error
    yield from _rows(data.iter(1000), name, columns, numbers)


def read_text(path: Path) -> str:
    """The whole of a text file, in UTF-8 with or without its byte order mark.

    Raises:
        UserError: it holds something else.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"data.source: {path} isn't UTF-8 text (byte {error.start}); convert it") from error


def _batches(path: Path, columns: Columns) -> Iterator[dict[str, list[Any]]]:
    import datasets

    # Not load_dataset, which reports each load to a server on the internet. Streaming reads the file itself: no copy in
    # a cache, and never an outdated one.
    read = getattr(datasets.Dataset, READERS[path.suffix])
    options: dict[str, Any] = {}
    if path.suffix == ".csv":  # cells that look like a number or a missing value stay text
        options = {"keep_default_na": False, "converters": dict.fromkeys(columns.values(), str)}
    try:
        yield from read(glob.escape(str(path)), streaming=True, **options).iter(1000)
    except Exception as error:  # parser errors of three libraries
        raise UserError(f"data.source: {path} can't be read as {path.suffix[1:]} ({_line(error)}); mend it") from error


def _rows(batches: Iterable[dict[str, list[Any]]], source: str, columns: Columns, numbers: str | None) -> Iterator[Row]:
    """Batches of columns as rows, each cell checked to be text or None; whole numbers of one column become text."""
    number = 0
    for batch in batches:
        for key, column in columns.items():
            if column not in batch:
                there = ", ".join(sorted(batch))
                raise UserError(f"{key}={column}: {source} has no such column; name one of those it has ({there})")
        if numbers is not None:
            cells = batch[columns[numbers]]
            batch = batch | {columns[numbers]: [str(cell) if type(cell) is int else cell for cell in cells]}
        for row in zip(*(batch[column] for column in columns.values()), strict=True):
            for (key, column), cell in zip(columns.items(), row, strict=True):
                if not isinstance(cell, str | None):
                    kind = type(cell).__name__
                    raise UserError(f"{key}={column}: row {number} of {source} holds {kind}, not text; name another")
            yield row
            number += 1


def _line(error: Exception) -> str:
    """The first line of an error, or its kind where it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
