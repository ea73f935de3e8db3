"""Held-out evaluation of tiny agents."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lit_cory.evaluation import EvaluationSettings, Evaluator, HeldOut, joined, means, sampling_stream
from lit_cory.tasks.base import Verdict
from lit_cory.types import Query
from tests.agents import QUERIES, LetterTask, make_agents, make_team, push_away


class ParityTask(LetterTask):
    """An answer is the number of its letters e, right where it is even."""

    WAYS = ("some", "none")

    def verdicts(self, queries: Sequence[Query], responses: Sequence[str]) -> list[Verdict]:
        counts = [text.count("e") for text in responses]
        return [Verdict(n % 2 == 0, str(n), "some" if n else "none", n > 1) for n in counts]


def test_numbers_are_of_the_answers_given(gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 2)
    push_away(agents[1])
    evaluator = Evaluator(make_team(agents, ParityTask(), tokens=(2, 5)), EvaluationSettings(seed=3), 0.5)
    (table,) = evaluator.run(QUERIES, 0, [0, 1])["agent_1"]
    assert table.score == [text.count("e") for text in table.texts]
    assert table.correct == [text.count("e") % 2 == 0 for text in table.texts]
    assert max(table.length) == 5, "held-out answers may use the highest limit"
    with sampling_stream(3 * 1_000_003, torch.device("cpu")):
        response = agents[1].generate([query.text for query in QUERIES], 5)
    assert table.texts == response.texts
    assert table.cut_off == [float(not ended) for ended in response.ended]
    with torch.no_grad():
        reference = agents[1].reference_scores(response).logprobs
        drift = agents[1].score(response).logprobs - reference
    for row in range(len(QUERIES)):
        expected = sum(drift[row, : int(response.mask[row].sum())].tolist())
        assert table.ref_kl[row] == pytest.approx(expected, abs=1e-5)
        tokens = int(response.mask[row].sum())
        assert table.ref_nll[row] == pytest.approx(-sum(reference[row, :tokens].tolist()), abs=1e-5)
        assert table.combined[row] == pytest.approx(table.score[row] - 0.5 * expected, abs=1e-5)


def test_the_stream_is_its_own(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 2))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = Evaluator(team, EvaluationSettings(seed=1), 0.0).run(QUERIES, 0, [0, 1])
    assert torch.equal(torch.rand(3), expected)
    assert first["agent_1"] == first["agent_0"], "agents that are still equal answer equally"
    assert Evaluator(team, EvaluationSettings(seed=2), 0.0).run(QUERIES, 0, [0, 1]) != first
    assert Evaluator(team, EvaluationSettings(seed=1), 0.0).run(QUERIES, 1, [0, 1]) != first


def test_twins_are_asked_once_and_give_the_same_numbers(gpt2_base: Path) -> None:
    evaluator = Evaluator(make_team(make_agents(gpt2_base, 2)), EvaluationSettings(samples=2, greedy=True), 0.1)
    apart, together = (evaluator.run(QUERIES, 0, twins) for twins in ([0, 1], [0, 0]))
    assert list(together) == list(apart)
    for name in ("agent_0", "agent_1"):
        assert together[name] == apart[name]
        assert together[f"{name} greedy"][0].texts == apart[f"{name} greedy"][0].texts


def test_greedy_answers_are_the_likeliest_and_have_no_kl(llama_base: Path) -> None:
    agents = make_agents(llama_base, 1)
    evaluator = Evaluator(make_team(agents, tokens=(4, 4)), EvaluationSettings(greedy=True), 0.1)
    (table,) = evaluator.run(QUERIES[:3], 0, [0])["agent_0 greedy"]
    for query, text in zip(QUERIES[:3], table.texts, strict=True):
        ids = agents[0].encode([query.text], 4)[0]
        for _ in range(4):  # by hand, without a cache
            with torch.no_grad(), agents[0].model() as lm:
                best = lm(input_ids=ids, use_cache=False).logits[0, -1].argmax()
            ids = torch.cat([ids, best.view(1, 1)], dim=1)
            if best in agents[0].eos_ids():
                break
        assert str(agents[0].tokenizer.decode(ids[0], skip_special_tokens=True)).removeprefix(query.text) == text
    assert table.ref_kl == table.ref_nll == table.combined == []


def test_sampled_answers_are_the_same_without_their_kl(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 1))
    full, short = (
        Evaluator(team, EvaluationSettings(kl=kl), 0.1).run(QUERIES, 0, [0])["agent_0"] for kl in (True, False)
    )
    assert short[0].texts == full[0].texts
    assert short[0].score == full[0].score
    assert short[0].ref_kl == short[0].combined == []


def test_samples_differ_and_observers_answer_after_pioneers(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 3))
    team.exchange()  # which is training's affair
    tables = Evaluator(team, EvaluationSettings(samples=2, team=True), 0.1).run(QUERIES, 0, [0, 1, 2])
    after = ["agent_1 after agent_0", "agent_2 after agent_0 and agent_1"]
    assert list(tables) == ["agent_0", "agent_1", "agent_2", *after]
    assert all(len(samples) == 2 and samples[0].texts != samples[1].texts for samples in tables.values())
    with sampling_stream(0, torch.device("cpu")):
        first, second, _ = team.answers(QUERIES, 6, order=[0, 1, 2])
    assert tables["agent_0"][0].texts == first.texts
    assert tables["agent_1 after agent_0"][0].texts == second.texts
    assert team.order == [1, 2, 0]


def make_table(score: list[float], texts: list[str], right: Sequence[bool] = ()) -> HeldOut:
    """A table whose answers are its texts."""
    n = len(score)
    verdicts = ([], [], [], []) if not right else (list(right), list(texts), ["marker"] * n, [False] * n)
    return HeldOut(score, [0.0] * n, score, [2.0] * n, [1.0] * n, texts, *verdicts)  # type: ignore[arg-type]


def test_means_of_joined_batches() -> None:
    a, b, c = make_table([1.0, 2.0], ["a", "b"]), make_table([6.0], ["a"]), make_table([3.0, 3.0, 3.0], ["a", "b", "c"])
    both = joined([{"agent_0": [a], "x y": [a, a]}, {"agent_0": [b], "x y": [b, b]}])
    assert both["agent_0"][0].score == [1.0, 2.0, 6.0]
    expected = {"score": 3, "ref_kl": 0, "combined": 3, "response_length": 2, "cut_off": 1, "distinct": 2 / 3}
    assert means({"agent_0": [both["agent_0"][0]]}) == {f"agent_0/{key}": value for key, value in expected.items()}
    assert means({"x y": [both["x y"][0], c]})["x_y/distinct"] == 3 / 6
    assert "agent_0/ref_kl" not in means({"agent_0": [dataclasses.replace(a, ref_kl=[])]}), "not measured"
    assert math.isnan(means({"agent_0": [dataclasses.replace(a, ref_kl=[math.nan, 0.0])]})["agent_0/ref_kl"])
