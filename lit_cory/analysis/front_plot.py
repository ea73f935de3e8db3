"""A picture of score against KL."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lit_cory.analysis.plots import COLOURS


def plot_front(frame: pd.DataFrame, path: Path) -> Path:
    """Draw each agent's points by KL, joined in the order of their scales, with 95% intervals both ways (800 x 600).

    Args:
        frame: ``agent``, ``scale``, ``score`` and ``ref_kl``, the last two with ``_low`` and ``_high``.
        path: the PNG to write; an older one is replaced.

    Returns:
        ``path``.
    """
    figure = Figure(figsize=(8, 6), dpi=100, layout="constrained")
    axes = figure.subplots()
    for number, (agent, points) in enumerate(frame.groupby("agent", sort=False)):
        points = points.sort_values("scale")
        x, y = points["ref_kl"], points["score"]
        errors: dict[str, Any] = {
            f"{side}err": np.stack([points[name] - points[f"{name}_low"], points[f"{name}_high"] - points[name]])
            for side, name in (("x", "ref_kl"), ("y", "score"))
        }
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(x, y, **errors, color=colour, marker="o", elinewidth=0.8, label=str(agent))
        for scale, across, up in zip(points["scale"], x, y, strict=True):
            axes.annotate(f"{scale:g}", (across, up), textcoords="offset points", xytext=(5, -10), color=colour)
    axes.set(title="Held-out, alone: what is learnt times each number", xlabel="KL to the reference [nats]")
    axes.set(ylabel="score")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, format="png")
    return Path(path)
