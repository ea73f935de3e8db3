"""The maths: one pure function per equation, on torch alone.

Shapes: B prompts, T response tokens, V vocabulary, N agents. Every op takes float32 or float64 and returns the same;
half precision is promoted to float32. Masks are bool, True = a real token (TypeError else), and shaped like what they
mask (ValueError else, nothing is broadcast). Nothing is changed in place, and what stands in masked places, NaN
included, reaches neither results nor gradients.
"""

from lit_cory.ops.advantages import gae
from lit_cory.ops.control import adaptive_kl_coef
from lit_cory.ops.groups import group_whiten, leave_one_out
from lit_cory.ops.kl import KL_ESTIMATORS, KLEstimator, full_kl, kl_per_token
from lit_cory.ops.logprobs import entropy, token_logprobs
from lit_cory.ops.losses import PolicyLoss, policy_loss, value_loss
from lit_cory.ops.masking import masked_mean, masked_sum, masked_whiten
from lit_cory.ops.moments import merge_moments
from lit_cory.ops.rewards import shape_rewards
from lit_cory.ops.sampling import draw
from lit_cory.ops.team import TEAM_SCORES, TeamScore, team_scores

__all__ = [
    "KL_ESTIMATORS",
    "TEAM_SCORES",
    "KLEstimator",
    "PolicyLoss",
    "TeamScore",
    "adaptive_kl_coef",
    "draw",
    "entropy",
    "full_kl",
    "gae",
    "group_whiten",
    "kl_per_token",
    "leave_one_out",
    "masked_mean",
    "masked_sum",
    "masked_whiten",
    "merge_moments",
    "policy_loss",
    "shape_rewards",
    "team_scores",
    "token_logprobs",
    "value_loss",
]
