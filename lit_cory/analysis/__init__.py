"""What a run's files say: event files as tables, statistics, reward/KL fronts, pictures. Never touches the trainer."""

from lit_cory.analysis.collapse import distinct_n, perplexity, repeated_share
from lit_cory.analysis.curves import MatchedKL, area_under, kl_at_reward, matched_reward_kl, ratio_interval
from lit_cory.analysis.events import read_run, read_scalars
from lit_cory.analysis.pareto import dominates, hypervolume, pareto_front
from lit_cory.analysis.passk import majority, pass_at_k
from lit_cory.analysis.plots import plot_curves
from lit_cory.analysis.statistics import Interval, mean_interval, paired_gain

__all__ = [
    "Interval",
    "MatchedKL",
    "area_under",
    "distinct_n",
    "dominates",
    "hypervolume",
    "kl_at_reward",
    "majority",
    "matched_reward_kl",
    "mean_interval",
    "paired_gain",
    "pareto_front",
    "pass_at_k",
    "perplexity",
    "plot_curves",
    "ratio_interval",
    "read_run",
    "read_scalars",
    "repeated_share",
]
