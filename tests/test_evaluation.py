"""Held-out evaluation of tiny agents."""

from pathlib import Path

import pytest
import torch

from lit_cory.evaluation import HeldOut, evaluate_alone, sampling_stream
from lit_cory.summary import summary_frame
from tests.agents import QUERIES, make_agents, make_team, push_away


def test_numbers_are_of_the_answers_given(gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 2)
    push_away(agents[1])
    table = evaluate_alone(make_team(agents, tokens=(2, 5)), 1, QUERIES, combined_kl_coef=0.5, seed=3)
    assert table.score == [text.count("e") for text in table.texts]
    assert max(table.length) == 5, "held-out answers may use the highest limit"
    with sampling_stream(3, torch.device("cpu")):
        response = agents[1].generate([query.text for query in QUERIES], 5)
    assert table.texts == response.texts
    with torch.no_grad():
        drift = agents[1].score(response).logprobs - agents[1].reference_scores(response).logprobs
    for row in range(len(QUERIES)):
        expected = sum(drift[row, : int(response.mask[row].sum())].tolist())
        assert table.ref_kl[row] == pytest.approx(expected, abs=1e-5)
        assert table.combined[row] == pytest.approx(table.score[row] - 0.5 * expected, abs=1e-5)


def test_the_stream_is_its_own(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 2))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = evaluate_alone(team, 0, QUERIES, 0.0, seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert evaluate_alone(team, 1, QUERIES, 0.0, seed=1) == first, "agents that are still equal answer equally"
    assert evaluate_alone(team, 0, QUERIES, 0.0, seed=2) != first


def table(score: list[float], texts: list[str]) -> HeldOut:
    return HeldOut(score, [0.0] * len(score), score, [2.0] * len(score), texts)


def test_means_of_joined_batches() -> None:
    joined = table([1.0, 2.0], ["a", "b"]) + table([6.0], ["a"])
    assert joined.score == [1.0, 2.0, 6.0]
    assert joined.means() == {"score": 3, "ref_kl": 0, "combined": 3, "response_length": 2, "distinct": 2 / 3}


def test_the_summary_pairs_gains_by_query() -> None:
    """Gains 1, 2, 3: mean 2 with t interval 2 -+ 2.4841 (t = 4.3027 at 2 degrees of freedom, s = 1)."""
    before, after = table([1, 5, 9], ["a"] * 3), table([2, 7, 12], ["b"] * 3)
    row = summary_frame(["agent_0"], [before], [after]).set_index("metric").loc["score"]
    assert (row["before"], row["after"], row["gain"], row["queries"]) == (5, 7, 2, 3)
    assert (row["gain_low"], row["gain_high"]) == (pytest.approx(2 - 2.4841, abs=1e-4), pytest.approx(4.4841, abs=1e-4))
    assert "before" not in summary_frame(["agent_0"], [], [after])
