"""Agents in role order: who answers when, who reads what, and what each is paid."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lit_cory import ops, ranks
from lit_cory.guards import checked_scores, located, task_call
from lit_cory.policies import Policy
from lit_cory.tasks.base import Task
from lit_cory.timing import phase
from lit_cory.types import Query, Response, Rollout


@dataclass(frozen=True)
class TeamSettings:
    """How agents work together.

    Attributes:
        score: what an agent is paid, from the task scores of all. sum (the paper's); own; mean; max; difference: its
            own less the mean of the others' (competition); causal: the scores its answer can influence, its own and
            those of later roles, which has the expected gradient of sum and less variance; weighted: see ``weights``.
        weights: for ``weighted``, a row a role: what that role is paid of each role's score.
        knowledge_transfer: whether an agent reads the answers given before its own.
        cut_off_penalty: taken from an agent's pay for an answer of its own that did not end itself within the limit of
            new tokens. The score that is logged stays the task's.
    """

    score: ops.TeamScore = "sum"
    weights: list[list[float]] | None = None
    knowledge_transfer: bool = True
    cut_off_penalty: float = 0.0


def role_name(role: int) -> str:
    """``pioneer``, ``observer``, then ``observer_2`` and so on for larger teams."""
    return ("pioneer", "observer")[role] if role < 2 else f"observer_{role}"


class Team:
    """N >= 1 agents, one task, and the order in which the agents answer.

    Roles are a permutation: ``order[k]`` is the index of the agent in role k. An exchange changes these numbers only,
    no weight, no optimizer moment, no KL coefficient.

    Args:
        policies: the agents, by index.
        task: what they are asked and paid for.
        settings: how they work together.
        response_tokens: lowest and highest limit of new tokens; each rollout draws its limit uniformly from this range,
            both ends included.
    """

    def __init__(
        self, policies: Sequence[Policy], task: Task, settings: TeamSettings, response_tokens: tuple[int, int]
    ) -> None:
        self.policies = policies
        self.task = task
        self.settings = settings
        self.response_tokens = response_tokens
        self.order = list(range(len(policies)))

    def exchange(self) -> None:
        """Everyone moves one role forward, the pioneer to the end; for two agents, they swap."""
        self.order[:] = self.order[1:] + self.order[:1]

    def rollout(self, queries: Sequence[Query]) -> list[Rollout]:
        """One batch of queries through the whole team; one record per agent, in role order."""
        responses = self.answers(queries, self.draw_limit())
        with phase("task score"):
            scores = torch.stack([self.score(queries, response, self.order[i]) for i, response in enumerate(responses)])
        ended = torch.stack([response.ended for response in responses])
        paid = ops.team_scores(scores, self.settings.score, self.settings.weights)
        paid = paid - self.settings.cut_off_penalty * (~ended)
        return [
            Rollout(agent, role, responses[role], scores[role], paid[role]) for role, agent in enumerate(self.order)
        ]

    def answers(
        self, queries: Sequence[Query], new_tokens: int, *, greedy: bool = False, order: Sequence[int] | None = None
    ) -> list[Response]:
        """Every agent's answers, in the present role order or the one given; later roles read those of earlier ones."""
        responses: list[Response] = []
        for role, agent in enumerate(self.order if order is None else order):
            prompts = self.prompts(queries, responses if self.settings.knowledge_transfer else [])
            with phase(f"generation/{role_name(role)}"):
                responses.append(self.policies[agent].generate(prompts, new_tokens, greedy=greedy))
        return responses

    def alone(
        self,
        agent: int,
        queries: Sequence[Query],
        new_tokens: int,
        *,
        reference: bool = False,
        greedy: bool = False,
    ) -> Response:
        """One agent, or its reference, answers from s0, without the others."""
        return self.policies[agent].generate(self.prompts(queries, []), new_tokens, reference=reference, greedy=greedy)

    def draw_limit(self) -> int:
        """A limit of new tokens from torch's global random stream, the same in all processes."""
        low, high = self.response_tokens
        return ranks.first(int(torch.randint(low, high + 1, ())))

    def prompts(self, queries: Sequence[Query], earlier: Sequence[Response]) -> list[str | list[dict[str, str]]]:
        """What the next role reads: each query with the answers given before."""
        with task_call(self.task, "prompt"):
            return [self.task.prompt(query, [r.texts[i] for r in earlier]) for i, query in enumerate(queries)]

    def score(self, queries: Sequence[Query], response: Response, agent: int | None = None) -> Tensor:
        """The task's scores [B] fp32 on the policies' device; messages name the agent where it is given.

        Raises:
            UserError: where the task raises something, or gives anything but one number an answer.
        """
        who = "the reference" if agent is None else self.policies[agent].name
        with located(who):
            with task_call(self.task, "score"):
                scores = self.task.score(queries, response.texts)
            return checked_scores(self.task, scores, queries, who).to(response.tokens.device)
