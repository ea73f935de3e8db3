"""Real agents on tiny models, and rollouts of theirs, for the tests."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from lit_cory.algorithms import PPO
from lit_cory.kl_control import KLSettings, ScoreScaling
from lit_cory.policies import LoraSettings, Policy, full_policies, shared_lora_policies
from lit_cory.policies.loading import load_model, load_tokenizer
from lit_cory.tasks.base import Task
from lit_cory.team import Team, TeamSettings
from lit_cory.types import Prompt, Query
from lit_cory.update import AgentUpdate, UpdateSettings

QUERIES = [
    Query(text, row)
    for row, text in enumerate(
        [
            "A",
            "It was not",
            "A good actor can save",
            "I loved the music, the light and the slow ending",
            "What",
            "The film was warm and funny, and I",
            "Nothing happens for two hours",
            "There is something great in",
        ]
    )
]


class LetterTask(Task):
    """Pays a point for every letter e of an answer; later roles read the earlier answers before the query."""

    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        return "".join(f"{answer}; " for answer in answers) + query.text

    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        return [float(text.count("e")) for text in responses]


class ConstantTask(LetterTask):
    """Pays the same for everything."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        return [self.value] * len(responses)


def make_agents(
    folder: Path, count: int = 2, kind: Literal["shared_lora", "full"] = "shared_lora", temperature: float = 1.0
) -> list[Policy]:
    """Agents that start at the reference."""
    torch.manual_seed(0)
    names = [f"agent_{i}" for i in range(count)]
    base, tokenizer = load_model(str(folder), "float32", torch.device("cpu")), load_tokenizer(str(folder))
    if kind == "full":
        return [*full_policies(base, tokenizer, names, temperature)]
    return [*shared_lora_policies(base, tokenizer, names, LoraSettings(r=4, alpha=8), temperature)]


def push_away(agent: Policy, size: float = 0.1, seed: int = 1) -> None:
    """Move an agent's language model off the reference, by noise of a seed of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in agent.lm_parameters().values():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def make_team(
    agents: list[Policy],
    task: Task | None = None,
    settings: TeamSettings = TeamSettings(),
    tokens: tuple[int, int] = (6, 6),
) -> Team:
    """A team on a letter-counting task."""
    return Team(agents, task or LetterTask(), settings, tokens)


def make_update(
    agent: Policy,
    settings: UpdateSettings = UpdateSettings(),
    kl: KLSettings = KLSettings(),
    scaling: ScoreScaling = "none",
) -> AgentUpdate:
    """PPO for one agent."""
    return AgentUpdate(agent, PPO(), settings, kl, scaling)


def adam(agent: Policy, lr: float = 1e-2) -> torch.optim.Adam:
    """The optimizer of one agent."""
    return torch.optim.Adam(list(agent.trainable().values()), lr=lr)


def digest(tensors: Iterable[Tensor]) -> str:
    """A hash that changes when any bit of the tensors does."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def backward(loss: Tensor) -> None:
    """What the trainer's manual_backward does on one CPU."""
    loss.backward()  # type: ignore[no-untyped-call]
