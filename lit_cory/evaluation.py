"""Each agent alone on held-out queries: the numbers that runs are compared by."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

import torch

from lit_cory.team import Team
from lit_cory.types import Query


@dataclass(frozen=True)
class HeldOut:
    """One agent alone on held-out queries, an entry a query.

    Attributes:
        score: the task's score.
        ref_kl: nats, k1 summed over the response, of the agent against the reference.
        combined: score - combined_kl_coef * ref_kl.
        length: response tokens.
        texts: the answers.
    """

    score: list[float]
    ref_kl: list[float]
    combined: list[float]
    length: list[float]
    texts: list[str]

    def __add__(self, other: "HeldOut") -> "HeldOut":
        """The queries of both, in order."""
        return HeldOut(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def means(self) -> dict[str, float]:
        """What is logged: the mean of each number, and the share of distinct answers."""
        return {
            "score": fmean(self.score),
            "ref_kl": fmean(self.ref_kl),
            "combined": fmean(self.combined),
            "response_length": fmean(self.length),
            "distinct": len(set(self.texts)) / len(self.texts),
        }


@contextmanager
def sampling_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Sample inside the block from a stream of its own, and leave the training stream as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def evaluate_alone(team: Team, agent: int, queries: Sequence[Query], combined_kl_coef: float, seed: int) -> HeldOut:
    """Let one agent answer ``queries`` from s0 alone, with the highest limit of new tokens.

    Args:
        team: the team it belongs to.
        agent: its index.
        queries: one batch.
        combined_kl_coef: weight of the KL in the combined reward.
        seed: of the sampling; the same for every agent and every evaluation, so that their differences are paired.
    """
    policy = team.policies[agent]
    with sampling_stream(seed, policy.device):
        response, score = team.alone(agent, queries, team.response_tokens[1])
    drift = policy.score(response).logprobs - policy.reference_scores(response).logprobs
    ref_kl = drift.sum(dim=1)
    return HeldOut(
        score=score.tolist(),
        ref_kl=ref_kl.tolist(),
        combined=(score - combined_kl_coef * ref_kl).tolist(),
        length=response.mask.sum(dim=1).tolist(),
        texts=response.texts,
    )
