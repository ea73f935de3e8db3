"""``bench --compare A.yaml B.yaml`` and ``bench --over KEY=[...]``: variants in turn, each in its own process."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lit_cory.errors import UserError

OPTIONS = ("--compare", "--over")


def wanted(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for variants."""
    return arguments[:1] == ["bench"] and any(argument.split("=")[0] in OPTIONS for argument in arguments)


def run(arguments: Sequence[str]) -> None:
    """Measure the variants that the command line names, and print seconds, ratios to the first, and peak memory.

    Rounds go through all variants, so that a machine that slows down slows all of them.

    Raises:
        UserError: where files or values are wrong, or one of the runs fails.
    """
    parser = argparse.ArgumentParser("lit-cory bench", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--compare", nargs="+", default=[], help="configurations")
    parser.add_argument("--over", help="KEY=[value, value ...]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", help="a PNG to draw seconds against the values of --over")
    parser.add_argument("--json", help="a file to write all figures to")
    given, rest = parser.parse_known_args(arguments[1:])
    variants = chosen(given.compare, given.over)
    if given.rounds < 1:
        raise UserError(f"rounds={given.rounds}: must be at least 1")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    turns = [name for _ in range(given.rounds) for name in variants]
    for name in track(turns, "runs", console=Console(stderr=True), transient=True):
        results[name].append(measured(name, [*variants[name], *rest]))
    Console().print(table(results))
    if given.plot is not None:
        print(f"Plot: {plot(results, given.over.partition('=')[0], Path(given.plot))}")
    if given.json is not None:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n")


def chosen(compare: list[str], over: str | None) -> dict[str, list[str]]:
    """Name and options of each variant."""
    if (over is None) == (not compare):
        raise UserError("bench: give either --compare A.yaml B.yaml or --over KEY=[...]")
    for file in compare:
        if not Path(file).is_file():
            raise UserError(f"compare={file}: no such file")
    if over is None:
        return {file: ["--config", file] for file in compare}
    key, _, values = over.partition("=")
    try:
        listed = yaml.safe_load(values)
    except yaml.YAMLError:
        listed = None
    if not isinstance(listed, list) or not listed:
        raise UserError(f"over={over}: give a key and the values to try, such as data.batch_size=[4,8,16]")
    return {str(value): [f"--{key}={json.dumps(value)}"] for value in listed}


def measured(name: str, options: list[str]) -> dict[str, Any]:
    """The figures of one ``bench`` in a process of its own, whose peak memory is its own too."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "lit_cory", "bench", *options, f"--json={file}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"{name}: {last.removeprefix('lit_cory: error: ')}")
        figures: dict[str, Any] = json.loads(file.read_text())
        return figures


def seconds(runs: list[dict[str, Any]]) -> list[float]:
    """Seconds a rollout, of each run."""
    return [float(run["seconds"]["rollout"]) for run in runs]


def table(results: dict[str, list[dict[str, Any]]]) -> Table:
    """One row a variant; ratios are of the runs of one round, and their median."""
    first = seconds(next(iter(results.values())))
    made = Table(title=f"seconds a rollout, {len(first)} rounds in turn")
    for column in ("variant", "each round", "median", "ratio to the first", "peak MB"):
        made.add_column(column, justify="left" if column == "variant" else "right")
    for name, runs in results.items():
        own = seconds(runs)
        ratio = statistics.median(mine / other for mine, other in zip(own, first, strict=True))
        peak = max(run["peak_mb"]["process"] for run in runs)
        each = "  ".join(f"{value:.2f}" for value in own)
        made.add_row(name, each, f"{statistics.median(own):.2f}", f"{ratio:.3f}", str(peak))
    return made


def plot(results: dict[str, list[dict[str, Any]]], key: str, path: Path) -> Path:
    """Draw seconds a rollout against the values, a dot a run and a line through the medians, as a PNG."""
    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    axes = figure.subplots()
    try:
        places = [float(name) for name in results]
    except ValueError:
        places = [float(number) for number in range(len(results))]
        axes.set_xticks(places, list(results))
    medians = [statistics.median(seconds(runs)) for runs in results.values()]
    axes.plot(places, medians, color="#0072B2")
    for place, runs in zip(places, results.values(), strict=True):
        axes.plot([place] * len(runs), seconds(runs), linestyle="", marker=".", color="#0072B2", alpha=0.5)
    axes.set(xlabel=key, ylabel="seconds a rollout", ylim=(0, None))
    figure.savefig(path)
    return path
