"""Hostile files for the fuzzers: bytes and values changed at random, and the promise that they are held to."""

import copy
import io
import os
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
import yaml
from hypothesis import strategies as st

from lit_cory.__main__ import main
from lit_cory.errors import UserError

ODD: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1.5,
        float("nan"),
        float("inf"),
        -(2**63),
        2**70,
        "",
        "x",
        "\x1b[31mred",
        "../../up",
        "/etc/x",
    ),
    *([], [[]], {}, {"a": {"b": None}}, [1, "two"], "null", b"\x00\xff", (1, 2), "{{}}", "!!python/object:os.system"),
    *(
        {"class_path": "os.system", "init_args": {"command": "touch executed"}},
        {"class_path": "lit_cory.tasks.Nothing"},
    ),
]


class Bomb:
    """Runs a command where it is unpickled by a reader that lets it."""

    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


@st.composite
def changed_bytes(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """An original that was cut, or had bytes changed or put in; or nothing of the kind."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["cut", "flip", "put in", "repeat", "all"]))
        if kind == "cut":
            del data[place:]
        elif kind == "flip" and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "put in":
            data[place:place] = draw(st.binary(max_size=20))
        elif kind == "repeat":
            data[place:place] = data[max(0, place - 40) : place] * 3
        elif kind == "all":
            data = bytearray(draw(st.binary(max_size=200)))
    return bytes(data)


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested dicts and lists."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        inner = list(tree.items())
    elif isinstance(tree, list | tuple):
        inner = list(enumerate(tree[:3]))
    return [place for key, part in inner for place in [(*at, key), *paths(part, (*at, key))]]


@st.composite
def changed_tree(draw: st.DrawFn, tree: Any, odd: list[Any], within: list[tuple[Any, ...]] | None = None) -> Any:
    """The tree with one to three parts taken out or replaced."""
    changed = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(within or paths(tree)))
        parent = changed
        for key in above:
            try:
                parent = parent[key]
            except (KeyError, IndexError, TypeError):
                parent = None
        try:
            if draw(st.booleans()):
                parent[last] = copy.deepcopy(draw(st.sampled_from(odd)))
            else:
                del parent[last]
        except (KeyError, IndexError, TypeError):  # inside what was replaced before, or of a tuple
            continue
    return changed


def saved_bytes(tree: Any) -> bytes:
    """A file as torch writes it."""
    file = io.BytesIO()
    torch.save(tree, file)
    return file.getvalue()


@st.composite
def changed_zip(draw: st.DrawFn, original: bytes) -> bytes:
    """A checkpoint whose records have other names, sizes or company."""
    file, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(original))
    kind = zipfile.ZIP_DEFLATED if draw(st.booleans()) else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as target:
        for name in source.namelist():
            other = draw(st.sampled_from([name] * 8 + ["../../escaped", "/tmp/escaped", name + "x"]))
            target.writestr(other, source.read(name))
        if draw(st.booleans()):
            target.writestr("archive/data/99", b"\0" * draw(st.sampled_from([0, 10, 10**6])))
    return file.getvalue()


def refused_or_used(use: Callable[[], object]) -> None:
    """What is given is either used, or refused by a UserError; anything else fails the test."""
    with suppress(UserError):
        use()


def run_main(args: list[str]) -> int:
    """The command line's status, which is 0 or 2, with one line of error in the second case and never a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(args)
    printed = err.getvalue()
    errors = [line for line in printed.splitlines() if line.startswith("lit_cory: error: ")]
    assert status in (0, 2), printed
    assert len(errors) == (status == 2), printed
    assert "Traceback" not in printed
    assert "\x1b" not in printed
    return status


def files_below(folder: Path) -> set[str]:
    """Names of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def as_yaml(tree: Any) -> str:
    """Text of a configuration, also where it holds what YAML has no plain word for."""
    return yaml.dump(tree)
