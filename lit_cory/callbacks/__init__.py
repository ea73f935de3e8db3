"""What watches a run and acts between rollouts."""

from lit_cory.callbacks.checkpoint import RolloutCheckpoint
from lit_cory.callbacks.elastic_reset import ElasticReset
from lit_cory.callbacks.layout import CurveLayout
from lit_cory.callbacks.progress import ProgressLines, RolloutProgressBar
from lit_cory.callbacks.random_state import RandomState
from lit_cory.callbacks.role_swap import RoleSwap
from lit_cory.callbacks.samples import SampleTable

__all__ = [
    "CurveLayout",
    "ElasticReset",
    "ProgressLines",
    "RandomState",
    "RoleSwap",
    "RolloutCheckpoint",
    "RolloutProgressBar",
    "SampleTable",
]
