"""What a run came to: each agent alone on held-out queries, before and after, as a table."""

import pandas as pd
from rich.console import Console
from rich.table import Table

from lit_cory.analysis import mean_interval, paired_gain
from lit_cory.evaluation import HeldOut

METRICS = {"score": "score", "ref_kl": "KL to the reference", "combined": "combined reward"}


def summary_frame(names: list[str], before: list[HeldOut], after: list[HeldOut]) -> pd.DataFrame:
    """One row per agent and metric: means with 95% intervals (Student's t), and the gain paired by query.

    Args:
        names: of the agents.
        before: an entry an agent; empty where the start was not measured.
        after: an entry an agent, on the same queries.
    """
    rows = []
    for i, name in enumerate(names):
        for metric in METRICS:
            end = getattr(after[i], metric)
            row: dict[str, object] = {"agent": name, "metric": metric, "queries": len(end)}
            parts = {"after": mean_interval(end)}
            if before:
                start = getattr(before[i], metric)
                parts |= {"before": mean_interval(start), "gain": paired_gain(start, end)}
            for part, interval in parts.items():
                row |= {part: interval.mean, f"{part}_low": interval.low, f"{part}_high": interval.high}
            rows.append(row)
    return pd.DataFrame(rows)


def print_summary(frame: pd.DataFrame) -> None:
    """Print the table of :func:`summary_frame`."""
    parts = [part for part in ("before", "after", "gain") if part in frame]
    table = Table(title=f"Each agent alone on {frame['queries'].iloc[0]} held-out queries, mean [95% interval]")
    for column in ("agent", "", *parts):
        table.add_column(column, justify="left" if column in ("agent", "") else "right")
    for _, row in frame.iterrows():
        cells = [
            f"{row[part]:{'+' * (part == 'gain')}.3f} [{row[f'{part}_low']:.3f}, {row[f'{part}_high']:.3f}]"
            for part in parts
        ]
        name = row["agent"] if row["metric"] == "score" else ""
        table.add_row(name, METRICS[row["metric"]], *cells, end_section=row["metric"] == "combined")
    # Written to a file there is no width to fit, so the table takes what it needs.
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table, markup=False)
