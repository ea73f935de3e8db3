"""Rows of runs -> what methods come to: means over seeds with intervals, fronts, hypervolumes, KL at matched reward."""

import itertools
import math
from typing import Any

import pandas as pd

from lit_cory.analysis.curves import matched_reward_kl, ratio_interval
from lit_cory.analysis.pareto import dominates, hypervolume
from lit_cory.analysis.runs import IDENTITY, grid_columns
from lit_cory.analysis.statistics import mean_interval

ETA = "model.kl.coef"
"""The key along which the runs of one method make a front; its value is in the column ``kl_coef`` of every row."""

REWARD, KL = "val/mean/score", "val/mean/ref_kl"

TABLE = {
    REWARD: "score",
    KL: "KL",
    "val/mean/combined": "combined",
    "val/best/score": "best of agents",
    "val/mean/accuracy": "accuracy",
    "val/vote/accuracy": "vote of agents",
    "val/mean/distinct": "distinct",
    "val/mean/distinct_2": "distinct-2",
    "val/mean/perplexity": "perplexity",
    "val/mean/length": "length",
    "train/mean/score": "train score",
    "train/mean/ref_kl": "train KL",
    "train/mean/entropy": "entropy",
    "area/score": "area score",
    "area/ref_kl": "area KL",
    "tokens": "tokens",
    "seconds": "seconds",
}
"""Columns of ``results.csv`` that the table shows, and their names there."""


def with_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column ``method``: the run's name, and the grid's values but eta, as far as they differ.

    Runs of one method and eta that are of different configurations get the hash of theirs as well, so that no mean
    mixes them.
    """
    grid = [key for key in grid_columns(rows) if key != ETA and rows[key].nunique(dropna=False) > 1]
    parts = [rows["name"].astype(str), *(rows[c].map(lambda value, key=c: shown(key, value)) for c in grid)]
    method = pd.concat(parts, axis=1).apply(lambda row: ", ".join(filter(None, row)), axis=1)
    of_one = rows.assign(method=method).groupby(["method", "kl_coef"])["hash"].transform("nunique")
    return rows.assign(method=method.where(of_one == 1, method + " " + rows["hash"]))


def shown(key: str, value: object) -> str:
    """``team.score=own`` for a key of the grid; nothing where a configuration lacks it."""
    return "" if pd.isna(value) else f"{key.removeprefix('model.')}={value}"  # type: ignore[call-overload]


def summary_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95% interval over seeds of each method at each eta.

    The interval is Student's t: the few seeds that runs come with have too few different resamples for a bootstrap.

    Args:
        rows: of :func:`with_methods`.

    Returns:
        ``method``, ``kl_coef``, ``seeds``, and for each figure of ``TABLE`` that was measured its mean under its name
        there, and the ends of the interval under that with `` low`` and `` high``, NaN of one seed.
    """
    figures = {column: name for column, name in TABLE.items() if column in rows and rows[column].notna().any()}
    found = []
    for (method, eta), own in rows.groupby(["method", "kl_coef"]):
        row: dict[str, object] = {"method": method, "kl_coef": eta, "seeds": len(own)}
        for column, name in figures.items():
            interval = mean_interval(own[column].astype(float))
            row |= {name: interval.mean, f"{name} low": interval.low, f"{name} high": interval.high}
        found.append(row)
    return pd.DataFrame(found)


def front_points(table: pd.DataFrame) -> pd.DataFrame:
    """The points of :func:`summary_table` in the reward/KL plane, and how many others dominate each.

    Returns:
        ``method``, ``kl_coef``, ``score`` and ``KL`` with their ends, ``dominated_by``: how many points of all methods
        dominate the mean; 0 is the front, nothing where the mean isn't finite.
    """
    points = table[["score", "KL"]].to_numpy().tolist()
    whole = [all(map(math.isfinite, point)) for point in points]
    counts = [
        sum(dominates(other, point) for other, good in zip(points, whole, strict=True) if good) if own else None
        for point, own in zip(points, whole, strict=True)
    ]
    columns = ["method", "kl_coef", *(f"{n}{end}" for n in ("score", "KL") for end in ("", " low", " high"))]
    return table[columns].assign(dominated_by=pd.array(counts, dtype="Int64"))


