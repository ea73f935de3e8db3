"""A watch over what collapsing policies show: answers that repeat, shorten, empty, lose their entropy or drift away."""

import sys
from typing import Any

import lightning as L

from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule

REMEDY = "raise model.kl.coef or lower model.lr, and look at the samples"


class CollapseWatch(L.Callback):
    """Say in one line when an agent has gone past a bound for several rollouts, once until it has come back.

    Args:
        distinct: lowest share of different answers in a rollout.
        length: lowest mean length of answers, in tokens.
        empty: highest share of answers without text.
        entropy: lowest mean entropy of the next token, in nats.
        kl_per_token: highest drift from the reference, in nats a token: mean KL of an answer by its mean length.
        patience: rollouts in a row past a bound before it is said; 0 watches nothing.
        stop: whether to end the run then, with checkpoint, evaluation and summary.

    Raises:
        UserError: for a negative patience.
    """

    def __init__(
        self,
        distinct: float = 0.2,
        length: float = 1.5,
        empty: float = 0.5,
        entropy: float = 0.02,
        kl_per_token: float = 3.0,
        patience: int = 3,
        stop: bool = False,
    ) -> None:
        if patience < 0:
            raise UserError(f"collapse.patience={patience}: must be 0 or above")
        self.lowest = {"distinct": distinct, "length": length, "entropy": entropy}
        self.highest = {"empty": empty, "kl_per_token": kl_per_token}
        self.patience, self.stop = patience, stop
        self.in_a_row: dict[str, int] = {}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Look at each agent's rollout."""
        del args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        lines = [line for name in pl_module.agent_names for line in self.look(name, pl_module)] if self.patience else []
        if trainer.is_global_zero:
            for line in lines:
                print(f"lit_cory: warning: {line}", file=sys.stderr, flush=True)
        if trainer.strategy.reduce_boolean_decision(self.stop and bool(lines), all=False):
            trainer.should_stop = True
            if trainer.is_global_zero:
                print("lit_cory: the run ends here (collapse.stop=true)", file=sys.stderr, flush=True)

    def look(self, name: str, module: CoryLightningModule) -> list[str]:
        """Count on, and return a line for each bound of which it is time to speak."""
        found = measures({key: module.scalars[f"train/{name}/{key}"] for key in SCALARS})
        lines = []
        for key, value in found.items():
            low, high = self.lowest.get(key), self.highest.get(key)
            past = (low is not None and value < low) or (high is not None and value > high)
            count = self.in_a_row[f"{name}/{key}"] = self.in_a_row.get(f"{name}/{key}", 0) + 1 if past else 0
            if count == self.patience:
                bound = f"below {low:g}" if low is not None else f"above {high:g}"
                lines.append(
                    f"{name}, rollout {module.rollouts_done}: {WORDS[key]} is {value:.3g}, {count} rollouts in a row "
                    f"{bound} (collapse.{key}); {REMEDY}"
                )
        return lines

    def state_dict(self) -> dict[str, Any]:
        """How long each bound has been passed: a resumed run stops, or doesn't, as the unbroken one would."""
        return {"in_a_row": dict(self.in_a_row)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Count on."""
        self.in_a_row = dict(state_dict["in_a_row"])


SCALARS = ("distinct", "response_length", "empty", "entropy", "ref_kl")

WORDS = {
    "distinct": "the share of different answers",
    "length": "the mean length of answers in tokens",
    "empty": "the share of empty answers",
    "entropy": "the mean entropy in nats",
    "kl_per_token": "the drift from the reference in nats a token",
}


def measures(scalars: dict[str, float]) -> dict[str, float]:
    """What is watched, from an agent's scalars."""
    return {
        "distinct": scalars["distinct"],
        "length": scalars["response_length"],
        "empty": scalars["empty"],
        "entropy": scalars["entropy"],
        "kl_per_token": scalars["ref_kl"] / scalars["response_length"],
    }
