"""``python -m lit_cory generate``: talk to the agents of a checkpoint."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console
from rich.text import Text

from lit_cory.commands.load import load_agents
from lit_cory.errors import Interrupted, UserError
from lit_cory.module import CoryLightningModule
from lit_cory.team import role_name
from lit_cory.types import Query, one_line, safe_lines

BATCH = 16
"""Prompts of a file that are answered at a time."""

Answers = list[dict[str, str | None]]
"""What was answered to one prompt: ``role`` (None for an agent asked alone), ``agent`` and ``text`` of each answer."""


def generate(
    module: CoryLightningModule,
    checkpoint: str,
    device: torch.device,
    agent: str | None = None,
    prompt: str | None = None,
    file: str | None = None,
    out: str | None = None,
    greedy: bool = False,
    seed: int = 0,
    new_tokens: int | None = None,
) -> None:
    """Answer prompts and show the answers; without ``prompt`` and ``file``, line by line from the standard input.

    Args:
        module: as configured, without agents yet.
        checkpoint: of its run.
        device: where to compute.
        agent: one that answers alone; None for the team, in the roles that the checkpoint holds.
        prompt: one prompt.
        file: a text file, one prompt a line.
        out: a new JSONL file, a line a prompt: ``prompt`` and ``answers``, each with ``role``, ``agent`` and ``text``.
        greedy: the likeliest token each time, instead of sampling.
        seed: of the sampling.
        new_tokens: limit of an answer; None for the highest of training.

    Raises:
        UserError: for arguments that can't be used, before anything is loaded, and as ``load_agents`` does.
    """
    check(module, agent, prompt, file, out, new_tokens)
    batches = [[prompt]] if prompt is not None else read_prompts(file) if file is not None else typed_prompts()
    load_agents(module, checkpoint, device)
    torch.manual_seed(seed)
    terminal = prompt is None and file is None and sys.stdin.isatty()
    ask = partial(answer, module, agent, new_tokens or module.response_tokens[1], greedy)
    console = Console()
    with ExitStack() as stack:
        sink = stack.enter_context(new_file(out)) if out is not None else None
        for text, given in answered(batches, ask, terminal):
            show(console, None if terminal else text, given)
            if sink is not None:
                print(json.dumps({"prompt": text, "answers": given}, ensure_ascii=False), file=sink, flush=True)


def answered(
    batches: Iterable[list[str]], ask: Callable[[list[str]], list[Answers]], terminal: bool
) -> Iterator[tuple[str, Answers]]:
    """Each prompt with its answers; at a terminal, one that is too long ends no conversation."""
    for batch in batches:
        try:
            answers = ask(batch)
        except UserError as error:
            if not terminal:
                raise
            print(f"lit_cory: error: {one_line(str(error))}", file=sys.stderr)
            continue
        yield from zip(batch, answers, strict=True)


def check(
    module: CoryLightningModule,
    agent: str | None,
    prompt: str | None,
    file: str | None,
    out: str | None,
    new_tokens: int | None,
) -> None:
    """Raise a UserError for the first argument of :func:`generate` that can't be used."""
    if agent is not None and agent not in module.agent_names:
        raise UserError(
            f"agent={agent}: no such agent; there are {', '.join(module.agent_names)}; left out, the team answers"
        )
    if prompt is not None and prompt.encode("utf-8", "ignore").decode() != prompt:
        raise UserError("prompt: it isn't UTF-8 text; convert it first")
    if prompt is not None and file is not None:
        raise UserError(f"file={file}: there is a prompt too; give one of them")
    if new_tokens is not None and new_tokens < 1:
        raise UserError(f"new_tokens={new_tokens}: must be at least 1")
    if out is not None and Path(out).exists():
        raise UserError(f"out={out}: is there already, and nothing is overwritten; name a new file")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise UserError(f"out={out}: its folder isn't there; make it, or name another")


def new_file(path: str) -> TextIO:
    """A new text file to write to."""
    try:
        return Path(path).open("x", encoding="utf-8")
    except OSError as error:
        raise UserError(f"out={path}: can't be written ({error.strerror}); name another file") from error


def read_prompts(path: str) -> list[list[str]]:
    """The lines of a file that aren't blank, in batches.

    Raises:
        UserError: if it can't be read as UTF-8 text, or has no such line.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"file={path}: can't be read ({error}); name a UTF-8 text file, one prompt a line") from error
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise UserError(f"file={path}: it holds no text; write one prompt a line")
    return [lines[start : start + BATCH] for start in range(0, len(lines), BATCH)]


def typed_prompts() -> Iterator[list[str]]:
    """The lines of the standard input that aren't blank, one by one; people at a terminal are asked for them."""
    while True:
        try:
            line = input("> ") if sys.stdin.isatty() else sys.stdin.readline()
        except (EOFError, Interrupted):
            print()
            return
        except UnicodeDecodeError as error:
            raise UserError(f"standard input: it isn't UTF-8 text ({error}); convert it first") from error
        if line == "" and not sys.stdin.isatty():
            return
        if line.strip():
            yield [line.rstrip("\n")]


@torch.no_grad()
def answer(
    module: CoryLightningModule, agent: str | None, new_tokens: int, greedy: bool, prompts: list[str]
) -> list[Answers]:
    """What the team, or one agent alone, answers to each prompt, in role order."""
    labels: list[tuple[str | None, str]]
    queries, team, names = [Query(text, row) for row, text in enumerate(prompts)], module.team, module.agent_names
    if agent is None:
        responses = team.answers(queries, new_tokens, greedy=greedy)
        labels = [(role_name(role), names[index]) for role, index in enumerate(team.order)]
    else:
        responses = [team.alone(names.index(agent), queries, new_tokens, greedy=greedy)]
        labels = [(None, agent)]
    given = [(role, name, response.texts) for (role, name), response in zip(labels, responses, strict=True)]
    return [
        [{"role": role, "agent": name, "text": texts[i]} for role, name, texts in given] for i in range(len(queries))
    ]


def show(console: Console, prompt: str | None, answers: Answers) -> None:
    """Print the answers to one prompt, and the prompt where it isn't on the screen already."""
    lines = [] if prompt is None else [Text.assemble(("> ", "bold"), safe_lines(prompt))]
    for given in answers:
        label = given["agent"] if given["role"] is None else f"{given['role']} ({given['agent']})"
        lines.append(Text.assemble((f"{label}: ", "bold cyan"), safe_lines(given["text"] or "")))
    console.print(*lines, sep="\n", soft_wrap=True)
