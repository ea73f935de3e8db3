"""``python -m lit_cory report``: tables, curves and fronts of runs and sweeps, as CSV, PNG and a page."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lit_cory.analysis.evidence import (
    KL,
    REWARD,
    TABLE,
    front_points,
    hypervolumes,
    matched_ratios,
    summary_table,
    with_methods,
    worst_corner,
)
from lit_cory.analysis.evidence_plots import plot_methods, plot_pareto
from lit_cory.analysis.runs import (
    IDENTITY,
    has_events,
    held_out_curve,
    put,
    read_table,
    run_row,
    write_table,
)
from lit_cory.commands.cells import read_grid
from lit_cory.commands.options import Options
from lit_cory.errors import UserError

ROUNDED = "%.10g"
"""Of figures that are computed from the rows: their last digits differ between processors."""


def main(args: Sequence[str]) -> int:
    """Write a report as the arguments say; returns the exit status.

    Raises:
        UserError: for inputs that hold no complete run.
    """
    options = Options(prog="lit-cory report", description=str(__doc__).partition(": ")[2])
    options.add_argument("runs", nargs="+", type=Path, help="folders of runs or sweeps, or results.csv files")
    options.add_argument(
        "--where", action="extend", nargs="+", default=[], metavar="COLUMN=[VALUE,...]", help="of results.csv; else all"
    )
    options.add_argument("--out", type=Path, required=True, help="folder of the report; its older files are replaced")
    given = options.parse_args(args)
    sources = [read_source(path) for path in given.runs]
    rows = put(pd.DataFrame(), [row for source in sources for row in source.rows.to_dict("records")])
    if rows.empty or not {REWARD, KL, "kl_coef", "agents"} <= set(rows):
        raise UserError(f"{given.runs[0]}: has no run with a held-out score and KL; give it model.evaluation.kl=true")
    rows = with_methods(selected(rows, read_grid(given.where)))
    curves = joined([source.curves for source in sources])
    if len(curves):
        curves = curves.merge(rows[IDENTITY])
    commands = list(dict.fromkeys(line for source in sources for line in source.commands))
    given.out.mkdir(parents=True, exist_ok=True)
    write_report(given.out, rows, curves, commands, f"python -m lit_cory report {shlex.join(args)}")
    print(f"Report: {given.out / 'index.md'}")
    return 0


def selected(rows: pd.DataFrame, where: dict[str, list[str]]) -> pd.DataFrame:
    """The rows that have one of the values in each column named.

    Raises:
        UserError: for a column or a value that no row has.
    """
    kept = pd.Series(True, rows.index)
    for column, values in where.items():
        if column not in rows:
            raise UserError(f"where {column}: results.csv has no such column; it has {', '.join(map(str, rows))}")
        there = rows[column].astype(str)
        if lacking := set(values) - set(there):
            raise UserError(
                f"where {column}: no run has {sorted(lacking)[0]}; there are {', '.join(sorted(set(there)))}"
            )
        kept &= there.isin(values)
    if not kept.any():
        raise UserError("where: no run has them all; leave one out")
    return rows[kept]


@dataclass(frozen=True)
class Source:
    """What one input holds: rows of ``results.csv``, of ``curves.csv``, and the commands that made them."""

    rows: pd.DataFrame
    curves: pd.DataFrame
    commands: list[str]


def read_source(path: Path) -> Source:
    """A run's folder, a sweep's, or the table of one; curves come from the runs, where their folders are there.

    Raises:
        UserError: for what is neither.
    """
    table = path / "results.csv" if path.is_dir() else path
    if not table.is_file():
        rows = put(pd.DataFrame(), [run_row(path)])
        return Source(rows, curves_of([(path, rows.iloc[0])]), [])
    folder, rows = table.parent, read_table(table)
    runs = [(folder / str(row["name"]) / f"{row['hash']}-{row['seed']}", row) for _, row in rows.iterrows()]
    curves = curves_of(runs)
    if (kept := folder / "curves.csv").is_file():
        curves = joined([curves, read_table(kept)])
    lines = folder / "commands.txt"
    return Source(rows, curves, lines.read_text(encoding="utf-8").splitlines() if lines.is_file() else [])


def curves_of(runs: Sequence[tuple[Path, Any]]) -> pd.DataFrame:
    """The held-out curves of runs, under the names of their rows."""
    return joined(
        [held_out_curve(run).assign(**{key: row[key] for key in IDENTITY}) for run, row in runs if has_events(run)]
    )


def joined(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All curves in order, of one run the first that is there."""
    there = [curve for curve in curves if len(curve)]
    if not there:
        return pd.DataFrame()
    points = [*IDENTITY, "agent", "rollout"]
    both = pd.concat(there).drop_duplicates(points).sort_values(points, ignore_index=True)
    return both[[*points, "score", "ref_kl", "combined"]]


