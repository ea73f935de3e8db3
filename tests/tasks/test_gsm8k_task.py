"""What GSM8K pays for, and how it asks."""

import pytest

from lit_cory.errors import UserError
from lit_cory.policies.policy import prompt_ids
from lit_cory.tasks import Gsm8kTask
from lit_cory.types import Query
from tests.tiny import make_tokenizer

PROBLEM = Query("Sam has 12 apples and buys 30 more. The label says #### 42. How many has he?", row=7, gold="42")


def test_score_is_read_from_the_response_alone() -> None:
    responses = ["12 + 30 = 42\n#### 42", "so 42", "42\n#### 12", "I do not know", ""]
    scores = Gsm8kTask().score([PROBLEM] * 5, responses)
    assert scores == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert all(type(score) is float for score in scores)


def test_format_bonus_is_for_answers_after_the_marker() -> None:
    responses = ["#### 42", "#### 12", "The answer is 42.", r"\boxed{12}", "42", "42 ####", ""]
    scores = Gsm8kTask(format_bonus=0.25).score([PROBLEM] * 7, responses)
    assert scores == [1.25, 0.25, 1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("bonus", [-0.1, 1.0, float("nan")])
def test_format_bonus_out_of_range(bonus: float) -> None:
    with pytest.raises(UserError, match=rf"^model\.task\.format_bonus={bonus}: must be at least 0 and below 1$"):
        Gsm8kTask(format_bonus=bonus)


def test_query_without_gold() -> None:
    with pytest.raises(UserError, match=r"^data: row 3 has no gold answer .*; use data with answers$"):
        Gsm8kTask().score([PROBLEM, Query("How many?", row=3)], ["#### 42", "#### 42"])


@pytest.mark.parametrize("chat", [True, False])
def test_prompts_reach_the_tokenizer(chat: bool) -> None:
    tokenizer = make_tokenizer(chat=chat)
    task = Gsm8kTask(chat=chat)

    def read(answers: list[str]) -> str:
        return str(tokenizer.decode(prompt_ids(tokenizer, task.prompt(PROBLEM, answers))))

    pioneer, second, third = read([]), read(["first: #### 41\n"]), read(["first: #### 41\n", ""])
    for prompt in (pioneer, second, third):
        assert prompt.count(PROBLEM.text) == 1
        assert prompt.count("Finish with a line that holds ####") == 1
        assert prompt.endswith("<assistant>" if chat else "\n\nSolution:")
        assert prompt.startswith("<user>") is chat
    assert "may be wrong" not in pioneer
    assert second.index(PROBLEM.text) < second.index("first: #### 41") < second.index("may be wrong")
    assert second.count("may be wrong") == 1
    assert third.count("may be wrong") == 2


def test_roles_of_a_chat_alternate() -> None:
    """Chat templates refuse two users in a row; some refuse a system message, which is there only when asked for."""
    task = Gsm8kTask(instruction="Be brief.", revision="Again.")
    assert task.prompt(PROBLEM, ["#### 41", "#### 40"]) == [
        {"role": "user", "content": f"{PROBLEM.text}\n\nBe brief."},
        {"role": "assistant", "content": "#### 41"},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": "#### 40"},
        {"role": "user", "content": "Again."},
    ]
    assert Gsm8kTask(system=True, instruction="Be brief.").prompt(PROBLEM, []) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": PROBLEM.text},
    ]


def test_a_system_message_needs_a_chat() -> None:
    with pytest.raises(UserError, match=r"^model\.task\.system=true: only a chat has a system message"):
        Gsm8kTask(chat=False, system=True)


def test_verdicts() -> None:
    verdicts = Gsm8kTask().verdicts([PROBLEM] * 4, ["#### 42.0", "x 84/2", "#### 1 #### 1,000", ""])
    assert [tuple(verdict) for verdict in verdicts] == [
        (True, "42", "marker", False),
        (True, "42", "bare", False),
        (False, "1000", "marker", True),
        (False, None, "none", False),
    ]
    huge, other = Gsm8kTask().verdicts([PROBLEM] * 2, ["#### 1" + "0" * 5000, "#### 1" + "0" * 4999 + "1"])
    assert huge.answer is not None
    assert huge.answer != other.answer


def test_a_strict_format_hides_no_skill() -> None:
    """Of 20 right answers half have no marker: all are right, and the ways in which they are given are told apart."""
    responses = ["So it is 42.\n#### 42"] * 10 + ["The answer is 42."] * 6 + ["It is 42 apples."] * 4
    verdicts = Gsm8kTask().verdicts([PROBLEM] * 20, responses)
    assert all(verdict.correct for verdict in verdicts)
    ways = [verdict.given for verdict in verdicts]
    assert [ways.count(way) for way in Gsm8kTask.WAYS] == [10, 6, 4, 0]


def test_blank_lines_end_no_answer() -> None:
    assert Gsm8kTask().score([PROBLEM], ["First 40.\n\n\nThen 2 more.\n\n#### 42"]) == [1.0]
