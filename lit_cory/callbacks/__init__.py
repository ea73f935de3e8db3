"""What watches a run and acts between rollouts."""

from lit_cory.callbacks.checkpoint import RolloutCheckpoint
from lit_cory.callbacks.collapse import CollapseWatch
from lit_cory.callbacks.cost import RunCost
from lit_cory.callbacks.elastic_reset import ElasticReset
from lit_cory.callbacks.layout import CurveLayout
from lit_cory.callbacks.progress import ProgressLines, RolloutProgressBar
from lit_cory.callbacks.random_state import RandomState
from lit_cory.callbacks.repeat_evaluation import RepeatEvaluation
from lit_cory.callbacks.role_swap import RoleSwap
from lit_cory.callbacks.samples import SampleTable
from lit_cory.callbacks.save_config import SaveRunConfig
from lit_cory.callbacks.stop_on_signal import StopOnSignal

__all__ = [
    "CollapseWatch",
    "CurveLayout",
    "ElasticReset",
    "ProgressLines",
    "RandomState",
    "RepeatEvaluation",
    "RoleSwap",
    "RolloutCheckpoint",
    "RolloutProgressBar",
    "RunCost",
    "SampleTable",
    "SaveRunConfig",
    "StopOnSignal",
]