def write_report(out: Path, rows: pd.DataFrame, curves: pd.DataFrame, commands: list[str], command: str) -> None:
    """Write all files of a report."""
    table = summary_table(rows)
    points, volumes = front_points(table), hypervolumes(rows)
    write_table(rows.drop(columns="method"), out / "results.csv")
    for name, frame in {"table": table, "pareto": points, "hypervolume": volumes}.items():
        write_table(frame, out / f"{name}.csv", ROUNDED)
    plot_pareto(points, out / "pareto.png")
    (out / "commands.txt").write_text("".join(f"{line}\n" for line in commands), encoding="utf-8")
    ratios = pd.DataFrame()
    if len(curves):
        write_table(curves, out / "curves.csv")
        plot_methods(curves.merge(rows[[*IDENTITY, "method", "kl_coef"]], on=IDENTITY), out / "curves.png")
        ratios = matched_ratios(rows, curves)
        write_table(ratios, out / "matched.csv", ROUNDED)
    text = page(rows, table, volumes, ratios, len(curves) > 0, commands, command)
    (out / "index.md").write_text(text, encoding="utf-8")


def page(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    volumes: pd.DataFrame,
    ratios: pd.DataFrame,
    curves: bool,
    commands: list[str],
    command: str,
) -> str:
    """The page in Markdown."""
    score, kl = worst_corner(rows)
    made = f"```\n{command}\n```"
    parts = [
        "# Results",
        f"{len(rows)} runs. Figures are held out unless they say otherwise, each agent alone, the mean of the agents; "
        "KL in nats per response. Brackets: 95% interval over seeds, Student's t.",
        *(["The runs:", "```\n" + "\n".join(commands) + "\n```"] if commands else []),
        "## Table",
        markdown(summary_cells(table)),
        f"`table.csv`, from `results.csv`, by\n{made}",
        "## Reward against KL",
        "![reward against KL](pareto.png)",
        "η, the KL coefficient, stands at each point. Shaded: dominated, that is nowhere better and somewhere worse "
        f"than a point of the front. `pareto.png` and `pareto.csv` by\n{made}",
        "## Hypervolume",
        f"Area that a method's points dominate, seed by seed, down to a score of {score:.4g} and up to a KL of "
        f"{kl:.4g}. Compare methods with the same η.",
        markdown(volume_cells(volumes)),
        f"`hypervolume.csv` by\n{made}",
    ]
    if curves:
        parts += ["## Curves", "![held-out curves](curves.png)", f"`curves.png` and `curves.csv` by\n{made}"]
    if len(ratios):
        parts += [
            "## KL at matched reward",
            "KL of a method over that of another at the same held-out score along training: the ratio of the mean KLs "
            "over the scores that both runs pass through, and of the KLs at the highest that both reach; geometric "
            "means over runs paired by seed. Pairs that share no such scores are not compared.",
            markdown(ratio_cells(ratios)),
            f"`matched.csv` by\n{made}",
        ]
    return "\n\n".join(parts) + "\n"


def summary_cells(table: pd.DataFrame) -> pd.DataFrame:
    """The table for the eye."""
    cells = table[["method", "kl_coef", "seeds"]].rename(columns={"kl_coef": "η"})
    for name in TABLE.values():
        if name in table:
            cells[name] = [cell(values) for values in table[[name, f"{name} low", f"{name} high"]].to_numpy()]
    return cells


def volume_cells(volumes: pd.DataFrame) -> pd.DataFrame:
    """Hypervolumes for the eye."""
    cells = volumes[["method", "eta", "seeds"]].rename(columns={"eta": "η"})
    return cells.assign(hypervolume=[cell(v) for v in volumes[["hypervolume", "low", "high"]].to_numpy()])


def ratio_cells(ratios: pd.DataFrame) -> pd.DataFrame:
    """Matched-reward ratios for the eye."""
    cells = ratios[["method", "kl_coef", "over", "over kl_coef"]].rename(columns={"kl_coef": "η", "over kl_coef": "η "})
    cells["pairs compared"] = [f"{a} of {b}" for a, b in zip(ratios["compared"], ratios["pairs"], strict=True)]
    cells["scores"] = [
        "" if low != low else f"{low:.4g} to {high:.4g}" for low, high in ratios[["from", "to"]].to_numpy()
    ]
    cells["KL ratio"] = [cell(values) for values in ratios[["ratio", "low", "high"]].to_numpy()]
    cells["at the top"] = [cell(values) for values in ratios[["ratio at top", "top low", "top high"]].to_numpy()]
    return cells


def markdown(cells: pd.DataFrame) -> str:
    """A Markdown table."""
    lines: list[list[object]] = [list(cells), ["---"] * cells.shape[1], *cells.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(str(value).replace("|", "\\|") for value in line) + " |" for line in lines)


def cell(values: Iterable[float]) -> str:
    """``mean [low, high]`` for the eye, the mean alone where there is no interval, nothing where there is no mean."""
    mean, low, high = values
    if mean != mean:
        return ""
    return f"{mean:.4g}" if low != low else f"{mean:.4g} [{low:.4g}, {high:.4g}]"
