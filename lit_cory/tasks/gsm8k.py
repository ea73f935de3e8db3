"""Word problems with a number for an answer, as in GSM8K: paid for the right number, read exactly."""

import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from lit_cory.errors import UserError
from lit_cory.tasks.base import Task, Verdict
from lit_cory.types import Prompt, Query

MARKER = "####"

LIMIT = 16_384
"""Characters of a response that are read, counted from its end."""

MAX_EXPONENT = 1_000
"""A number with an exponent beyond this has no value here: 1e999999999 written out would fill the memory."""

INSTRUCTION = (
    f"Solve the problem in short steps. Finish with a line that holds {MARKER}, a space and the answer as a number."
)
REVISION = (
    "That solution may be wrong. Check it, and write a complete solution of your own that finishes in the same form."
)

Given = Literal["marker", "phrase_or_box", "bare", "none"]
"""How a response gives its answer; ``none`` where it gives none that can be read."""

_ZERO_WIDTH = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")

# Every pattern here takes linear time: a repetition is possessive, or what follows it can fail in one place only.
_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d++)?|\d++(?:\.\d++)?|(?<![\w.])\.\d++)(?:[eE][-+]?\d++)?"
_NUMBER = (
    r"(?P<sign>(?:(?<!\d)[-+])?(?:\\?[$€£¥₹₩]\s?[-+]?)?)"  # a sign stands before or after that of a currency
    rf"(?:\\[dt]?frac\s*+\{{\s*+(?P<over>[-+]?{_DECIMAL})\s*+\}}\s*+\{{\s*+(?P<under>[-+]?{_DECIMAL})\s*+\}}"
    rf"|(?P<top>{_DECIMAL})(?:\ ?/\ ?(?P<bottom>[-+]?{_DECIMAL}))?)"
)
_FIRST = re.compile(_NUMBER)
_TOKEN = re.compile(
    r"(?P<box>\\boxed\s*+\{)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<phrase>(?i:\banswer\s++is(?![a-z])))|(?P<stop>[.!?](?=\s++[A-Z]))"
    rf"|(?P<number>{_NUMBER})"
)


class Answer(NamedTuple):
    """What a response answers.

    Attributes:
        value: exact; None where there is no answer, or one without a value, such as 1/0.
        given: how it was given.
        markers: how many markers the response has. More than one often means that it ran on into another problem.
    """

    value: Fraction | None
    given: Given
    markers: int


class Gsm8kTask(Task):
    """Solve a word problem; be paid 1 for the right number and 0 for any other, or none.

    The number is read from the response alone, see :func:`read_answer`. Whether a response ended itself plays no part:
    a task sees its text, not its tokens.

    Args:
        chat: ask by messages, for a base with a chat template: earlier answers are the assistant's, each followed by
            the revision. False: plain text that the base continues.
        system: whether the instruction is a system message of its own, which not all chat templates have, and not part
            of the first user message.
        instruction: how to solve and to answer. Small models need a short one, for short answers.
        revision: what later agents are asked after each solution they read.
        format_bonus: added to the score of each response, right or wrong, that gives its answer after the marker. Below
            1, so that no wrong answer is paid like a right one. A score is then no longer an accuracy.

    Raises:
        UserError: ``format_bonus`` out of range; in ``score``, a query without a gold answer.
    """

    WAYS = get_args(Given)

    def __init__(
        self,
        chat: bool = True,
        system: bool = False,
        instruction: str = INSTRUCTION,
        revision: str = REVISION,
        format_bonus: float = 0.0,
    ) -> None:
        if not 0 <= format_bonus < 1:
            raise UserError(f"model.task.format_bonus={format_bonus}: must be at least 0 and below 1")
        if system and not chat:
            raise UserError("model.task.system=true: only a chat has a system message; leave it out, or set chat=true")
        self.chat, self.system, self.format_bonus = chat, system, format_bonus
        self.instruction, self.revision = instruction, revision

    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        """The problem with what is asked; later agents read the solutions so far as well, and are to revise them."""
        if not self.chat:
            parts = [self.instruction, f"Problem: {query.text}"]
            for answer in answers:
                parts += [f"Solution: {answer.strip()}", self.revision]
            return "\n\n".join([*parts, "Solution:"])
        first = query.text if self.system else f"{query.text}\n\n{self.instruction}"
        messages = [{"role": "system", "content": self.instruction}] if self.system else []
        messages.append({"role": "user", "content": first})
        for answer in answers:
            messages.append({"role": "assistant", "content": answer.strip()})
            messages.append({"role": "user", "content": self.revision})
        return messages

    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        """1.0 for an answer equal to the query's gold, else 0.0; and the format bonus where the marker gives it."""
        return [
            verdict.correct + self.format_bonus * (verdict.given == "marker")
            for verdict in self.verdicts(queries, responses)
        ]

    def verdicts(self, queries: Sequence[Query], responses: Sequence[str]) -> list[Verdict]:
        """Right where the number equals the gold's; answers are equal where their numbers are."""
        return [self._verdict(query, response) for query, response in zip(queries, responses, strict=True)]

    def _verdict(self, query: Query, response: str) -> Verdict:
        if query.gold is None:
            raise UserError(f"data: row {query.row} has no gold answer to compare with; use data with answers")
        answer = read_answer(response)
        text = None if answer.value is None else _short(answer.value)
        return Verdict(_equal(answer.value, query.gold), text, answer.given, answer.markers > 1)


