import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.tasks.gsm8k import LIMIT, extract_answer, is_correct, read_answer

NUMBERS = [  # how a number is written, and its value
    ("42", 42),
    ("+7", 7),
    ("-5", -5),
    ("\u22125", -5),
    ("-$5", -5),
    ("$-5", -5),
    (r"-\$5", -5),
    ("$1,234.00", 1234),
    ("1,234,567", 1234567),
    ("1{,}234", 1234),
    ("1,2", 1),
    ("1,2345", 1),
    ("1,234,5678", 1234),
    ("1234,567", 1234),
    (",500", 500),
    ("1,,234", 1),
    ("3.50", Fraction(7, 2)),
    (".5", Fraction(1, 2)),
    ("-.5", Fraction(-1, 2)),
    ("...5", 5),
    ("0.1", Fraction(1, 10)),
    ("1/2", Fraction(1, 2)),
    ("-3/4", Fraction(-3, 4)),
    ("3 / -4", Fraction(-3, 4)),
    ("0.5/0.25", 2),
    ("1,000/10", 100),
    (r"\frac{1}{2}", Fraction(1, 2)),
    (r"-\dfrac{ 3 }{4}", Fraction(-3, 4)),
    (r"\tfrac{3}{-1,000}", Fraction(-3, 1000)),
    (r"\frac{a}{7}", 7),
    ("1/0", None),
    (r"\frac{1}{0.0}", None),
    ("50%", 50),
    (r"50\%", 50),
    ("60km/h", 60),
    ("8each", 8),
    ("2e3", 2000),
    ("2E+3", 2000),
    ("25e-1", Fraction(5, 2)),
    ("1e0000000003", 1000),
    ("1e999999999", None),
    ("1e-1001", None),
    ("1/1e999999999", None),
    ("9007199254740993", 2**53 + 1),
    ("1\u200b2\ufeff3", 123),
    ("\u200b-\u20606", -6),
    ("\uff14\uff12", 42),  # full-width digits
    ("\u0664\u0662", 42),  # Arabic-Indic digits
    ("\u00b2", None),  # a superscript is no digit
    ("\u4e94", None),  # nor is the Chinese numeral
    ("inf", None),
    ("-", None),
    (",", None),
    (", , ,", None),
    (".", None),
    ("", None),
]

PLACES = [  # which number of a response counts
    ("so #### 8", 8, "marker"),
    ("####\n\n8 pears", 8, "marker"),
    ("##### 8", 8, "marker"),
    ("### 8", 8, "bare"),
    ("##\u200b## 8", 8, "marker"),
    ("#### 4 or rather #### 8", 8, "marker"),
    ("#### x = 8, not 4", 8, "marker"),
    ("#### 8" + " and that is all there is to say" * 200 + ", page 4", 8, "marker"),
    ("4 pears ####", None, "none"),
    ("The answer is 4. #### none", None, "none"),
    (r"\boxed{4} #### 1/0", None, "none"),
    ("#### 8. The answer is 4", 8, "marker"),
    ("THE ANSWER IS 8, as 2 * 4 shows", 8, "phrase_or_box"),
    ("The answer\n is: 8 of 9", 8, "phrase_or_box"),
    ("The answer is\n\n**8**\n\nfor 4 people", 8, "phrase_or_box"),
    ("The answer is approx. 8 in 4 weeks", 8, "phrase_or_box"),
    ("The answer is 8! I hope my answer is right. Took me 4 tries.", 8, "phrase_or_box"),
    ("The answer is clear. Ann has 4 and Bo has 8", 8, "bare"),
    ("The answer isn't 4, it could be 8", 8, "bare"),
    ("Answer: 4 or 8", 8, "bare"),
    (r"The answer is 4, that is \boxed{8} in 9 days", 8, "phrase_or_box"),
    (r"\boxed{4}, or better: the answer is 8 (9 at most)", 8, "phrase_or_box"),
    (r"\boxed {x = 8 + 0} 4", 8, "phrase_or_box"),
    (r"\boxed{\text{about } 8 \text{ of } 9} 4", 8, "phrase_or_box"),
    (r"\boxed{\boxed{8}, 4} 9", 8, "phrase_or_box"),
    (r"\boxed{\boxed{} 8} 4", 8, "phrase_or_box"),
    (r"\boxed{8} and \boxed{none} of 4", 8, "phrase_or_box"),
    (r"\boxed{} 4 {8}", 8, "bare"),
    (r"} } \boxed{{8}} 4", 8, "phrase_or_box"),
    (r"\boxed{8", 8, "phrase_or_box"),
    (r"\boxed{\frac{16}{2}} of 4", 8, "phrase_or_box"),
    (r"\boxed{\$8{,}000.00}", 8000, "phrase_or_box"),
    ("12-4=8", 8, "bare"),
    ("12-4", 4, "bare"),
    ("12-$4", 4, "bare"),
    ("12\u22124", 4, "bare"),
    ("from 12 to -4", -4, "bare"),
    ("4-12=-8", -8, "bare"),
    ("4, 6 and 8, as said, .", 8, "bare"),
    ("2,4,8", 8, "bare"),
    ("10, 200", 200, "bare"),
    ("<<2*4=8>>8 pears", 8, "bare"),
    ("the 8th", 8, "bare"),
    ("nothing", None, "none"),
    ("", None, "none"),
]


@pytest.mark.parametrize(("written", "value"), NUMBERS)
def test_numbers_by_value(written: str, value: Fraction | int | None) -> None:
    assert extract_answer(f"3 #### {written}") == value
    if value is not None:
        assert extract_answer(f"3. The answer is {written}") == value
        assert extract_answer(f"3 \\boxed{{{written}}} 4") == value


