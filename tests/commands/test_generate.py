"""Talking to the agents of a checkpoint: by option, by file, line by line."""

import io
import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_cory.__main__ import main
from lit_cory.commands.generate import show
from lit_cory.types import safe_lines
from tests.agents import LetterTask
from tests.commands.conftest import TrainedRun

PROMPT = "The film was"


def generate(checkpoint: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    """What the command writes to its JSONL file."""
    assert main(["generate", f"--ckpt_path={checkpoint}", f"--out={out}", *options]) == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]


def greedy_elsewhere(checkpoint: Path, agent: str, prompt: str, folder: Path) -> str:
    """What plain transformers answers with the exported model."""
    assert main(["export", f"--ckpt_path={checkpoint}", f"--to={folder}", f"--agent={agent}", "--merge"]) == 0
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    answer = model.generate(**inputs, do_sample=False, max_new_tokens=7)[0, inputs["input_ids"].shape[1] :]
    return str(tokenizer.decode(answer, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def test_greedy_answers_are_those_of_plain_transformers_with_the_exported_agents(
    trained: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = trained("gpt2", "--model.rollouts=1")  # the two have exchanged roles once
    monkeypatch.setattr(LetterTask, "prepare", lambda *_: pytest.fail("no score is needed"))
    options = [f"--prompt={PROMPT}", "--new_tokens=7", "--greedy"]
    (record,) = generate(checkpoint, tmp_path / "team", *options)
    pioneer = greedy_elsewhere(checkpoint, "agent_1", PROMPT, tmp_path / "agent_1")
    observer = greedy_elsewhere(checkpoint, "agent_0", f"{pioneer}; {PROMPT}", tmp_path / "agent_0")
    assert record == {
        "prompt": PROMPT,
        "answers": [
            {"role": "pioneer", "agent": "agent_1", "text": pioneer},
            {"role": "observer", "agent": "agent_0", "text": observer},
        ],
    }
    (alone,) = generate(checkpoint, tmp_path / "alone", *options, "--agent=agent_1")
    assert alone == {"prompt": PROMPT, "answers": [{"role": None, "agent": "agent_1", "text": pioneer}]}
    (other_seed,) = generate(checkpoint, tmp_path / "seed", *options, "--seed=5")
    assert other_seed == record


def test_a_seed_gives_the_same_answers_again(trained: TrainedRun, tmp_path: Path) -> None:
    answers = [
        generate(trained("gpt2"), tmp_path / str(i), f"--prompt={PROMPT}", "--new_tokens=12", f"--seed={seed}")
        for i, seed in enumerate((3, 3, 4))
    ]
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_a_file_is_answered_line_by_line(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [f"Review {i}: it was" for i in range(19)]
    (tmp_path / "prompts.txt").write_text("\ufeff" + "\n\n".join(prompts) + "\n  \n", encoding="utf-8")
    capsys.readouterr()
    records = generate(trained("gpt2"), tmp_path / "out.jsonl", f"--file={tmp_path / 'prompts.txt'}")
    assert [record["prompt"] for record in records] == prompts
    assert all([a["agent"] for a in record["answers"]] == ["agent_0", "agent_1"] for record in records)
    printed = capsys.readouterr().out
    assert re.findall(r"^> (.*)$", printed, re.MULTILINE) == prompts
    assert printed.count("pioneer (agent_0): ") == printed.count("observer (agent_1): ") == 19


def test_left_out_the_limit_of_tokens_is_the_highest_of_training(trained: TrainedRun, tmp_path: Path) -> None:
    options: tuple[list[str], ...] = ([], ["--new_tokens=8"], ["--new_tokens=3"])
    prompt, checkpoint = f"--prompt={PROMPT}", trained("gpt2")
    left_out, eight, three = (generate(checkpoint, tmp_path / str(i), prompt, *more) for i, more in enumerate(options))
    assert left_out == eight != three


def test_lines_are_read_from_a_pipe_without_a_sign(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("One film\n\nAnother film"))
    checkpoint = trained("gpt2")
    capsys.readouterr()
    assert main(["generate", f"--ckpt_path={checkpoint}", "--agent=agent_1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("> ", "agent_1: "))]
    assert [line[:9] for line in lines] == ["> One fil", "agent_1: ", "> Another", "agent_1: "]


def test_a_pipe_of_other_bytes_is_refused(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert main(["generate", f"--ckpt_path={trained('gpt2')}"]) == 2
    assert "standard input: it isn't UTF-8 text" in capsys.readouterr().err


def test_at_a_terminal_there_is_a_sign_and_a_prompt_that_is_too_long_ends_nothing(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = trained("gpt2")
    capsys.readouterr()
    keyboard, terminal = pty.openpty()
    os.write(keyboard, f"{'long ' * 100}\nA film\n\x04".encode())
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["generate", f"--ckpt_path={checkpoint}", "--agent=agent_0"]) == 0
    os.close(keyboard)
    printed = capsys.readouterr()
    assert printed.out.count("> ") == 3, "two prompts and the end"
    assert "A film" not in printed.out, "what was typed isn't repeated"
    assert printed.out.count("agent_0: ") == 1
    assert re.search(r"exceed the 128 positions of", printed.err)


def test_nothing_that_a_terminal_acts_on_is_shown(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    checkpoint = trained("gpt2")
    prompt = "Red \x1b[31m, bell \x07, [bold]word[/bold]"
    capsys.readouterr()
    (record,) = generate(checkpoint, tmp_path / "out", f"--prompt={prompt}", "--new_tokens=30")
    printed = capsys.readouterr().out
    assert "> Red  [31m, bell  , [bold]word[/bold]" in printed
    texts = [answer["text"] for answer in record["answers"]]
    assert any(not c.isprintable() and c != "\n" for text in texts for c in text), "there is something to take out"
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert record["prompt"] == prompt, "the file holds what was said"


def test_answers_of_several_lines_stay_so() -> None:
    assert safe_lines("a\nb\x1b[2J\tc\r\n\u202ed") == "a\nb [2J c \n d"
    console = Console(file=io.StringIO(), width=20)
    show(console, None, [{"role": "pioneer", "agent": "agent_0", "text": "First line that is long\nsecond [b]line"}])
    written: Any = console.file
    assert written.getvalue() == "pioneer (agent_0): First line that is long\nsecond [b]line\n"


REFUSALS: dict[str, tuple[list[str], str]] = {
    "unknown agent": (["--agent=agent_7"], r"agent=agent_7: .* agent_0, agent_1; left out, the team"),
    "prompt and file": (["--prompt=A", "--file=prompts.txt"], r"file=prompts\.txt: there is a prompt too"),
    "a prompt of other bytes": (["--prompt=A \udcff film"], r"prompt: it isn't UTF-8 text"),
    "no such file": (["--file=nowhere.txt"], r"file=nowhere\.txt: can't be read"),
    "not a text": (["--file=bytes"], r"file=bytes: can't be read .*UTF-8"),
    "no text in it": (["--file=blank"], r"file=blank: it holds no text"),
    "no new tokens": (["--prompt=A", "--new_tokens=0"], r"new_tokens=0: must be at least 1"),
    "out in use": (["--prompt=A", "--out=prompts.txt"], r"out=prompts\.txt: is there already"),
    "out below nothing": (["--prompt=A", "--out=no/such/out"], r"out=no/such/out: its folder isn't there"),
    "no such checkpoint": (["--ckpt_path=nowhere.ckpt"], r"nowhere\.ckpt: no such file"),
    "prompt too long": ([f"--prompt={'long ' * 100}"], r"exceed the 128 positions of"),
    "nothing asked": (["--prompt="], r"a prompt has no tokens"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_generate_refuses_in_one_line(
    name: str,
    trained: TrainedRun,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = trained("gpt2")
    Path("prompts.txt").write_text("A film\n")
    Path("bytes").write_bytes(b"\xff\xfe\x00")
    Path("blank").write_text("\n \n")
    options, expected = REFUSALS[name]
    if name not in ("prompt too long", "nothing asked"):
        monkeypatch.setattr("lit_cory.module.build_policies", lambda *_: pytest.fail("the base was loaded"))
    config = f"--config={checkpoint.parents[1] / 'config.yaml'}"
    there = sorted(tmp_path.rglob("*"))
    capfd.readouterr()
    assert main(["generate", config, f"--ckpt_path={checkpoint}", *options]) == 2
    printed = capfd.readouterr().err
    errors = [line for line in printed.splitlines() if "error" in line.lower()]
    assert len(errors) == 1, printed
    assert re.search(expected, errors[0]), errors[0]
    assert "Traceback" not in printed
    assert sorted(tmp_path.rglob("*")) == there
    assert Path("prompts.txt").read_text() == "A film\n"
