"""Per agent: the weight of its KL penalty, and the scale of its score. Both have state that a checkpoint must carry."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lit_cory import ops, ranks


@dataclass(frozen=True)
class KLSettings:
    """How an agent pays for its drift from the reference.

    Attributes:
        coef: the weight of the penalty (the paper's eta), where the controller starts.
        adaptive: whether the weight follows ``target``.
        target: nats, summed over a response and averaged over the batch, that the adaptive weight aims at.
        horizon: responses in which the adaptive weight may change by its own size, at the limit of error of 0.2.
        estimator: of the KL per token: k1, k2, k3, abs, or full (over the whole vocabulary).
        placement: in the reward (right for k1) or as a term of the loss (right for k2, k3 and full).
        anchor_decay: measure the penalty against a moving average of the agent itself, which begins at the reference
            and is taken once a rollout, with this decay (an anchor of WARP, Rame et al. 2024, arXiv 2406.16768). null
            is the reference itself. What is logged as ``ref_kl`` is against the reference always.
    """

    coef: float = 0.05
    adaptive: bool = False
    target: float = 6.0
    horizon: int = 10_000
    estimator: ops.KLEstimator | Literal["full"] = "k1"
    placement: Literal["reward", "loss"] = "reward"
    anchor_decay: float | None = None

    def warning(self) -> str | None:
        """Why this estimator in this place does not lower the KL as one would expect; None where it does."""
        wrong = {
            (
                "k1",
                "loss",
            ): "its expected gradient is zero, so nothing is penalised; use estimator=k1 with placement=reward",
            ("abs", "loss"): "its gradient is not that of the KL (cosine 0.8 to 0.9); use k2, k3 or full in the loss",
            ("full", "reward"): "it depends on the state alone, so a token's own choice gets no gradient; use k1",
        }
        biased = "as a penalty its gradient is nearly unrelated to that of the KL (cosine below 0.2); use k1"
        reasons = wrong | {(name, "reward"): biased for name in ("k2", "k3", "abs")}
        reason = reasons.get((self.estimator, self.placement))
        return reason and f"model.kl: {self.estimator} in the {self.placement}: {reason}"


class KLController:
    """The weight of one agent's KL penalty: fixed, or adaptive as in Ziegler et al. 2019 (arXiv 1909.08593)."""

    def __init__(self, settings: KLSettings) -> None:
        self.settings = settings
        self.coef = settings.coef

    def update(self, kl: float, responses: int) -> None:
        """Move an adaptive weight after a rollout.

        Args:
            kl: nats per response (k1 summed over its tokens), mean over the batch.
            responses: how many there were.
        """
        if self.settings.adaptive:
            self.coef = ops.adaptive_kl_coef(self.coef, kl, self.settings.target, self.settings.horizon, responses)

    def state_dict(self) -> dict[str, float]:
        """What a resumed run needs."""
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state; a fixed weight is the settings' affair."""
        if self.settings.adaptive:
            self.coef = state["coef"]


ScoreScaling = Literal["none", "scale", "normalize"]


class ScoreScaler:
    """Running moments of one agent's team score: divide by the deviation, or subtract the mean as well.

    The moments take a batch of all processes in before it is scaled. Only what enters the rewards is scaled; the raw
    score is logged.
    """

    def __init__(self, scaling: ScoreScaling) -> None:
        self.scaling = scaling
        self.moments = (0, 0.0, 0.0)

    def __call__(self, score: Tensor) -> Tensor:
        """Scale ``score`` [B]; unchanged for ``none`` and while the deviation is 0."""
        if self.scaling == "none":
            return score
        self.moments = ops.merge_moments(*self.moments, ranks.gather(score))
        count, mean, m2 = self.moments
        deviation = (m2 / (count - 1)) ** 0.5 if count > 1 and m2 > 0 else 1.0
        centre = mean if self.scaling == "normalize" else 0.0
        return (score - centre) / deviation

    def state_dict(self) -> dict[str, list[float]]:
        """What a resumed run needs."""
        return {"moments": list(self.moments)}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Go on from a saved state."""
        count, mean, m2 = state["moments"]
        self.moments = (int(count), mean, m2)
