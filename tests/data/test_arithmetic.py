import re
from collections import Counter
from itertools import islice
from typing import Any, Literal

import pytest

from lit_cory.data import ArithmeticDataModule
from lit_cory.data.arithmetic import Problem, problem
from lit_cory.data.stories import Frame, Story, load_stories
from lit_cory.errors import UserError

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
STORIES = {split: load_stories(split) for split in SPLITS}
LARGEST = {1: 100, 2: 200, 3: 400, 4: 800}
# Numbers that a story gives in words: half or double, five days, a week, and the $100 bill, which is given in digits.
IN_WORDS = {2, 5, 7}


def problems(split: Split, level: int, tellings: int = 20, seed: int = 0) -> list[tuple[Story, Problem]]:
    """Each story of a split, told so many times."""
    stories = STORIES[split]
    return [(stories[i % len(stories)], problem(seed, split, i, level)) for i in range(tellings * len(stories))]


EVERY = [
    pytest.param(split, level, problems(split, level), id=f"{split}-{level}") for split in SPLITS for level in LARGEST
]
every_problem = pytest.mark.parametrize(("split", "level", "told"), EVERY)


def calculations(solution: str) -> list[tuple[int, str, int, int]]:
    """Left, operation, right and stated result of each line but the last, as ``3*4 = <<3*4=12>>12``."""
    found = []
    for line in solution.splitlines()[:-1]:
        match = re.search(r"(\d+)([-+*/])(\d+) = \$?<<(\d+[-+*/]\d+)=(\d+)>>(\d+)", line)
        assert match, line
        left, operation, right, again, result, shown = match.groups()
        assert again == f"{left}{operation}{right}"
        assert shown == result
        assert line.count("<<") == 1
        found.append((int(left), operation, int(right), int(result)))
    return found


def evaluate(left: int, operation: str, right: int) -> int:
    """By counting up or down, so that nothing is shared with the code under test."""
    if operation == "+":
        return sum((left, right))
    if operation == "-":
        return len(range(right, left))
    if operation == "*":
        return sum(left for _ in range(right))
    parts = range(right, left + 1, right)
    assert parts[-1] == left, f"{left} isn't divisible by {right}"
    return len(parts)


@every_problem
def test_solutions_are_right_and_end_in_the_answer(split: Split, level: int, told: list[tuple[Story, Problem]]) -> None:
    for _, made in told:
        steps = calculations(made.solution)
        assert len(steps) == level
        for left, operation, right, result in steps:
            assert evaluate(left, operation, right) == result
        assert made.solution.splitlines()[-1] == f"#### {made.answer}"
        assert steps[-1][-1] == made.answer


@every_problem
def test_solutions_use_every_number_of_the_question_and_no_other(
    split: Split, level: int, told: list[tuple[Story, Problem]]
) -> None:
    for _, made in told:
        given = Counter(map(int, re.findall(r"\d+", made.question)))
        steps = calculations(made.solution)
        used = Counter(number for left, _, right, _ in steps for number in (left, right))
        assert set(given) <= set(used), made
        assert set(used) <= set(given) | {result for *_, result in steps} | IN_WORDS, made


@every_problem
def test_numbers_are_small(split: Split, level: int, told: list[tuple[Story, Problem]]) -> None:
    for _, made in told:
        numbers = list(map(int, re.findall(r"\d+", made.question + made.solution)))
        assert min(numbers) >= 2
        assert max(numbers) <= LARGEST[level], made
    assert len({made.answer for _, made in told}) > 20


@pytest.mark.parametrize("split", SPLITS)
def test_every_step_of_a_story_leads_to_the_answer(split: Split) -> None:
    for story in STORIES[split]:
        for frame in story.frames:
            *before, last = frame.steps
            needed = set(last.operands)
            for step in reversed(before):
                assert step.name in needed, story.title
                needed |= set(step.operands)
            assert set(frame.numbers) <= needed, story.title


def test_there_are_enough_stories_and_each_is_told_at_every_level() -> None:
    everything = [story for split in SPLITS for story in STORIES[split]]
    assert len(everything) >= 60
    assert len({story.title for story in everything}) == len(everything)
    assert {len(story.frames) for story in everything} == {4}
    for split in SPLITS:
        for level in LARGEST:
            operations = {story.frames[level - 1].steps[-1].operation for story in STORIES[split]}
            assert operations == {"+", "-", "*", "/"}, (split, level)


def pattern(frame: Frame) -> re.Pattern[str]:
    """What a question of this frame looks like."""
    text = re.escape(" ".join((*frame.sentences, frame.question)))
    return re.compile(re.sub(r"\\\{\w+\\\}", ".+", text), re.IGNORECASE)


@pytest.mark.parametrize("level", LARGEST)
def test_training_and_held_out_stories_are_disjoint(level: int) -> None:
    assert not {s.title for s in STORIES["train"]} & {s.title for s in STORIES["test"]}
    sentences = {split: {text for s in STORIES[split] for text in s.frames[-1].sentences} for split in SPLITS}
    assert not sentences["train"] & sentences["test"]
    patterns: dict[str, list[re.Pattern[str]]] = {
        split: [pattern(story.frames[level - 1]) for story in STORIES[split]] for split in SPLITS
    }
    data = ArithmeticDataModule(level, train_size=150, test_size=150)
    data.setup("fit")
    for split, queries, other in (("train", data.train_queries, "test"), ("test", data.held_out_queries, "train")):
        for query in queries:
            assert any(p.fullmatch(query.text) for p in patterns[split]), query
            assert not any(p.fullmatch(query.text) for p in patterns[other]), query


