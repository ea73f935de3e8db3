"""Pictures of methods: the reward/KL plane with its front, and curves over rollouts."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lit_cory.analysis.pareto import pareto_front
from lit_cory.analysis.plots import COLOURS, PANELS

MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")


def plot_pareto(points: pd.DataFrame, path: Path) -> Path:
    """Draw every method at each eta, held-out score against KL, as a PNG of 900 x 650.

    Eta stands at each point, its 95% intervals over seeds as bars, where there are several; those of few seeds may go
    beyond the picture. Shaded is what some point dominates: lower score and higher KL than a mean of the front.

    Args:
        points: of :func:`lit_cory.analysis.evidence.front_points`.
        path: the PNG to write; an older one is replaced.

    Returns:
        ``path``.
    """
    figure = Figure(figsize=(9, 6.5), dpi=100, layout="constrained")
    axes = figure.subplots()
    for number, (method, own) in enumerate(points.groupby("method", sort=False)):
        own = own.sort_values("kl_coef")
        bars: dict[str, Any] = {
            axis: [(own[n] - own[f"{n} low"]).fillna(0), (own[f"{n} high"] - own[n]).fillna(0)]
            for axis, n in (("xerr", "KL"), ("yerr", "score"))
        }
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number // len(COLOURS) % len(MARKERS)],
            "label": method,
        }
        axes.errorbar(own["KL"], own["score"], linewidth=1, elinewidth=0.8, capsize=2, **bars, **style)
        for _, point in own.iterrows():
            at = (point["KL"], point["score"])
            axes.annotate(f"η={point['kl_coef']:g}", at, (5, 5), textcoords="offset points", fontsize=8)
    frame_means(axes, points)
    shade_dominated(axes, points[["score", "KL"]].dropna().to_numpy().tolist())
    axes.set(xlabel="KL to the reference [nats per response]", ylabel="held-out score, mean of the agents alone")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, format="png")
    return Path(path)


def frame_means(axes: Axes, points: pd.DataFrame) -> None:
    """Show the means with a third of their extent around them: of few seeds the bars would leave them no room."""
    for limits, values in ((axes.set_xlim, points["KL"].dropna()), (axes.set_ylim, points["score"].dropna())):
        if values.nunique() > 1:
            margin = (values.max() - values.min()) / 3
            limits(values.min() - margin, values.max() + margin)


def shade_dominated(axes: Axes, points: list[list[float]]) -> None:
    """Grey from each point of the front to the right and down, to the edges of the axes."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    front = sorted(pareto_front(points), key=lambda point: point[1])
    if front:
        x = [kl for _, kl in front] + [right]
        y = [score for score, _ in front]
        axes.fill_between(x, [*y, y[-1]], bottom, step="post", color="0.5", alpha=0.15, linewidth=0, label="dominated")
    axes.set(xlim=(left, right), ylim=(bottom, top))


def plot_methods(curves: pd.DataFrame, path: Path) -> Path:
    """Draw the held-out curves of the mean of the agents against rollouts, as a PNG of 1500 x 600.

    Thick: the mean over seeds of a method at an eta; thin: each seed.

    Args:
        curves: of ``curves.csv`` with the columns ``method`` and ``kl_coef``.
        path: the PNG to write; an older one is replaced.

    Returns:
        ``path``.
    """
    figure = Figure(figsize=(15, 6), dpi=100, layout="constrained")
    curves = curves[curves["agent"] == "mean"]
    methods = list(curves["method"].unique())
    etas = sorted(curves["kl_coef"].unique())
    for axes, (metric, (title, label)) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for (method, eta), own in curves.groupby(["method", "kl_coef"]):
            colour, dash = COLOURS[methods.index(method) % len(COLOURS)], DASHES[etas.index(eta) % len(DASHES)]
            for _, run in own.groupby(["hash", "seed"]):
                axes.plot(run["rollout"], run[metric], color=colour, linestyle=dash, linewidth=0.6, alpha=0.5)
            mean = own.groupby("rollout")[metric].mean()
            axes.plot(mean.index, mean, color=colour, linestyle=dash, linewidth=2.2, label=f"{method}, η={eta:g}")
        axes.set(title=title, xlabel="rollouts", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, format="png")
    return Path(path)
