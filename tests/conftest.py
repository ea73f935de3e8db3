"""Settings and fixtures that all tests share."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test may wait for a model hub
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.pair import Pair, two_processes
from tests.tiny import make_base

torch.set_num_threads(2)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of the tiny model of a family, saved once for the whole session; don't write into it."""
    folders: dict[str, Path] = {}

    def base(family: str) -> Path:
        if family not in folders:
            folders[family] = make_base(tmp_path_factory.mktemp("base") / family, family)
        return folders[family]

    return base


@pytest.fixture(scope="session")
def gpt2_base(tiny_base: Callable[[str], Path]) -> Path:
    """Learned positions, dropout 0.1 in its config, no pad token."""
    return tiny_base("gpt2")


@pytest.fixture(scope="session")
def llama_base(tiny_base: Callable[[str], Path]) -> Path:
    """Rotary positions, untied output matrix, no pad token."""
    return tiny_base("llama")


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two connected processes."""
    with two_processes(tmp_path_factory.mktemp("pair")) as processes:
        yield processes


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets beside the repository (``gsm8k``, ``imdb``), where they lie there."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real data sets aren't there: {SHARED_DATA}")
    return SHARED_DATA
