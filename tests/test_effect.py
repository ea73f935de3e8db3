"""What reading the pioneer's answer does to the observer, and what a team is as an ensemble."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lit_cory.analysis.runs import BEST
from lit_cory.evaluation import EvaluationSettings, Evaluator
from lit_cory.results import summary_frame
from lit_cory.team import TeamSettings
from tests.agents import QUERIES, make_agents, make_team, push_away
from tests.test_evaluation import make_table


def test_log_probs_with_and_without_the_pioneers_answer_by_hand(llama_base: Path) -> None:
    agents = make_agents(llama_base, 2)
    push_away(agents[1])
    team = make_team(agents)
    tables = Evaluator(team, EvaluationSettings(team=True), 0.1).run(QUERIES[:3], 0, [0, 1])
    (pioneer,), (observer,) = tables["agent_0"], tables["agent_1 after agent_0"]
    assert observer.score_alone == tables["agent_1"][0].score
    assert pioneer.logprob == pioneer.logprob_alone == []
    responses = Evaluator(team, EvaluationSettings(team=True), 0.1)
    with responses.stream(0, 0):
        given = team.answers(QUERIES[:3], 6, order=[0, 1])[1]
    for row, query in enumerate(QUERIES[:3]):
        tokens = given.tokens[row, given.mask[row]]
        for found, prompt in (
            (observer.logprob, f"{pioneer.texts[row]}; {query.text}"),
            (observer.logprob_alone, query.text),
        ):
            # One row without padding, a softmax over the whole sequence.
            ids = torch.tensor([agents[1].tokenizer(prompt)["input_ids"]])
            with torch.no_grad(), agents[1].model() as lm:
                logits = lm(input_ids=torch.cat([ids, tokens[None]], dim=1)).logits[0, ids.shape[1] - 1 : -1]
            expected = sum(
                float(torch.log_softmax(line, dim=0)[token]) for line, token in zip(logits, tokens, strict=True)
            )
            assert found[row] == pytest.approx(expected, abs=1e-4)
        assert abs(observer.logprob[row] - observer.logprob_alone[row]) > 1e-3


def test_who_reads_nothing_is_not_moved(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 2), settings=TeamSettings(knowledge_transfer=False))
    tables = Evaluator(team, EvaluationSettings(team=True), 0.1).run(QUERIES, 0, [0, 1])
    (table,) = tables["agent_1 after agent_0"]
    assert table.logprob == table.logprob_alone


def test_effects_are_paired_by_query_and_averaged_over_samples() -> None:
    """Scores 3, 1 against 1, 1: gains 2, 0; second sample 0, 0: means 1, 0, so 0.5. Log-probs -2, -3 against -5, -3."""
    first = dataclasses.replace(
        make_table([3, 1], ["a", "b"]), logprob=[-2.0, -3.0], logprob_alone=[-5.0, -3.0], score_alone=[1.0, 1.0]
    )
    second = dataclasses.replace(first, score=[1.0, 1.0], logprob=[-1.0, -1.0], logprob_alone=[-1.0, -1.0])
    tables = {"agent_1": [make_table([1, 1], ["a", "b"])] * 2, "agent_1 after agent_0": [first, second]}
    frame = summary_frame(["agent_0", "agent_1"], {}, tables).set_index(["agent", "metric"])["after"]
    effect = frame["agent_1 after agent_0: effect of reading"]
    assert effect.to_dict() == {"score": 0.5, "logprob": 0.75}


def test_best_of_all_agents_by_hand() -> None:
    """Sample 1: max(1, 4), max(5, 2) = 4, 5; sample 2: max(0, 0), max(1, 3) = 0, 3; means 2, 4, so 3."""
    tables = {
        "agent_0": [make_table([1, 5], ["a", "b"]), make_table([0, 1], ["a", "b"])],
        "agent_1": [make_table([4, 2], ["a", "b"]), make_table([0, 3], ["a", "b"])],
        "agent_0 greedy": [make_table([9, 9], ["a", "b"])],
    }
    frame = summary_frame(["agent_0", "agent_1"], {}, tables)
    assert frame[frame["agent"] == BEST][["metric", "after", "queries"]].to_numpy().tolist() == [["score", 3, 2]]
    alone = summary_frame(["agent_0"], {}, {"agent_0": tables["agent_0"]})
    assert BEST not in set(alone["agent"])
