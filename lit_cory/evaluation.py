"""Agents on held-out queries, alone and after each other: the numbers that runs are compared by."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch

from lit_cory import ranks
from lit_cory.team import Team
from lit_cory.types import Query, Response


@dataclass(frozen=True)
class EvaluationSettings:
    """What is asked of the agents at each held-out evaluation. Each agent alone on the query is always asked.

    Attributes:
        samples: answers that each agent samples to each query. 0 with ``greedy`` leaves sampling out.
        pass_at: the k of pass@k, none above ``samples``; only for tasks whose answers are right or wrong.
        greedy: also one answer a query by greedy decoding, whose KL says nothing and is left out.
        team: also the observers after the roles before them. Roles go by the order of the names then, whoever has which
            in training, so that evaluations can be compared.
        kl: measure the KL of sampled answers, which takes about as long as sampling them.
        stride: along the way, between the first evaluation and the last, ask only every so many-th query of a batch.
        seed: of the sampling.
    """

    samples: int = 1
    pass_at: tuple[int, ...] = (1,)
    greedy: bool = False
    team: bool = False
    kl: bool = True
    stride: int = 1
    seed: int = 0


@dataclass(frozen=True)
class HeldOut:
    """One answer of an agent to each held-out query, an entry a query.

    Attributes:
        score: the task's score.
        ref_kl: nats, k1 summed over the response, of the agent against the reference; empty where it is not measured.
        combined: score - combined_kl_coef * ref_kl; empty likewise.
        length: response tokens.
        cut_off: 1.0 where an answer did not end itself.
        texts: the answers.
        correct, answer, given, ran_on: of the task's verdicts; empty for tasks without.
        ref_nll: nats, -log p_ref summed over the response; empty where ``ref_kl`` is.
        logprob: nats, log-probability of the answer, its tokens summed; for observers alone, as the next.
        logprob_alone: of the same answer, had the agent not read the earlier answers.
        score_alone: the task's score of what the agent answers alone, from the same random stream.
    """

    score: list[float]
    ref_kl: list[float]
    combined: list[float]
    length: list[float]
    cut_off: list[float]
    texts: list[str]
    correct: list[bool]
    answer: list[str | None]
    given: list[str]
    ran_on: list[bool]
    ref_nll: list[float] = field(default_factory=list)
    logprob: list[float] = field(default_factory=list)
    logprob_alone: list[float] = field(default_factory=list)
    score_alone: list[float] = field(default_factory=list)

    def __add__(self, other: "HeldOut") -> "HeldOut":
        """The queries of both, in order."""
        return HeldOut(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def means(self) -> dict[str, float]:
        """What is logged: the mean of each number, and the share of distinct answers."""
        numbers = {
            "score": self.score,
            "ref_kl": self.ref_kl,
            "ref_nll": self.ref_nll,
            "combined": self.combined,
            "response_length": self.length,
            "cut_off": self.cut_off,
            "accuracy": [float(right) for right in self.correct],
        }
        means = {name: fmean(values) for name, values in numbers.items() if values}
        return means | {"distinct": len(set(self.texts)) / len(self.texts)}


Tables = dict[str, list[HeldOut]]
"""What an evaluation found: by who answered how (``agent_0``, ``agent_0 greedy``, ``agent_1 after agent_0``), an entry
a sample."""


def means(tables: Tables) -> dict[str, float]:
    """The scalars ``NAME/KEY`` of every table, over all its samples; a name's spaces become underscores."""
    pooled = {name: sum(samples[1:], start=samples[0]) for name, samples in tables.items()}
    return {
        f"{name.replace(' ', '_')}/{key}": value
        for name, table in pooled.items()
        for key, value in table.means().items()
    }


def joined(parts: Sequence[Tables]) -> Tables:
    """The queries of all parts, in order."""
    return {
        name: [sum((part[name][i] for part in parts[1:]), start=first) for i, first in enumerate(samples)]
        for name, samples in parts[0].items()
    }


def dealt_back(parts: Sequence[Tables], rows: int) -> Tables:
    """The tables of ``rows`` queries, in their order, from those of processes that each took every n-th of them."""
    return {
        name: [
            HeldOut(*(dealt_column([vars(p[name][i])[field] for p in parts], rows) for field in vars(samples[0])))
            for i in range(len(samples))
        ]
        for name, samples in parts[0].items()
    }