def extract_answer(text: str) -> Fraction | None:
    """The final answer of a response, see :func:`read_answer`."""
    return read_answer(text).value


def is_correct(response: str, gold: str) -> bool:
    """Whether the response's final answer equals the first number of ``gold`` by value; False where either has none."""
    return _equal(extract_answer(response), gold)


def read_answer(text: str) -> Answer:
    r"""Read the final answer of a response. Raises nothing, whatever the text, and reads its last ``LIMIT`` characters.

    - With a marker ``####``: the first number after the last one, and no answer where none follows.
    - Else the last "answer is X" or ``\boxed{X}`` that holds a number, whichever comes later. X of the phrase ends with
      its sentence, X of a box with its closing brace; the first number there counts.
    - Else the last number.

    Numbers may have signs, thousands commas (also LaTeX's ``{,}``), decimals, an exponent, or be fractions (``1/2``,
    ``\frac{1}{2}``). U+2212 is a minus, a hyphen after a digit is no sign. Percent signs, currencies and words after
    the number are units, which do not count. Zero-width characters are ignored.
    """
    text = _tidy(text)
    markers = len(re.findall(r"#{4,}+", text))
    given: Given
    if markers:
        number, given = _FIRST.search(text, text.rindex(MARKER) + len(MARKER)), "marker"
    else:
        number, given = _without_marker(text)
    value = None if number is None else _value(number)
    return Answer(value, "none" if value is None else given, markers)


def _short(value: Fraction) -> str:
    """A text that equal numbers share; those too long to be written are told apart by their ends alone."""
    with suppress(ValueError):  # Python writes no integer of more than 4,300 digits
        return str(value)
    return f"about 2^{value.numerator.bit_length()}, {value.numerator % 10**9}/{value.denominator % 10**9}"


def _equal(answer: Fraction | None, gold: str) -> bool:
    return answer is not None and answer == extract_answer(MARKER + gold)


def _tidy(text: str) -> str:
    kept = text[-LIMIT:]
    if len(text) > LIMIT:
        kept = re.sub(r"\A[-+\d.,/]+", "", kept)  # the rest of a number that was cut would be another number
    return _ZERO_WIDTH.sub("", kept).replace("{,}", ",").replace("\N{MINUS SIGN}", "-")


def _without_marker(text: str) -> tuple[re.Match[str] | None, Given]:
    last = stated = None
    phrase = False  # an "answer is" waits for its number
    braces: list[bool] = []  # those open; True for a box that waits for its number
    boxes = 0  # how many of them are True
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "box" | "open":
                braces.append(token.lastgroup == "box")
                boxes += braces[-1]
            case "close":
                boxes -= bool(braces and braces.pop())
            case "phrase":
                phrase = True
            case "stop":
                phrase = False
            case _:
                last = token
                if phrase or boxes:  # they began after the number before this one: the latest of all
                    stated, phrase, boxes, braces = token, False, 0, []
    if stated is not None:
        return stated, "phrase_or_box"
    return last, "bare"


def _value(number: re.Match[str]) -> Fraction | None:
    top = _decimal(number["top"] or number["over"])
    bottom = _decimal(number["bottom"] or number["under"] or "1")
    if top is None or not bottom:
        return None
    return (-top if "-" in number["sign"] else top) / bottom


def _decimal(text: str) -> Fraction | None:
    """By way of Decimal: int refuses texts of more than 4,300 digits."""
    text = text.replace(",", "")
    exponent = text.lower().partition("e")[2]
    if not -MAX_EXPONENT <= Decimal(exponent or 0) <= MAX_EXPONENT:
        return None
    return Fraction(Decimal(text))
