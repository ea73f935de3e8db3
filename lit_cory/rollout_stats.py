"""The scalars of one agent's rollout, under the names they are logged by."""

from lit_cory.types import Rollout, UpdateStats


def rollout_scalars(rollout: Rollout, combined_kl_coef: float, stats: UpdateStats) -> dict[str, float]:
    """What is logged of one agent after its update.

    Among them: ``score`` (raw, the task's own), ``ref_kl`` (k1 summed over the response, mean over the batch),
    ``combined`` = score - combined_kl_coef * ref_kl, ``role`` (0 = pioneer), ``response_length`` in tokens (mean),
    ``tokens`` of all responses, ``distinct`` (share of different answers) and ``ended`` (share that ended themselves).
    """
    response = rollout.response
    score = rollout.score.mean().item()
    return stats.scalars | {
        "score": score,
        "team_score": rollout.team_score.mean().item(),
        "combined": score - combined_kl_coef * stats.scalars["ref_kl"],
        "role": float(rollout.role),
        "response_length": response.mask.sum(dim=1).float().mean().item(),
        "tokens": float(response.mask.sum()),
        "distinct": len(set(response.texts)) / len(response.texts),
        "ended": response.ended.float().mean().item(),
    }