def dealt_column(parts: Sequence[list[Any]], rows: int) -> list[Any]:
    """One column of :func:`dealt_back`; an empty one stays empty."""
    return [parts[row % len(parts)][row // len(parts)] for row in range(rows)] if parts[0] else []


@contextmanager
def sampling_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Sample inside the block from a stream of its own, and leave the training stream as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


class Evaluator:
    """Asks a team's agents as the settings say.

    Args:
        team: the agents and their task.
        settings: how they are asked.
        combined_kl_coef: weight of the KL in the combined reward.
    """

    def __init__(self, team: Team, settings: EvaluationSettings, combined_kl_coef: float) -> None:
        self.team, self.settings, self.combined_kl_coef = team, settings, combined_kl_coef

    def run_shared(self, queries: Sequence[Query], batch: int, twins: Sequence[int]) -> Tables:
        """:meth:`run`, the queries dealt among all processes; each gets the tables of all."""
        own = ranks.share(queries) or list(queries[:1])  # one answers without need where there are too few for all
        return dealt_back(ranks.gather_objects(self.run(own, batch, twins)), len(queries))

    @torch.no_grad()
    def run(self, queries: Sequence[Query], batch: int, twins: Sequence[int]) -> Tables:
        """Let the agents answer one batch of queries, with the highest limit of new tokens.

        Args:
            queries: the batch.
            batch: its number. All agents, and all evaluations, sample it from the same streams, so that differences are
                paired.
            twins: for each agent, the first that equals it, itself or one before it; equals are asked once.
        """
        tables: Tables = {}
        limit, team = self.team.response_tokens[1], self.team
        ways = [False] * self.settings.samples + [True] * self.settings.greedy
        for number, greedy in enumerate(ways):
            for agent, policy in enumerate(team.policies):
                if twins[agent] == agent:
                    with self.stream(batch, number):
                        response = team.alone(agent, queries, limit, greedy=greedy)
                    held_out = self.judge(agent, queries, response, greedy)
                else:
                    held_out = tables[named(team.policies[twins[agent]].name, greedy)][-1]
                tables.setdefault(named(policy.name, greedy), []).append(held_out)
            if self.settings.team:
                names = [policy.name for policy in team.policies]
                with self.stream(batch, number):
                    responses = team.answers(queries, limit, greedy=greedy, order=range(len(names)))
                for agent in range(1, len(names)):
                    name = named(f"{names[agent]} after {' and '.join(names[:agent])}", greedy)
                    alone = tables[named(names[agent], greedy)][-1]
                    held_out = self.judge(agent, queries, responses[agent], greedy)
                    held_out = self.observed(agent, queries, responses[agent], held_out, alone)
                    tables.setdefault(name, []).append(held_out)
        return tables

    def observed(
        self, agent: int, queries: Sequence[Query], response: Response, own: HeldOut, alone: HeldOut
    ) -> HeldOut:
        """Add what an observer's answer comes to with and without the answers it has read."""
        policy = self.team.policies[agent]
        ids, mask = policy.encode(self.team.prompts(queries, []), response.tokens.shape[1])
        unread = replace(response, prompt_ids=ids, prompt_mask=mask)
        logprob, logprob_alone = (policy.score(r).logprobs.sum(dim=1).tolist() for r in (response, unread))
        return replace(own, logprob=logprob, logprob_alone=logprob_alone, score_alone=alone.score)

    def stream(self, batch: int, sample: int) -> AbstractContextManager[None]:
        """The random stream of one sample of one batch."""
        seed = self.settings.seed * 1_000_003 + batch + sample * 1_000_000_007 + ranks.own() * 1_000_000_000_039
        return sampling_stream(seed, self.team.policies[0].device)

    def judge(self, agent: int, queries: Sequence[Query], response: Response, greedy: bool) -> HeldOut:
        """Scores, KL and verdicts of answers given."""
        policy, task = self.team.policies[agent], self.team.task
        score = self.team.score(queries, response, agent)
        ref_nll, ref_kl, combined = torch.empty(0), torch.empty(0), torch.empty(0)
        if self.settings.kl and not greedy:
            reference = policy.reference_scores(response).logprobs
            ref_nll = -reference.sum(dim=1)
            ref_kl = (policy.score(response).logprobs - reference).sum(dim=1)
            combined = score - self.combined_kl_coef * ref_kl
        verdicts = task.verdicts(queries, response.texts)
        return HeldOut(
            score=score.tolist(),
            ref_kl=ref_kl.tolist(),
            combined=combined.tolist(),
            length=response.mask.sum(dim=1).tolist(),
            cut_off=(~response.ended).float().tolist(),
            texts=response.texts,
            correct=[verdict.correct for verdict in verdicts],
            answer=[verdict.answer for verdict in verdicts],
            given=[verdict.given for verdict in verdicts],
            ran_on=[verdict.ran_on for verdict in verdicts],
            ref_nll=ref_nll.tolist(),
        )


def named(name: str, greedy: bool) -> str:
    """The name of a table."""
    return f"{name} greedy" if greedy else name
