"""Story frames of word problems: how they are written down, evaluated exactly and put into words.

Each paragraph of ``stories_train.txt`` and ``stories_test.txt`` is a frame::

    # picking fruit                                     its title
    fruit: apples, pears                                a slot, and what may fill it
    1 {name} picks {a:4-30} {fruit}.                    a sentence; a number from 4 to 30 is drawn for {a}
    1= {he} has {p=a/2} {fruit} left.                   a line of the solution; it computes {p}
    1? How many {fruit} does {name} have left?          the question
    2-2 ...                                             the same for level 2 alone

A line holds from its level on, or for the range of levels it names; of several questions the last one is asked. Ranges
may have a step: ``{a:10-40/5}``. Slots may hold singular and plural: ``item: pie/pies`` fills {item} and {items}. There
are always {name}, {he}, {his}, {him} and {other}, a second person. ``{p=$a*b}`` is an amount of dollars.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

LEVELS = 4
"""The highest level; a problem of level n has n arithmetic steps."""

LEAST = 2
"""The least number in a problem, computed ones included: so every counted noun is in the plural."""

Words = Mapping[str, str | int]
"""What the placeholders of a frame stand for."""

_TRIES = 100_000
_LINE = re.compile(r"(\d)(?:-(\d))?([=?]?) (.+)")
_NUMBER = re.compile(r"\{(\w+):(\d+)-(\d+)(?:/(\d+))?\}")
_STEP = re.compile(r"\{(\w+)=(\$?)(\w+)([-+*/])(\w+)\}")
_OPERATIONS: dict[str, Callable[[int, int], int | Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": Fraction,
}
_SHE = (
    "Alice Amara Anna Beth Carmen Chloe Dana Elena Emma Fatima Grace Hana Ines Julia Kate Leila Maria Mei Nina Olga"
    " Priya Rosa Sara Yuki"
)
_HE = (
    "Adam Ben Carlos Daniel David Emil Felix George Hugo Ivan Jamal Jonas Karim Leo Luis Marco Noah Omar Paul Ravi"
    " Sam Tom Victor Yusuf"
)


@dataclass(frozen=True)
class Step:
    """A line of the solution, an inner node of the expression tree.

    Attributes:
        name: of its value.
        operation: one of ``+ - * /``.
        operands: left and right: the name of a number or of an earlier step, or a constant.
        currency: "$" for dollars, else "".
        text: the line; the calculation stands for its name.
    """

    name: str
    operation: str
    operands: tuple[str, str]
    currency: str
    text: str

    def value(self, known: Mapping[str, int]) -> int | None:
        """The exact value, given those of its operands; None where it is no integer."""
        value = _OPERATIONS[self.operation](*self._numbers(known))
        return int(value) if value.denominator == 1 else None

    def line(self, words: Words, known: Mapping[str, int]) -> str:
        """The line with its calculation as GSM8K writes it: ``3*4 = $<<3*4=12>>12``."""
        left, right = self._numbers(known)
        calculation, value = f"{left}{self.operation}{right}", known[self.name]
        return _sentence(
            self.text, {**words, self.name: f"{calculation} = {self.currency}<<{calculation}={value}>>{value}"}
        )

    def _numbers(self, known: Mapping[str, int]) -> tuple[int, int]:
        left, right = (known[operand] if operand in known else int(operand) for operand in self.operands)
        return left, right


@dataclass(frozen=True)
class Frame:
    """A story at one level.

    Attributes:
        sentences: what is told, in order.
        question: what is asked.
        numbers: what the numbers given in the sentences are drawn from.
        steps: the solution; the last one's value is the answer.
        slots: what the other placeholders are drawn from: several words at a time, by placeholder.
    """

    sentences: tuple[str, ...]
    question: str
    numbers: dict[str, range]
    steps: tuple[Step, ...]
    slots: tuple[tuple[dict[str, str], ...], ...]

    def draw(self, rng: random.Random, most: int) -> tuple[str, list[str], int]:
        """Question, lines of the solution and answer, every number from ``LEAST`` to ``most``."""
        words = _people(rng)
        for slot in self.slots:
            words |= rng.choice(slot)
        for _ in range(_TRIES):
            given = {name: rng.choice(values) for name, values in self.numbers.items()}
            known = self.solve(given, most)
            if known:
                told = [_sentence(text, {**words, **known}) for text in (*self.sentences, self.question)]
                lines = [step.line({**words, **known}, known) for step in self.steps]
                return " ".join(told), lines, known[self.steps[-1].name]
        raise RuntimeError(f"no numbers fit the story that asks: {self.question}")

    def solve(self, given: Mapping[str, int], most: int) -> dict[str, int] | None:
        """Every number of the tree by name, leaves and steps; None where one is no integer or out of bounds."""
        known = dict(given)
        for step in self.steps:
            value = step.value(known)
            if value is None or not LEAST <= value <= most:
                return None
            known[step.name] = value
        return known


@dataclass(frozen=True)
class Story:
    """One everyday situation, told at each level: ``frames[n - 1]`` has n steps."""

    title: str
    frames: tuple[Frame, ...]


@cache
def load_stories(split: str) -> tuple[Story, ...]:
    """The stories of one split, "train" or "test". No story is in both."""
    text = files("lit_cory.data").joinpath(f"stories_{split}.txt").read_text(encoding="utf-8")
    return tuple(_story(paragraph.splitlines()) for paragraph in text.strip().split("\n\n"))


def _story(lines: list[str]) -> Story:
    title, *rest = lines
    slots = tuple(_slot(*line.split(": ")) for line in rest if not line[0].isdigit())
    matches = [match.groups() for line in rest if (match := _LINE.fullmatch(line))]
    frames = []
    for level in range(1, LEVELS + 1):
        here = [(kind, text) for first, last, kind, text in matches if int(first) <= level <= int(last or LEVELS)]
        told = [text for kind, text in here if kind == ""]
        frames.append(
            Frame(
                sentences=tuple(_NUMBER.sub(r"{\1}", text) for text in told),
                question=[text for kind, text in here if kind == "?"][-1],
                numbers=dict(_range(match) for text in told for match in _NUMBER.finditer(text)),
                steps=tuple(_step(text) for kind, text in here if kind == "="),
                slots=slots,
            )
        )
    return Story(title.removeprefix("# "), tuple(frames))


def _slot(name: str, choices: str) -> tuple[dict[str, str], ...]:
    return tuple(dict(zip((name, name + "s"), choice.split("/"), strict=False)) for choice in choices.split(", "))


def _range(match: re.Match[str]) -> tuple[str, range]:
    name, first, last, step = match.groups()
    return name, range(int(first), int(last) + 1, int(step or 1))


def _step(text: str) -> Step:
    ((name, currency, left, operation, right),) = _STEP.findall(text)
    return Step(name, operation, (left, right), currency, _STEP.sub(r"{\1}", text))


def _people(rng: random.Random) -> dict[str, str]:
    women = _SHE.split()
    name, other = rng.sample(women + _HE.split(), 2)
    he, his, him = ("she", "her", "her") if name in women else ("he", "his", "him")
    return {"name": name, "he": he, "his": his, "him": him, "other": other}


def _sentence(text: str, words: Words) -> str:
    told = text.format_map(words)
    return told[0].upper() + told[1:]
