"""A task that fails, and policies that collapse: one line that says who, when and what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.callbacks import CollapseWatch
from lit_cory.errors import UserError
from lit_cory.guards import checked_scores
from lit_cory.rollout_stats import rollout_scalars
from lit_cory.types import Query, Response, Rollout, UpdateStats
from tests.agents import LetterTask
from tests.test_cli import place, tiny
from tests.test_resume import options, state

__all__ = ["place"]

QUERIES = [Query("a", 3), Query("b", 7)]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0], "LetterTask.score gave 1 scores for 2 answers"),
        ([[1.0], [2.0]], r"LetterTask.score gave an array of shape \[2, 1\] of scores for 2 answers"),
        (["good", "bad"], "LetterTask.score gave no list of numbers"),
        (None, "LetterTask.score gave no list of numbers"),
        ([1.0, None], "LetterTask.score gave no list of numbers"),
        (0.5, r"LetterTask.score gave an array of shape \[\] of scores"),
    ],
)
def test_scores_that_are_not_one_number_an_answer(scores: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        checked_scores(LetterTask(), scores, QUERIES, "agent_0")


@pytest.mark.parametrize("scores", [[1, 2], (1.0, 2.0), torch.tensor([1.0, 2.0], dtype=torch.float64)])
def test_any_row_of_numbers_will_do(scores: Any) -> None:
    assert checked_scores(LetterTask(), scores, QUERIES, "agent_0").tolist() == [1.0, 2.0]


def test_scores_that_are_not_finite_are_told_with_their_row() -> None:
    text = "agent_1: LetterTask.score gave 1 of 2 scores that are not finite (inf for the answer to row 7)"
    with pytest.warns(UserWarning, match=re.escape(text)):
        checked_scores(LetterTask(), [1.0, 1e300], QUERIES, "agent_1")


def failing(rollout: int) -> Callable[..., list[float]]:
    """A score that fails for the observer of one rollout; the pioneer's is asked for first."""
    calls = [0]

    def score(self: object, queries: list[Query], responses: list[str]) -> list[float]:
        calls[0] += 1
        if calls[0] == 2 * rollout:
            raise ValueError("no more money\nand more")
        return [0.5] * len(responses)

    return score


def test_a_task_that_raises_ends_the_run_with_agent_rollout_and_remedy(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lit_cory.tasks import SentimentTask

    monkeypatch.setattr(SentimentTask, "score", failing(3))
    quiet = {"trainer.num_sanity_val_steps": 0, "samples.every_n_rollouts": 0, "exchange.every_n_rollouts": 0}
    assert main(["fit", *options(gpt2_base, run_folder="run", **quiet)]) == 2
    printed = capfd.readouterr().err
    expected = (
        r"lit_cory: error: rollout 3: agent_1: SentimentTask\.score raised ValueError: no more money "
        r"\(test_guards\.py, line \d+\); mend the task, then resume the run\n"
    )
    assert re.search(expected, printed), printed
    assert "Traceback" not in printed
    assert state(place / "run")["cory"]["rollouts_done"] == 2


def watched(watch: CollapseWatch, values: list[dict[str, float]]) -> list[list[str]]:
    """What the watch says after each rollout of one agent."""
    usual = {"distinct": 1.0, "response_length": 8.0, "empty": 0.0, "entropy": 2.0, "ref_kl": 1.0}
    said = []
    for number, changed in enumerate(values, start=1):
        scalars = {f"train/agent_0/{key}": value for key, value in (usual | changed).items()}
        said.append(watch.look("agent_0", SimpleNamespace(scalars=scalars, rollouts_done=number)))  # type: ignore[arg-type]
    return said


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"distinct": 0.1}, "the share of different answers is 0.1, 2 rollouts in a row below 0.2 (collapse.distinct)"),
        ({"response_length": 1.0}, "the mean length of answers in tokens is 1, 2 rollouts in a row below 1.5"),
        ({"empty": 0.75}, "the share of empty answers is 0.75, 2 rollouts in a row above 0.5 (collapse.empty)"),
        ({"entropy": 0.01}, "the mean entropy in nats is 0.01, 2 rollouts in a row below 0.02 (collapse.entropy)"),
        ({"ref_kl": 32.0}, "the drift from the reference in nats a token is 4, 2 rollouts in a row above 3"),
    ],
)
def test_each_kind_of_collapse_is_told_once_until_it_is_over(changed: dict[str, float], words: str) -> None:
    said = watched(CollapseWatch(patience=2), [changed, {}, changed, changed, changed, {}, changed, changed])
    assert [len(lines) for lines in said] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert f"agent_0, rollout 4: {words}" in said[3][0]
    assert "raise model.kl.coef or lower model.lr" in said[3][0]


def test_a_run_that_collapses_ends_well_where_it_is_asked_to(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # No distribution over 385 tokens has 100 nats.
    asked = {"collapse.entropy": 100, "collapse.patience": 2, "collapse.stop": "true"}
    long = {"checkpoint.every_n_rollouts": 10, "trainer.val_check_interval": 10}
    assert main(["fit", *options(gpt2_base, run_folder="run", **long, **asked)]) == 0
    printed = capfd.readouterr()
    assert printed.err.count("lit_cory: warning: agent_0, rollout 2: the mean entropy in nats is ") == 1
    assert "lit_cory: the run ends here (collapse.stop=true)" in printed.err
    assert state(place / "run")["cory"]["rollouts_done"] == 2
    assert (place / "run" / "summary.csv").is_file()
    scalars = read_scalars(place / "run")
    assert scalars[scalars["tag"] == "val/agent_0/score"]["step"].tolist() == [0, 2]
    assert main(["fit", "--resume", "run", "--model.rollouts=3"]) == 0, "who resumes wants it to go on"
    assert state(place / "run")["cory"]["rollouts_done"] == 3


def test_empty_answers_are_counted() -> None:
    mask = torch.ones(4, 1, dtype=torch.bool)
    response = Response(mask.long(), mask, mask.long(), mask, mask[:, 0], ["", " \n", "a", "b"])
    rollout = Rollout(0, 0, response, torch.zeros(4), torch.zeros(4))
    assert rollout_scalars(rollout, 0.0, UpdateStats({"ref_kl": 0.0}))["empty"] == 0.5


def test_answers_without_any_text_train_as_others_do(
    place: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lit_cory.policies import Policy

    # All answers end at once: the only id that counts as an end is whatever was sampled first.
    monkeypatch.setattr(Policy, "eos_ids", lambda self: torch.arange(400))
    assert main(["fit", *tiny(gpt2_base, run_folder="run", model__rollouts=2)]) == 0
    scalars = read_scalars(place / "run").set_index(["tag", "step"])["value"]
    assert scalars["train/agent_0/response_length", 2] == 1
    assert scalars["train/agent_0/skipped", 2] == 0
