"""Pictures of a run. Figures are made without pyplot, so a notebook's or a script's backend stays as it was."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

PANELS = {
    "score": ("Task score", "score per response"),
    "ref_kl": ("KL to the reference", "KL per response [nats]"),
    "combined": ("Combined reward", "score − coefficient × KL"),
}
# Okabe and Ito's palette, which people with the common kinds of colour blindness can tell apart.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
ROLLOUT: dict[str, Any] = {"linestyle": "", "marker": ".", "markersize": 7.0, "markeredgewidth": 0.0, "alpha": 0.4}
TRAINING: dict[str, Any] = {"linewidth": 1.0}
HELD_OUT: dict[str, Any] = {"linewidth": 2.5, "marker": "o", "markersize": 6.0}


def plot_curves(frame: pd.DataFrame, path: Path) -> Path:
    """Draw score, KL to the reference and combined reward of every agent against rollouts, as one PNG (1500 x 500).

    Training: a dot a rollout and a thin line, the centred running mean over a twentieth of them. Held-out: thick, a
    marker an evaluation. A value that isn't finite leaves a gap.

    Args:
        frame: what :func:`lit_cory.analysis.read_run` returns; metrics other than the three are left aside.
        path: the PNG to write; an older one is replaced.

    Returns:
        ``path``.
    """
    figure = Figure(figsize=(15, 5), dpi=100, layout="constrained")
    agents = sorted(frame["agent"].unique(), key=lambda agent: (len(agent), agent))  # agent_10 comes after agent_9
    colours = {agent: COLOURS[index % len(COLOURS)] for index, agent in enumerate(agents)}
    for axes, (metric, (title, label)) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        _draw_panel(axes, frame[frame["metric"] == metric], colours)
        axes.set(title=title, xlabel="rollouts", ylabel=label)
    handles = [
        Line2D([], [], color=colour, label=f"{agent}, {name}", **style)
        for agent, colour in colours.items()
        for name, style in (("training", {**TRAINING, "marker": "."}), ("held-out, alone", HELD_OUT))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, len(agents)), frameon=False)
    figure.savefig(path, format="png")
    return Path(path)


def _draw_panel(axes: Axes, curves: pd.DataFrame, colours: dict[str, str]) -> None:
    """One metric of all agents: training below, held-out above."""
    for agent, colour in colours.items():
        curve = curves[curves["agent"] == agent].sort_values("step")
        training, held_out = (curve[curve["split"] == split] for split in ("train", "val"))
        axes.plot(training["step"], training["value"], color=colour, zorder=2, **ROLLOUT)
        axes.plot(training["step"], _running_mean(training["value"]), color=colour, zorder=3, **TRAINING)
        axes.plot(held_out["step"], held_out["value"], color=colour, zorder=4, **HELD_OUT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if curves.empty:
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center")


def _running_mean(values: "pd.Series[float]") -> "pd.Series[float]":
    """Centred mean over a twentieth of the values; where a value itself is missing, the mean is too."""
    window = max(1, len(values) // 20)
    return values.rolling(window, center=True, min_periods=1).mean().where(values.notna())
