"""Figures of an evaluation, worked out by hand, and the files that keep them."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from lit_cory.analysis import majority
from lit_cory.analysis.runs import VOTE
from lit_cory.evaluation import HeldOut
from lit_cory.results import answers_frame, figures, summary_frame, write_results
from lit_cory.types import Query
from tests.test_evaluation import make_table


def test_the_summary_pairs_gains_by_query() -> None:
    """Gains 1, 2, 3: mean 2 with t interval 2 -+ 2.4841 (t = 4.3027 at 2 degrees of freedom, s = 1)."""
    before, after = make_table([1, 5, 9], ["a"] * 3), make_table([2, 7, 12], ["b"] * 3)
    frame = summary_frame(["agent_0"], {"agent_0": [before]}, {"agent_0": [after]})
    row = frame.set_index("metric").loc["score"]
    assert (row["before"], row["after"], row["gain"], row["queries"]) == (5, 7, 2, 3)
    assert (row["gain_low"], row["gain_high"]) == (pytest.approx(2 - 2.4841, abs=1e-4), pytest.approx(4.4841, abs=1e-4))
    assert "before" not in summary_frame(["agent_0"], {}, {"agent_0": [after]})


def four_samples() -> list[HeldOut]:
    """Two problems, the right answers 7 and 9. Of the first 1 sample in 4 is right, of the second 3 are."""
    answers = [["7", "9"], ["8", "9"], ["8", "1"], ["3", "9"]]
    gold = ["7", "9"]
    return [make_table([1.0, 0.0], row, [a == g for a, g in zip(row, gold, strict=True)]) for row in answers]


def test_pass_at_k_and_vote_by_hand() -> None:
    """n = 4, c = 1: pass@2 = 0.5, pass@4 = 1; c = 3: pass@2 = 1. The votes are 8, wrong, and 9, right."""
    found = figures(four_samples(), (1, 2, 4), ("marker", "bare"))
    assert found["accuracy"] == [0.25, 0.75]
    assert (found["pass@2"], found["pass@4"]) == ([0.5, 1.0], [1.0, 1.0])
    assert found["vote"] == [0.0, 1.0]
    assert (found["given: marker"], found["given: bare"]) == ([1.0, 1.0], [0.0, 0.0])
    row = summary_frame(["agent_0"], {}, {"agent_0": four_samples()}, (2,)).set_index("metric").loc["pass@2"]
    assert row["after"] == 0.75, "the mean over problems"


def test_greedy_tables_know_no_more_draws_than_they_have() -> None:
    found = figures(four_samples()[:1], (1, 2, 4), ())
    assert not [name for name in found if name == "vote" or name.startswith("pass@")]


def test_tasks_without_verdicts_have_scores_alone() -> None:
    assert list(figures([make_table([1.0], ["a"])], (1,), ())) == ["score", "ref_kl", "combined", "length", "cut_off"]


def test_all_agents_vote_together() -> None:
    """Of problem 1 the agents say 7 once and 8 twice, of problem 2 they say 9 twice and 1 once."""
    a, b, c, _ = four_samples()
    tables = {"agent_0": [a, b], "agent_1": [c], "agent_1 greedy": [a]}
    frame = summary_frame(["agent_0", "agent_1"], {}, tables)
    assert frame[frame["agent"] == VOTE][["metric", "after"]].to_numpy().tolist() == [["vote", 0.5]]
    two = summary_frame(["agent_0", "agent_1"], {}, {"agent_0": [a], "agent_1": [b]})
    assert VOTE not in set(two["agent"]), "two voters have no majority"


@pytest.mark.parametrize(
    ("answers", "winner"),
    [(["7", None, "8", "8"], 2), (["7", "8"], 0), ([None, "5"], 1), ([None, None], None), ([], None)],
)
def test_majority_by_hand(answers: list[str | None], winner: int | None) -> None:
    assert majority(answers) == winner


def test_files_hold_every_answer_and_every_figure(tmp_path: Path) -> None:
    queries = [Query("How many?", 3, "7"), Query('A "quoted", long\nquestion\rwith odd ends', 8, "9")]
    tables = {"agent_0": four_samples()[:2]}
    write_results(tmp_path, summary_frame(["agent_0"], {}, tables), answers_frame(queries, tables), {"base": "b"})
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["row"], r["sample"], r["texts"], r["correct"], r["gold"]) for r in rows] == [
        ("3", "0", "7", "True", "7"),
        ("8", "0", "9", "True", "9"),
        ("3", "1", "8", "False", "7"),
        ("8", "1", "9", "True", "9"),
    ]
    assert rows[1]["query"] == queries[1].text
    saved = json.loads((tmp_path / "summary.json").read_text())
    assert saved["base"] == "b"
    assert saved["agents"]["agent_0"]["accuracy"]["after"] == 0.75


def test_numbers_that_are_none_stay_visible_in_valid_json(tmp_path: Path) -> None:
    table = dataclasses.replace(make_table([1.0, 2.0], ["a", "b"]), ref_kl=[float("nan"), float("inf")])
    tables = {"agent_0": [table]}
    write_results(tmp_path, summary_frame(["agent_0"], {}, tables), answers_frame([Query("q", 0)] * 2, tables), {})
    text = (tmp_path / "summary.json").read_text()
    assert (
        json.loads(text, parse_constant=lambda name: pytest.fail(name))["agents"]["agent_0"]["ref_kl"]["after"] is None
    )