def test_exact_evaluation() -> None:
    (story,) = [story for story in STORIES["train"] if story.title == "picking fruit"]
    frame = story.frames[2]  # (a + b - c) / d
    given = {"a": 5, "b": 7, "c": 4, "d": 4}
    assert frame.solve(given, most=12) == given | {"p": 12, "q": 8, "r": 2}
    assert frame.solve(given, most=11) is None  # 5 + 7 is too large
    assert frame.solve(given | {"d": 3}, most=12) is None  # 8 / 3 has a remainder
    assert frame.solve(given | {"d": 8}, most=12) is None  # 8 / 8 is 1, and nouns are in the plural
    assert frame.solve(given | {"c": 20}, most=12) is None  # 12 - 20 is negative


@every_problem
def test_english(split: Split, level: int, told: list[tuple[Story, Problem]]) -> None:
    for _, made in told:
        for text in (made.question, *made.solution.splitlines()[:-1]):
            assert text == " ".join(text.split())
            assert not re.search(r"[{}/=](?![^<>]*>>)", re.sub(r"\d+[-+*/]\d+ = ", "", text)), text
            assert not re.search(r"\b1 [a-z]", text), text
            assert not re.search(r"\ba [aeiou]|\ban (?!hour)[^aeiou]|\b(\w+) \1\b", text, re.IGNORECASE), text
            assert all(sentence[0].isupper() for sentence in re.split(r"(?<=[.?]) ", text)), text
        assert made.question.endswith("?")
        assert made.question.count("?") == 1
        assert all(line.endswith(".") for line in made.solution.splitlines()[:-1])


def test_nouns_and_pronouns_fit() -> None:
    told = [made for split in SPLITS for level in LARGEST for _, made in problems(split, level, tellings=6, seed=1)]
    text = " ".join(made.question for made in told)
    for one, several in (("scarf", "scarves"), ("pie", "pies"), ("necklace", "necklaces")):
        assert re.search(rf"\d {several}\b", text)
        assert not re.search(rf"\d {one}\b", text)
    for name, he, his in (("Grace", "she", "her"), ("Noah", "he", "his")):
        alone = [made.question for made in told if re.match(rf"{name} ", made.question)]
        alone = [question for question in alone if re.search(rf"\b({he}|{his})\b", question, re.IGNORECASE)]
        assert alone
        wrong = {"she": "he|his|him", "he": "she|her"}[he]
        assert not any(re.search(rf"\b({wrong})\b", question, re.IGNORECASE) for question in alone)


def test_a_problem_is_a_function_of_its_arguments() -> None:
    alone = problem(3, "train", 120, 4)
    for index in range(121):
        made = problem(3, "train", index, 4)
    assert made == alone
    others = [problem(4, "train", 120, 4), problem(3, "test", 120, 4), problem(3, "train", 169, 4)]
    assert len({p.question for p in (alone, *others)}) == 4
    assert problem(3, "train", 10**12, 1).question.endswith("?")


@pytest.mark.parametrize(("split", "level"), [("train", 0), ("train", 5), ("val", 1)])
def test_there_is_no_such_problem(split: Any, level: int) -> None:
    with pytest.raises(ValueError, match="must be train or test, and 1 to 4"):
        problem(0, split, 0, level)


def test_no_question_comes_twice() -> None:
    data = ArithmeticDataModule(level=1, train_size=4000, test_size=1500)
    data.setup("fit")
    assert [len(data.train_queries), len(data.held_out_queries)] == [4000, 1500]
    assert len({query.text for query in data.queries}) == 5500
    rows = [query.row for query in data.train_queries]
    assert rows == sorted(set(rows))


def test_batches() -> None:
    data = ArithmeticDataModule(level=2, train_size=40, test_size=30, batch_size=8, val_batch_size=20, val_size=25)
    data.setup("fit")
    assert data.source == "bundled:arithmetic"
    batches = list(islice(data.train_dataloader(), 5))
    assert [len(batch) for batch in batches] == [8] * 5
    assert [len(batch) for batch in data.val_dataloader()] == [20, 5]
    assert [len(batch) for batch in data.test_dataloader()] == [20, 10]
    drawn = [query for batch in batches for query in batch]
    assert sorted(query.row for query in drawn) == list(range(40))
    for query in drawn:
        made = problem(0, "train", query.row, 2)
        assert (query.text, query.gold) == (made.question, str(made.answer))
    made = problem(0, "test", data.held_out_queries[7].row, 2)
    assert data.held_out_queries[7].text == made.question


def test_a_range_of_levels_comes_in_equal_parts() -> None:
    rounds = len(STORIES["train"])
    queries = ArithmeticDataModule(level=(2, 4), train_size=3 * rounds)._queries("train", 3 * rounds)
    for part, level in enumerate((2, 3, 4)):
        for query in queries[part * rounds : (part + 1) * rounds]:
            assert query.text == problem(0, "train", query.row, level).question


def test_more_problems_begin_with_the_same_ones() -> None:
    few, many = (ArithmeticDataModule(seed=5)._queries("train", size) for size in (50, 200))
    assert many[:50] == few
    assert ArithmeticDataModule(seed=6)._queries("train", 50) != few


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"level": 0}, "data.level=0: must be 1 to 4, or the least and the most in this range"),
        ({"level": 5}, "data.level=5: must be 1 to 4, or the least and the most in this range"),
        ({"level": (3, 2)}, "data.level=(3, 2): must be 1 to 4, or the least and the most in this range"),
        ({"train_size": 0}, "data.train_size=0: must be 1 to 100000"),
        ({"test_size": 100_001}, "data.test_size=100001: must be 1 to 100000"),
        ({"seed": -1}, "data.seed=-1: must be at least 0"),
    ],
)
def test_numbers_out_of_range(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        ArithmeticDataModule(**keys)
    assert str(error.value) == message
