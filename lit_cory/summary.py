"""The tables that a run and an evaluation end with, for the eye."""

from collections.abc import Sequence

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lit_cory.evaluation import Tables
from lit_cory.types import Query, one_line

CHIEF = {"score": "score", "ref_kl": "KL to the reference", "combined": "combined reward"}
"""The metrics that a training run ends with, and what they are called."""

FURTHER = {
    "length": "response tokens",
    "cut_off": "cut off (share)",
    "ran_on": "several answers (share)",
    "ref_nll": "-log p of the reference",
}
"""Those that have another name than in the files; evaluations show all there are."""


def print_summary(frame: pd.DataFrame, chief_only: bool = False) -> None:
    """Print the table of ``summary_frame``, all its metrics or the chief ones."""
    if chief_only:
        frame = frame[frame["metric"].isin(CHIEF)]
    parts = [part for part in ("before", "after", "gain") if part in frame]
    table = Table(title=f"{frame['queries'].iloc[0]} held-out queries, mean [95% interval]", min_width=76)
    for column in ("agent", "", *parts):
        name = column if len(parts) > 1 or column != "after" else "now"
        table.add_column(name, justify="left" if column in ("agent", "") else "right")
    for agent, rows in frame.groupby("agent", sort=False):
        for number, (_, row) in enumerate(rows.iterrows()):
            cells = [interval(row, part) for part in parts]
            name = (CHIEF | FURTHER).get(row["metric"], row["metric"])
            last = number == len(rows) - 1
            table.add_row(str(agent) if number == 0 else "", name, *cells, end_section=last)
    console().print(table, markup=False)


def interval(row: pd.Series, part: str) -> str:
    """Mean and interval of one part of a row; nothing where there was no start to compare with."""
    mean, low, high = (row[name] for name in (part, f"{part}_low", f"{part}_high"))
    if mean != mean and part != "after":
        return ""
    return f"{mean:{'+' * (part == 'gain')}.3f} [{low:.3f}, {high:.3f}]"


def print_answers(queries: Sequence[Query], names: Sequence[str], before: Tables, after: Tables) -> None:
    """Print what the agents wrote to a few held-out queries, at the start and now, with the scores."""
    first = {table: samples[0] for table, samples in after.items() if table.removesuffix(" greedy") in names}
    shown = {name: table for name, table in first.items() if name in names} or first
    starts = {name: before[name][0] for name in shown if name in before}
    if len({tuple(start.texts) for start in starts.values()}) == 1:  # as all do that start from the same base
        starts = {"before": next(iter(starts.values()))}
    else:
        starts = {f"{name} before": start for name, start in starts.items()}
    columns = starts | shown
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
