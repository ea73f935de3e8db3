"""Settings and fixtures that all tests share."""

import functools
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test may wait for a model hub
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Several workers, each with several threads, would slow each other down many times over.
os.environ["OMP_NUM_THREADS"] = "1" if "PYTEST_XDIST_WORKER" in os.environ else "2"

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lit_cory.__main__ import main
from tests.pair import Pair, two_processes
from tests.tiny import make_base

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of the tiny model of a family, saved once for the whole session; don't write into it."""
    return functools.cache(lambda family: make_base(tmp_path_factory.mktemp("base") / family, family))


@pytest.fixture(scope="session")
def wide_base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """As ``tiny_base``, but twice as wide: the rows of its weights are whole blocks of 64, which nf4 needs on a CPU."""
    return functools.cache(lambda family: make_base(tmp_path_factory.mktemp("wide") / family, family, width=64))


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
def small_runs(gpt2_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of seconds: cory and ppo at two seeds, each ``METHOD/SEED``."""
    folder = tmp_path_factory.mktemp("runs")
    options = {
        "model.base": gpt2_base,
        "model.rollouts": 3,
        "model.lora.r": 2,
        "model.lr": 0.05,
        "model.kl.coef": 0.05,
        "model.response_tokens": "[4, 6]",
        "model.task": "tests.agents.LetterTask",
        "model.dtype": "float32",
        "data.batch_size": 4,
        "data.val_size": 8,
        "samples.every_n_rollouts": 0,
        "trainer.val_check_interval": 1,
        "trainer.accelerator": "cpu",
    }
    for agents, name in ((2, "cory"), (1, "ppo")):
        for seed in (0, 1):
            own = {"model.agents": agents, "seed_everything": seed, "run_folder": folder / name / str(seed)}
            assert main(["fit", *[f"--{key}={value}" for key, value in (options | own).items()]]) == 0
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets beside the repository (``gsm8k``, ``imdb``), where they lie there."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real data sets aren't there: {SHARED_DATA}")
    return SHARED_DATA