def worst_corner(rows: pd.DataFrame) -> tuple[float, float]:
    """The reference point of hypervolumes: the score before training, and the highest KL of any run.

    Where no run has measured its start, it is the lowest score after training.
    """
    start = rows["start/score"].mean() if "start/score" in rows else math.nan
    return float(rows[REWARD].min() if math.isnan(start) else start), float(rows[KL].max())


def hypervolumes(rows: pd.DataFrame) -> pd.DataFrame:
    """Hypervolume of each method's points over eta, seed by seed, with the 95% interval over seeds.

    Args:
        rows: of :func:`with_methods`.

    Returns:
        ``method``, ``eta`` (the values, joined by spaces: fronts of other values don't compare), ``seeds`` (those with
        a run at each of them), ``hypervolume`` in score times nats, ``low``, ``high``.
    """
    corner, found = worst_corner(rows), []
    for method, own in rows.groupby("method"):
        etas = sorted(own["kl_coef"].unique())
        seeds = [part for _, part in own.groupby("seed") if sorted(part["kl_coef"]) == etas]
        row = {"method": method, "eta": " ".join(f"{eta:g}" for eta in etas), "seeds": len(seeds)}
        if seeds:
            areas = [hypervolume(part[[REWARD, KL]].dropna().to_numpy().tolist(), corner) for part in seeds]
            row |= dict(zip(("hypervolume", "low", "high"), mean_interval(areas), strict=True))
        found.append(row)
    return pd.DataFrame(found, columns=["method", "eta", "seeds", "hypervolume", "low", "high"])


def matched_ratios(rows: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """KL of each method over that of each other at equal held-out reward along training, at each eta that both have.

    Two methods of one eta each are compared where these differ too. Runs are paired by seed, on the mean of the agents.
    Pairs that share no range of rewards, or whose KL isn't above 0 there, are left out of the ratio.

    Args:
        rows: of :func:`with_methods`.
        curves: of ``curves.csv``.

    Returns:
        ``method``, ``over`` (the one with fewer agents, where they differ), ``kl_coef``, ``over kl_coef``, ``pairs`` of
        runs with equal seeds, ``compared`` of them, ``from`` and ``to`` (mean ends of the range of rewards), ``ratio``
        (geometric mean) with ``low`` and ``high``, ``ratio at top`` likewise.
    """
    paths = {
        identity: own.sort_values("rollout")[["score", "ref_kl"]].to_numpy().tolist()
        for identity, own in curves[curves["agent"] == "mean"].groupby(IDENTITY)
    }
    runs = {
        key: {row["seed"]: paths.get(tuple(row[IDENTITY]), []) for _, row in own.iterrows()}
        for key, own in rows.sort_values(["agents", "method"], ascending=[False, True]).groupby(
            ["method", "kl_coef"], sort=False
        )
    }
    etas: dict[Any, int] = rows.groupby("method")["kl_coef"].nunique().to_dict()
    found = [
        compared(a, b, runs[a], runs[b])
        for a, b in itertools.combinations(runs, 2)
        if a[1] == b[1] or (a[0] != b[0] and etas[a[0]] == etas[b[0]] == 1)
    ]
    return (
        pd.DataFrame(found).sort_values(["method", "over", "kl_coef"], ignore_index=True) if found else pd.DataFrame()
    )


Point = tuple[Any, ...]
"""Method and eta."""

Paths = dict[object, list[list[float]]]
"""(score, KL) along training, by seed."""


def compared(a: Point, b: Point, runs_a: Paths, runs_b: Paths) -> dict[str, object]:
    """One row of :func:`matched_ratios`."""
    seeds = sorted(runs_a.keys() & runs_b.keys(), key=str)
    matches = [matched_reward_kl(runs_a[seed], runs_b[seed]) for seed in seeds]
    good = [match for match in matches if match is not None and match.ratio > 0 and match.at_top > 0]
    row: dict[str, object] = {"method": a[0], "over": b[0], "kl_coef": a[1], "over kl_coef": b[1]}
    row |= {"pairs": len(seeds), "compared": len(good)}
    columns = ("from", "to", "ratio", "low", "high", "ratio at top", "top low", "top high")
    if not good:
        return row | dict.fromkeys(columns, math.nan)
    ratio, top = ratio_interval([match.ratio for match in good]), ratio_interval([match.at_top for match in good])
    ends = [sum(values) / len(good) for values in zip(*((match.low, match.high) for match in good), strict=True)]
    return row | dict(zip(columns, [*ends, *ratio, *top], strict=True))
