"""What passes between the floors: small frozen records, every tensor with its shape.

Shapes: B prompts, P prompt tokens, T response tokens, H hidden size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Message = dict[str, str]
"""One turn of a chat: ``{"role": ..., "content": ...}``."""

Prompt = str | list[Message]
"""What one role reads: plain text that the model continues, or the turns of a chat for models with a chat template."""


def one_line(text: str) -> str:
    """``text`` without line breaks and other characters that a terminal would act on."""
    return "".join(c if c.isprintable() else " " for c in text)


def safe_lines(text: str) -> str:
    """``text`` with its line breaks, without other characters that a terminal would act on."""
    return "\n".join(one_line(line) for line in text.split("\n"))


@dataclass(frozen=True)
class Query:
    """One job for the team.

    Attributes:
        text: what is asked, the same for every agent.
        row: its place in the source, for messages to the user.
        gold: the right answer as the source writes it, where the task has one.
    """

    text: str
    row: int
    gold: str | None = None


@dataclass(frozen=True)
class Response:
    """A batch of answers, with the prompts they answer.

    Attributes:
        prompt_ids: [B, P] int64, padded on the left.
        prompt_mask: [B, P] bool, True = a real prompt token.
        tokens: [B, T] int64, padded on the right.
        mask: [B, T] bool, True = a real response token, its end-of-sequence token included. Made from lengths, never by
            comparing ids with the pad id.
        ended: [B] bool, True = the answer ended itself, False = it was cut off at the limit of new tokens.
        texts: the B answers as text, without special tokens.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    ended: Tensor
    texts: list[str]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def rows(self, index: Tensor) -> "Response":
        """The rows of ``index`` [n] int64 at unchanged padding, so that they are scored at the same widths."""
        return Response(
            self.prompt_ids[index],
            self.prompt_mask[index],
            self.tokens[index],
            self.mask[index],
            self.ended[index],
            [self.texts[i] for i in index.tolist()],
        )


@dataclass(frozen=True)
class Rollout:
    """What one agent did for one batch of queries, and what the team got for it.

    Attributes:
        agent: index of the agent, fixed for the whole run.
        role: its place in role order, 0 = pioneer.
        response: its answers.
        score: [B] fp32, the task's score of its own answers.
        team_score: [B] fp32, what it is paid before its KL penalty.
    """

    agent: int
    role: int
    response: Response
    score: Tensor
    team_score: Tensor


@dataclass(frozen=True)
class Scores:
    """What a policy says of answers already given, at the B x T response positions; 0 where masked.

    Attributes:
        logprobs: [B, T] fp32, log-probability of each response token.
        values: [B, T] fp32, the value head's estimate before each response token.
        entropy: [B, T] fp32, entropy of the next-token distribution, without a graph.
        full_kl: [B, T] fp32, KL over the whole vocabulary from the reference; only where it was asked for.
    """

    logprobs: Tensor
    values: Tensor
    entropy: Tensor
    full_kl: Tensor | None = None

    def detach(self) -> "Scores":
        """The same numbers without a graph."""
        return self._each(Tensor.detach)

    def rows(self, index: Tensor) -> "Scores":
        """The rows of ``index`` [n] int64."""
        return self._each(lambda x: x[index])

    def _each(self, f: Callable[[Tensor], Tensor]) -> "Scores":
        full_kl = None if self.full_kl is None else f(self.full_kl)
        return Scores(f(self.logprobs), f(self.values), f(self.entropy), full_kl)

    @staticmethod
    def join(parts: "Sequence[Scores]") -> "Scores":
        """The rows of all parts, in order."""
        full_kl = [part.full_kl for part in parts if part.full_kl is not None]
        return Scores(
            torch.cat([part.logprobs for part in parts]),
            torch.cat([part.values for part in parts]),
            torch.cat([part.entropy for part in parts]),
            torch.cat(full_kl) if full_kl else None,
        )


@dataclass(frozen=True)
class ReferenceScores:
    """What the frozen reference says of the same answers.

    Attributes:
        logprobs: [B, T] fp32, 0 where masked.
        hidden: [B, T, H] in the base's dtype, 0 where masked: inputs of the reference's output matrix, kept in place of
            its B x T x V logits for the KL over the whole vocabulary.
    """

    logprobs: Tensor
    hidden: Tensor

    def rows(self, index: Tensor) -> "ReferenceScores":
        """The rows of ``index`` [n] int64."""
        return ReferenceScores(self.logprobs[index], self.hidden[index])

    @staticmethod
    def join(parts: "Sequence[ReferenceScores]") -> "ReferenceScores":
        """The rows of all parts, in order."""
        return ReferenceScores(torch.cat([p.logprobs for p in parts]), torch.cat([p.hidden for p in parts]))


@dataclass(frozen=True)
class Experience:
    """A rollout made ready to learn from; one minibatch is some of its rows.

    Attributes:
        response: the answers.
        old: scores by the policy that gave them, without a graph.
        reference: scores by the frozen reference.
        advantages: [B, T] fp32.
        returns: [B, T] fp32, what the value head should have said.
    """

    response: Response
    old: Scores
    reference: ReferenceScores
    advantages: Tensor
    returns: Tensor

    def rows(self, index: Tensor) -> "Experience":
        """The rows of ``index`` [n] int64."""
        return Experience(
            self.response.rows(index),
            self.old.rows(index),
            self.reference.rows(index),
            self.advantages[index],
            self.returns[index],
        )


@dataclass(frozen=True)
class UpdateStats:
    """How one agent's update went: the scalars to log by name, and whether its weights moved.

    Attributes:
        scalars: name -> value; means over the rollout's real tokens or rows, as each name's documentation says.
        skipped: why the update was left out (a non-finite loss, gradient or score), else None.
    """

    scalars: dict[str, float]
    skipped: str | None = None
