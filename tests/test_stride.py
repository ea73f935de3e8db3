"""Held-out evaluations along the way ask fewer queries; those that a run is judged by ask all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lit_cory.__main__ import main
from lit_cory.evaluation import Evaluator, Tables
from lit_cory.types import Query
from tests.test_cli import place, tiny

__all__ = ["place"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the number of queries of each batch that is asked."""
    sizes: list[int] = []
    run = Evaluator.run_shared

    def noted(self: Evaluator, queries: Sequence[Query], *args: Any) -> Tables:
        sizes.append(len(queries))
        return run(self, queries, *args)

    monkeypatch.setattr(Evaluator, "run_shared", noted)
    return sizes


def test_the_start_and_the_end_ask_all_queries(place: Path, gpt2_base: Path, asked: list[int]) -> None:
    assert main(["fit", *tiny(gpt2_base, model__evaluation__stride=3, run_folder="run")]) == 0
    assert asked == [4, 2, 2, 1, 4, 2], "6 queries in batches of 4, at the start, after rollout 2, and after 4"
    answers = pd.read_csv(place / "run" / "answers.csv")
    assert answers["row"].nunique() == 6
    pd.testing.assert_series_equal(answers["row"], pd.read_csv(place / "run" / "answers_before.csv")["row"])


def test_a_run_that_ends_after_fewer_is_evaluated_again(place: Path, gpt2_base: Path, asked: list[int]) -> None:
    early = {"collapse.stop": True, "collapse.entropy": 1000, "collapse.patience": 2}
    assert main(["fit", *tiny(gpt2_base, model__evaluation__stride=3, run_folder="run", **early)]) == 0
    assert asked == [4, 2, 2, 1, 4, 2], "the watch ends it after rollout 2"
    assert pd.read_csv(place / "run" / "answers.csv")["row"].nunique() == 6
