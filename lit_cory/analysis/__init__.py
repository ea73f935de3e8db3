"""What a run's files say: event files as tables, statistics, reward/KL fronts, pictures. Never touches the trainer."""

from lit_cory.analysis.events import read_run, read_scalars
from lit_cory.analysis.pareto import dominates, hypervolume, pareto_front
from lit_cory.analysis.passk import majority, pass_at_k
from lit_cory.analysis.plots import plot_curves
from lit_cory.analysis.statistics import Interval, mean_interval, paired_gain

__all__ = [
    "Interval",
    "dominates",
    "hypervolume",
    "majority",
    "mean_interval",
    "paired_gain",
    "pareto_front",
    "pass_at_k",
    "plot_curves",
    "read_run",
    "read_scalars",
]
