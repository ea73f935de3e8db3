"""One agent's update: from a rollout to a step of its own weights. It never samples, and knows no other agent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from lit_cory import ops, ranks
from lit_cory.algorithms import Algorithm
from lit_cory.ema import Ema
from lit_cory.kl_control import KLController, KLSettings, ScoreScaler, ScoreScaling
from lit_cory.memory import release_freed_memory
from lit_cory.policies import Policy
from lit_cory.timing import phase
from lit_cory.types import Experience, ReferenceScores, Response, Rollout, Scores, UpdateStats


@dataclass(frozen=True)
class UpdateSettings:
    """How a rollout is learnt from.

    Attributes:
        epochs: passes over the rollout.
        minibatch_size: rows a step, those of all processes together; null takes the whole rollout. The last minibatch
            may be smaller.
        max_grad_norm: the norm that an agent's gradient is clipped to (the trainer's gradient_clip_val can't be used).
        target_kl: stop the epochs once approx_kl of a minibatch exceeds this; null never does.
        max_skipped: stop the run after this many updates of one agent in a row were skipped.
        pass_tokens: tokens, padding included, that one forward pass may hold. A larger minibatch goes through in
            several passes with the same gradient; lower it where memory runs out.
    """

    epochs: int = 1
    minibatch_size: int | None = None
    max_grad_norm: float = 1.0
    target_kl: float | None = None
    max_skipped: int = 3
    pass_tokens: int = 4096


class NonFiniteError(ArithmeticError):
    """A number that must not reach the weights; says which."""


class AgentUpdate:
    """Learns from one agent's rollouts; holds its KL controller, score scale and count of skipped updates.

    Args:
        policy: the agent.
        algorithm: advantages and loss.
        settings: epochs, minibatches, clipping, early stop.
        kl: how the agent pays for its drift.
        scaling: of the team score.
    """

    def __init__(
        self, policy: Policy, algorithm: Algorithm, settings: UpdateSettings, kl: KLSettings, scaling: ScoreScaling
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.kl = KLController(kl)
        self.anchor = None if kl.anchor_decay is None else Ema(policy.lm_parameters(), kl.anchor_decay)
        self.scaler = ScoreScaler(scaling)
        self.skipped_in_a_row = 0
        self.pass_rows = 1
        self.widest = 0

    def run(self, rollout: Rollout, optimizer: Optimizer, backward: Callable[[Tensor], None]) -> UpdateStats:
        """Update the agent's weights once for ``rollout``; a non-finite number skips the update and is counted.

        Args:
            rollout: what the agent did.
            optimizer: of this agent's parameters alone.
            backward: how a loss is differentiated (the trainer's ``manual_backward``).
        """
        response = rollout.response
        # As many in every process, since with a sharded base each pass is a collective.
        width = ranks.largest(response.prompt_ids.shape[1] + response.tokens.shape[1])
        self.pass_rows = max(1, self.settings.pass_tokens // width)
        if width > self.widest:  # else the rollout fits where earlier ones were, and fresh memory costs time
            release_freed_memory()
            self.widest = width
        parts = self.passes(torch.arange(len(response)), response)
        in_order = torch.cat(parts).argsort()
        with phase("reference"):
            reference = ReferenceScores.join([self.policy.reference_scores(response.rows(part)) for part in parts])
            reference = reference.rows(in_order)
            anchor = reference
            if self.anchor is not None:
                anchor = self.anchor_scores(self.anchor, [response.rows(part) for part in parts]).rows(in_order)
        with phase("scoring"), torch.set_grad_enabled(self.one_pass(len(response))):
            first = Scores.join([self.score(response.rows(part), anchor.rows(part)) for part in parts])
            first = first.rows(in_order)
        old = first.detach()
        ref_kl = ranks.gather((old.logprobs - reference.logprobs).sum(dim=1))
        scalars = {
            "ref_kl": ref_kl.mean().item(),
            "kl_coef": self.kl.coef,
            "lr": optimizer.param_groups[0]["lr"],
            "kl_penalty": ranks.gather(self.kl_per_token(old, anchor).sum(dim=1)).mean().item(),
            "entropy": ranks.gather(old.entropy[response.mask]).mean().item(),
            "value": ranks.gather(old.values[response.mask]).mean().item(),
        }
        skipped = None
        try:
            scalars |= self.learn(self.experience(rollout, old, anchor), first, optimizer, backward)
            self.kl.update(scalars["ref_kl"], len(ref_kl))
            if self.anchor is not None:
                self.anchor.update()
            self.skipped_in_a_row = 0
        except NonFiniteError as error:
            optimizer.zero_grad()
            skipped = str(error)
            self.skipped_in_a_row += 1
        return UpdateStats(scalars | {"skipped": float(skipped is not None)}, skipped)

    @torch.no_grad()
    def anchor_scores(self, anchor: Ema, parts: Sequence[Response]) -> ReferenceScores:
        """The anchor's log-probs of answers given, in place of the reference's; its hidden states aren't needed."""
        with anchor.exchanged():
            logprobs = torch.cat([self.policy.score(part).logprobs for part in parts])
        return ReferenceScores(logprobs, logprobs.new_empty(*logprobs.shape, 0))

    def passes(self, index: Tensor, response: Response) -> tuple[Tensor, ...]:
        """The rows ``index`` [n] of each forward pass; where there are several, rows of like length go together."""
        if len(index) <= self.pass_rows:
            return (index,)
        lengths = (response.prompt_mask.sum(dim=1) + response.mask.sum(dim=1)).cpu()
        return torch.split(index[lengths[index].argsort()], self.pass_rows)

    def one_pass(self, rows: int) -> bool:
        """Whether ``rows`` make one step of one pass, so that scoring the old policy is scoring the new."""
        return self.settings.epochs == 1 and rows <= min(self.pass_rows, self.step_rows(rows))

    def step_rows(self, rows: int) -> int:
        """Rows of this process in a step."""
        size = self.settings.minibatch_size
        return rows if size is None else -(-size // ranks.count())

    def score(self, response: Response, reference: ReferenceScores) -> Scores:
        """Score with the KL over the whole vocabulary where the estimator is ``full``."""
        return self.policy.score(response, reference if self.kl.settings.estimator == "full" else None)

    def kl_per_token(self, scores: Scores, reference: ReferenceScores) -> Tensor:
        """KL to the reference, or the anchor in its place, [B, T] by the chosen estimator."""
        estimator = self.kl.settings.estimator
        if estimator == "full":
            assert scores.full_kl is not None
            return scores.full_kl
        return ops.kl_per_token(scores.logprobs, reference.logprobs, estimator)

    def experience(self, rollout: Rollout, old: Scores, reference: ReferenceScores) -> Experience:
        """Shape the rewards of a rollout and turn them into advantages and returns.

        Raises:
            NonFiniteError: for a team score or KL that is not finite; the running moments have not seen it then.
        """
        kl = self.kl_per_token(old, reference)
        require_finite("team score", ranks.gather(rollout.team_score))
        require_finite("KL to the reference", ranks.gather(kl.sum(dim=1)))
        coef = self.kl.coef if self.kl.settings.placement == "reward" else 0.0
        rewards = ops.shape_rewards(self.scaler(rollout.team_score), kl, rollout.response.mask, coef)
        advantages, returns = self.algorithm.advantages(rewards, old.values, rollout.response.mask)
        return Experience(rollout.response, old, reference, advantages, returns)

    def learn(
        self, experience: Experience, first: Scores, optimizer: Optimizer, backward: Callable[[Tensor], None]
    ) -> dict[str, float]:
        """Step through all epochs and minibatches, until ``target_kl`` is passed.

        Args:
            experience: the whole rollout.
            first: its scores by the present weights, with a graph where one pass serves old and new policy.
            optimizer: of this agent.
            backward: see :meth:`run`.

        Returns:
            the means of the algorithm's scalars over the minibatches, and the number of steps made.

        Raises:
            NonFiniteError: before the step that would have taken a non-finite number into the weights.
        """
        history: list[dict[str, float]] = []
        steps, limit = 0, self.settings.target_kl
        for index in self.minibatches(len(experience.response)):
            with phase("update"):
                optimizer.zero_grad()
                history.append(self.accumulate(experience, index, first, backward))
                require_finite("loss", torch.tensor(history[-1].pop("loss")))  # the sum of what is logged in its parts
                if limit is not None and history[-1]["approx_kl"] > limit:
                    break
                history[-1]["grad_norm"] = self.step(optimizer)
                steps += 1
        optimizer.zero_grad()  # nothing is held while other agents learn
        means = {name: fmean(entry[name] for entry in history if name in entry) for name in history[0]}
        return means | {"steps": float(steps)}

    def accumulate(
        self, experience: Experience, index: Tensor, first: Scores, backward: Callable[[Tensor], None]
    ) -> dict[str, float]:
        """Add the gradient of the minibatch ``index`` [n], pass by pass; returns loss and scalars of all processes'."""
        single = self.one_pass(len(experience.response))
        own_tokens = experience.response.mask[index].sum()
        tokens = ranks.total(own_tokens)
        total: dict[str, Tensor] = {}
        # A process without rows in this step takes part with one that weighs nothing.
        index = index if len(index) else torch.zeros(1, dtype=torch.long)
        for rows in self.passes(index, experience.response):
            part = experience.rows(rows)
            new = first if single else self.score(part.response, part.reference)
            loss, scalars = self.loss(new, part)
            # Losses are means over tokens, so that parts weigh as many tokens as they have.
            share = torch.minimum(part.response.mask.sum(), own_tokens) / tokens
            backward(loss * share)
            for name, value in scalars.items():
                total[name] = total.get(name, 0) + value.detach() * share
        sums = ranks.total(torch.stack(list(total.values())))
        return dict(zip(total, sums.tolist(), strict=True))

    def loss(self, new: Scores, part: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        """The algorithm's loss of a minibatch, with the KL as a term where it is placed in the loss."""
        mask = part.response.mask
        loss, scalars = self.algorithm.loss(new, part.old, part.advantages, part.returns, mask)
        if self.kl.settings.placement == "loss":
            loss = loss + self.kl.coef * ops.masked_mean(self.kl_per_token(new, part.reference), mask)
        return loss, scalars | {"loss": loss}

    def minibatches(self, rows: int) -> Iterator[Tensor]:
        """Row indices of each step: every row once an epoch, in a fresh order where there are several minibatches.

        All processes make as many steps, so that one with fewer rows may end with an empty minibatch.
        """
        size = self.step_rows(rows)
        steps = ranks.largest(-(-rows // size))
        for _ in range(self.settings.epochs):
            order = torch.arange(rows) if size >= rows else torch.randperm(rows)
            yield from (order[step * size : (step + 1) * size] for step in range(steps))

    def step(self, optimizer: Optimizer) -> float:
        """Clip the gradient of all processes and step; returns its norm before clipping."""
        parameters = list(self.policy.trainable().values())
        ranks.add_gradients(parameters)
        norm = clip_grad_norm_(parameters, self.settings.max_grad_norm)
        require_finite("gradient", norm)
        optimizer.step()
        return float(norm)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs besides weights and optimizer."""
        return {
            "kl": self.kl.state_dict(),
            "scaler": self.scaler.state_dict(),
            "skipped_in_a_row": self.skipped_in_a_row,
        } | ({} if self.anchor is None else {"anchor": self.anchor.average})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.kl.load_state_dict(state["kl"])
        self.scaler.load_state_dict(state["scaler"])
        self.skipped_in_a_row = state["skipped_in_a_row"]
        if self.anchor is not None and "anchor" in state:
            self.anchor.load(state["anchor"])


def require_finite(what: str, values: Tensor) -> None:
    """Raise :class:`NonFiniteError` where ``values`` holds a number that is none."""
    if not bool(values.isfinite().all()):
        raise NonFiniteError(f"non-finite {what}")
