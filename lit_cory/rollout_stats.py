"""The scalars of one agent's rollout, under the names they are logged by."""

from lit_cory import ranks
from lit_cory.types import Rollout, UpdateStats

OF_AGENT_ALONE = {"lr", "steps", "skipped", "longest", "tokens"}
"""Scalars that its role does not bear on: they are logged under the agent's name alone, to keep event files small."""


def rollout_scalars(rollout: Rollout, combined_kl_coef: float, stats: UpdateStats) -> dict[str, float]:
    """What is logged of one agent after its update, over the rows of all processes.

    Among them: ``score`` (raw, the task's own), ``ref_kl`` (k1 summed over the response, mean over the batch),
    ``combined`` = score - combined_kl_coef * ref_kl, ``role`` (0 = pioneer), ``prompt_length`` and ``response_length``
    in tokens (means), ``longest`` response, ``tokens`` of all responses, ``distinct`` (share of different answers),
    ``empty`` (share of those without text) and ``ended`` (share that ended themselves).
    """
    response = rollout.response
    texts = [text for own in ranks.gather_objects(response.texts) for text in own]
    lengths = ranks.gather(response.mask.sum(dim=1).float())
    score = ranks.gather(rollout.score).mean().item()
    return stats.scalars | {
        "score": score,
        "team_score": ranks.gather(rollout.team_score).mean().item(),
        "combined": score - combined_kl_coef * stats.scalars["ref_kl"],
        "role": float(rollout.role),
        "prompt_length": ranks.gather(response.prompt_mask.sum(dim=1).float()).mean().item(),
        "response_length": lengths.mean().item(),
        "longest": lengths.max().item(),
        "tokens": lengths.sum().item(),
        "distinct": len(set(texts)) / len(texts),
        "empty": sum(not text.strip() for text in texts) / len(texts),
        "ended": ranks.gather(response.ended.float()).mean().item(),
    }
