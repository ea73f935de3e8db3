"""What a run came to: each agent alone on held-out queries, before and after, as a table."""

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lit_cory.analysis import mean_interval, paired_gain
from lit_cory.evaluation import HeldOut
from lit_cory.types import Query, one_line

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
    queries = frame["queries"].iloc[0]
    table = Table(title=f"Each agent alone on {queries} held-out queries, mean [95% interval]", min_width=76)
    for column in ("agent", "", *parts):
        name = column if len(parts) > 1 or column != "after" else "now"
        table.add_column(name, justify="left" if column in ("agent", "") else "right")
    for _, row in frame.iterrows():
        cells = [
            f"{row[part]:{'+' * (part == 'gain')}.3f} [{row[f'{part}_low']:.3f}, {row[f'{part}_high']:.3f}]"
            for part in parts
        ]
        name = row["agent"] if row["metric"] == "score" else ""
        table.add_row(name, METRICS[row["metric"]], *cells, end_section=row["metric"] == "combined")
    console().print(table, markup=False)


def print_answers(queries: list[Query], names: list[str], before: list[HeldOut], after: list[HeldOut]) -> None:
    """Print what the agents wrote to a few held-out queries, at the start and now, with the scores."""
    # All agents start at the reference, so that one column serves for what they wrote then.
    columns = ({"before": before[0]} if before else {}) | dict(zip(names, after, strict=True))
    table = Table(title="What they write, alone [score]", show_lines=True)
    for column in ("query", *columns):
        table.add_column(column)
    for row, query in enumerate(queries):
        answers = [f"{one_line(t.texts[row])} [{t.score[row]:.2f}]" for t in columns.values()]
        table.add_row(*map(Text, (one_line(query.text), *answers)))
    console().print(table)


def console() -> Console:
    """Where output is no terminal there is no width to fit, so that tables take what they need."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)
