"""A sentiment classifier of one's own, to be paid by: an encoder fine-tuned on labelled reviews. Needs no model hub."""

from lit_cory.reward_model.data import LabelledReviews
from lit_cory.reward_model.model import RewardModel

__all__ = ["LabelledReviews", "RewardModel"]