@pytest.mark.parametrize(("response", "value", "form"), PLACES)
def test_which_number_counts_and_how_it_was_given(response: str, value: int | None, form: str) -> None:
    answer = read_answer(response)
    assert (answer.value, answer.given) == (value, form)
    assert is_correct(response, str(value)) == (value is not None)
    assert not is_correct(response, "41")


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        ("#### 72.00", "72", True),
        ("#### 1234", "1,234", True),
        ("#### 1,080", " 1,080\n", True),
        ("#### 0.5", "1/2", True),
        ("#### 5", "-5", False),
        ("#### -5", "\u22125", True),
        ("#### 50", "0.5", False),
        ("#### 33.33", "33", False),
        ("#### 9007199254740993", "9007199254740992", False),  # equal as floats
        ("nothing", "nothing", False),
        ("#### 0", "", False),
        ("#### 30 and on: how many are 4 * 5? #### 20", "30", False),
    ],
)
def test_compared_with_gold(response: str, gold: str, right: bool) -> None:
    assert is_correct(response, gold) is right


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("### 1", 0), ("#### 1", 1), ("######## 1", 1), ("#### 1 #### 2\n##### 3", 3)]
)
def test_markers_are_counted(text: str, count: int) -> None:
    assert read_answer(text).markers == count


def test_the_end_of_a_long_response_is_read() -> None:
    assert extract_answer("#### 4\n" + "word " * (LIMIT // 5 - 10)) == 4
    assert extract_answer("#### 4\n" + "word " * LIMIT) is None
    assert extract_answer("word " * 10**6 + "#### 42") == 42
    assert extract_answer("x" * 10**6 + "####42") == 42
    assert extract_answer("6" * 10 + "x" * (LIMIT - 5)) is None  # half of a number is another number
    assert extract_answer("-6,666" + "x" * (LIMIT - 4)) is None
    assert extract_answer("7" * (2 * LIMIT)) is None


def test_numbers_of_five_thousand_digits() -> None:
    nines = "9" * 5000
    assert is_correct(f"#### {nines}", nines)
    assert not is_correct(f"#### {nines}", nines[1:] + "8")
    assert extract_answer("#### 1" + "0" * 4999) == 10**4999
    assert extract_answer("#### 0." + "0" * 4999 + "1") == Fraction(1, 10**5000)
    assert extract_answer("#### 1e" + nines) is None


HOSTILE = [
    (r"\boxed{" * 2000 + "}" * 1998 + "5 6", 5),
    (r"\boxed{" * 2000 + "}" * 2000 + "5 6", 6),
    (r"\boxed{1}" * 1500 + r"\boxed{}", 1),
    ("{" * LIMIT, None),
    ("1,234," * 2000 + "5678", 5678),
    ("1," * 8000, 1),
    (r"\frac{" * 2000 + "5", 5),
    (r"\frac{1" * 2000, 1),
    ("answer is " * 1500 + "5 6", 5),
    ("answer" + " " * 16000 + "5", 5),
    ("." + " " * 16000 + "5", 5),
    ("-$" * 8000 + "5", -5),
    ("1/" * 8000 + "5", 5),  # 4,000 fractions 1/1 before it
    ("9" * 8000 + "/" + "3" * 8000, 3),
]


@pytest.mark.parametrize(("response", "value"), HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_hostile_repetitions(response: str, value: Fraction | int | None) -> None:
    assert extract_answer(response) == value


PIECES = ["####", "The answer is", "\\boxed{", "\\frac{", "}{", "{,}", "1,234", "1/0", "1e999999999", ". B"]
FRAGMENTS = st.sampled_from([*PIECES, *"{},.-+/$%eE07\n \u2212\u0663\uff15\u00b2\u200b\ufeff\ud800"])
TEXTS = st.one_of(
    st.lists(FRAGMENTS, max_size=20).map("".join),
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.builds(lambda part, times: part * times, st.lists(FRAGMENTS, max_size=3).map("".join), st.integers(0, 300)),
)


@settings(max_examples=2000, deadline=None)
@given(TEXTS, TEXTS)
def test_no_text_raises(response: str, gold: str) -> None:
    answer = read_answer(response)
    assert (answer.value is None) == (answer.given == "none")
    assert answer.markers > 0 or answer.given != "marker"
    assert is_correct(response, gold) == (answer.value is not None and answer.value == extract_answer("####" + gold))


@settings(max_examples=1000, deadline=None)
@given(TEXTS, st.integers(-(10**30), 10**30), st.integers(0, 20))
def test_a_final_marker_gives_any_decimal(before: str, digits: int, places: int) -> None:
    shifted = f"{abs(digits):0{places + 1}d}"
    whole, rest = shifted[: len(shifted) - places], shifted[len(shifted) - places :]
    written = f"{'-' if digits < 0 else ''}{int(whole):,}" + (f".{rest}" if places else "")
    answer = read_answer(f"{before}\n#### {written}")
    assert (answer.value, answer.given) == (Fraction(digits, 10**places), "marker")


def test_the_cases_beside_the_repository(shared_data: Path) -> None:
    path = shared_data / "gsm8k" / "answer_cases.jsonl"
    if not path.is_file():
        pytest.skip(f"answer cases aren't there: {path}")
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(cases) == 85
    wrong = [case for case in cases if is_correct(case["response"], case["gold"]) is not case["correct"]]
    assert not wrong
