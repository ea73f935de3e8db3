"""Run folders as rows of a table, ``results.csv``, and as curves beside it, ``curves.csv``."""

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lit_cory.analysis.collapse import distinct_n, perplexity, repeated_share
from lit_cory.analysis.curves import area_under
from lit_cory.analysis.events import read_run
from lit_cory.errors import UserError
from lit_cory.run_folder import last_config

IDENTITY = ["name", "hash", "seed"]
"""Columns that say which run a row is of."""

CHANGING = ["seconds", "peak_mb", "gpu_mb", "revision"]
"""Columns in which two runs of one configuration and seed may differ."""

NOT_HASHED = ("seed_everything", "run_folder", "ckpt_path", "weights_only", "config")

TRAIN = {
    "score": "score",
    "ref_kl": "ref_kl",
    "combined": "combined",
    "distinct": "distinct",
    "response_length": "length",
    "entropy": "entropy",
}
"""Scalars of training that a row keeps, and their names there."""

HELD_OUT = ("score", "ref_kl", "combined", "length", "accuracy")
"""Figures of the last held-out evaluation that a row keeps as they are."""

BEST = "best of all agents"
"""Name in a summary of the best of what all agents answer alone, an agent an answer."""

VOTE = "all agents' vote"
"""Name in a summary of the majority vote over what all agents answer alone."""

CURVES = ("score", "ref_kl", "combined")

FIRST = ["kl_coef", "agents", "rollouts", "queries", "tokens", *CHANGING, "versions"]
"""Columns that come before the figures."""


def config_hash(config: dict[str, Any]) -> str:
    """Ten hexadecimal digits of an effective configuration, its seed and folder left out."""
    kept = {key: value for key, value in config.items() if key not in NOT_HASHED}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:10]


def read_config(run: Path) -> dict[str, Any]:
    """The effective configuration of a run.

    Raises:
        UserError: if the folder holds none.
    """
    path = last_config(run)
    if path is None:
        raise UserError(f"{run}: there is no config.yaml in it; name the folder of a run, or a results.csv")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def read_summary(run: Path) -> dict[str, Any] | None:
    """The summary that a run ends with; None before it is there and whole."""
    try:
        return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def value_at(config: dict[str, Any], key: str) -> str | None:
    """The value of a dotted key as text; None where the configuration lacks it.

    What stands in a class's ``init_args`` is found with and without that part of the key.
    """
    found: Any = config
    for name in key.split("."):
        inner = found.get("init_args") if isinstance(found, dict) and name not in found else found
        if not isinstance(inner, dict) or name not in inner:
            return None
        found = inner[name]
    if isinstance(found, dict) and "class_path" in found:
        return str(found["class_path"])
    return found if isinstance(found, str) else json.dumps(found)


def run_row(run: Path, grid: Iterable[str] = ()) -> dict[str, Any]:
    """One complete run as a row.

    Columns: ``name`` (of the folder above the run), ``hash``, ``seed``; the keys of ``grid``; ``kl_coef``, ``agents``,
    ``rollouts``, ``queries``; ``tokens`` sampled in training, ``seconds`` of wall time, ``peak_mb`` and ``gpu_mb`` of
    memory, ``revision``, ``versions``; ``start/score`` held out before training; ``val/AGENT/FIGURE`` held out after
    it, and ``train/AGENT/FIGURE``, the mean of the last tenth of the rollouts, of each agent and of their ``mean``;
    ``val/best/score`` and ``val/vote/accuracy`` of all agents as an ensemble; ``area/FIGURE`` under the held-out curve
    of the mean over the rollouts. Scores are the task's, KL in nats, length in tokens; what was not measured is left
    out.

    Args:
        run: the folder.
        grid: dotted keys to show.

    Raises:
        UserError: if the run isn't complete.
    """
    config, summary = read_config(run), read_summary(run)
    if summary is None:
        raise UserError(
            f"{run}: the run isn't complete, it has no whole summary.json; finish it with fit --resume {run}"
        )
    agents = {name: found for name, found in summary["agents"].items() if re.fullmatch(r"agent_\d+", name)}
    if not agents:
        raise UserError(f"{run}: its evaluation sampled no answers; set model.evaluation.samples to 1 or more")
    first = next(iter(agents.values()))["score"]
    peak = summary.get("peak_mb") or {}
    row = {
        "name": run.absolute().parent.name,
        "hash": config_hash(config),
        "seed": config["seed_everything"],
        **{key: value_at(config, key) for key in grid},
        "kl_coef": config["model"]["kl"]["coef"],
        "agents": config["model"]["agents"],
        "rollouts": summary["rollouts"],
        "queries": first["queries"],
        "seconds": summary.get("seconds"),
        "peak_mb": peak.get("process"),
        "gpu_mb": peak.get("gpu"),
        "revision": summary.get("revision"),
        "versions": summary.get("versions"),
        "start/score": first.get("before"),
    }
    figures = held_out_figures(run, agents) | ensemble_figures(summary["agents"])
    if has_events(run):
        curves = read_run(run)
        row["tokens"] = curves[curves["metric"] == "tokens"]["value"].sum() or None
        figures |= training_figures(curves)
        row |= areas(held_out_curve(run))
    return row | figures


def held_out_figures(run: Path, agents: dict[str, Any]) -> dict[str, float]:
    """``val/AGENT/FIGURE`` from the run's summary and answers."""
    with (run / "answers.csv").open(newline="", encoding="utf-8") as file:
        answers = pd.DataFrame(csv.DictReader(file))
    by_agent: dict[str, dict[str, float]] = {}
    for name, found in agents.items():
        own = answers[answers["agent"] == name]
        texts = own["texts"].tolist()
        by_agent[name] = {key: found[key]["after"] for key in HELD_OUT if key in found}
        by_agent[name] |= {"distinct": 1 - repeated_share(texts), "distinct_2": distinct_n(texts, 2)}
        if "ref_nll" in found:
            by_agent[name]["perplexity"] = perplexity(*(own[c].astype(float).tolist() for c in ("ref_nll", "length")))
    return with_mean("val", by_agent)


def ensemble_figures(tables: dict[str, Any]) -> dict[str, float]:
    """``val/best/score`` and ``val/vote/accuracy`` of all agents together, where they were measured."""
    wanted = {"val/best/score": (BEST, "score"), "val/vote/accuracy": (VOTE, "vote")}
    return {
        column: tables[name][metric]["after"]
        for column, (name, metric) in wanted.items()
        if metric in tables.get(name, {})
    }


def training_figures(curves: pd.DataFrame) -> dict[str, float]:
    """``train/AGENT/FIGURE``: means of the last tenth of the rollouts, of the last one at least."""
    train = curves[curves["split"] == "train"]
    last = train[train["step"] > train["step"].max() * 0.9]
    found = last.groupby(["agent", "metric"])["value"].mean().unstack()
    names = {metric: name for metric, name in TRAIN.items() if metric in found}
    return with_mean("train", {str(agent): {names[m]: row[m] for m in names} for agent, row in found.iterrows()})


def with_mean(split: str, by_agent: dict[str, dict[str, float]]) -> dict[str, float]:
    """Columns of each agent, and of the mean of all."""
    frame = pd.DataFrame(by_agent)
    parts = {**by_agent, "mean": {str(key): float(value) for key, value in frame.mean(axis=1, skipna=False).items()}}
    return {f"{split}/{agent}/{key}": value for agent, figures in parts.items() for key, value in figures.items()}


def held_out_curve(run: Path) -> pd.DataFrame:
    """``rollout``, ``agent`` (each, and ``mean``), ``score``, ``ref_kl``, ``combined``: a row an evaluation."""
    curves = read_run(run)
    wide = curves[(curves["split"] == "val") & curves["metric"].isin(CURVES)]
    wide = wide.pivot(index=["step", "agent"], columns="metric", values="value").reset_index()
    means = wide.drop(columns="agent").groupby("step", as_index=False).mean().assign(agent="mean")
    both = pd.concat([wide, means]).rename(columns={"step": "rollout"}).sort_values(["agent", "rollout"])
    return both.reindex(columns=["rollout", "agent", *CURVES]).reset_index(drop=True)


def areas(curve: pd.DataFrame) -> dict[str, float]:
    """``area/FIGURE`` under the mean of the agents, where it was measured more than once."""
    mean = curve[curve["agent"] == "mean"]
    if len(mean) < 2:
        return {}
    return {f"area/{key}": area_under(mean["rollout"], mean[key]) for key in CURVES if mean[key].notna().all()}


def has_events(run: Path) -> bool:
    """Whether there is an event file in the run's folder."""
    return any(run.glob("events.out.tfevents.*"))


def read_table(path: Path) -> pd.DataFrame:
    """A table of :func:`write_table`, its numbers bit for bit, its grid's values as text.

    Raises:
        UserError: for a file that lacks the columns that name a run.
    """
    try:
        grid = grid_columns(pd.read_csv(path, nrows=0))
        frame = pd.read_csv(path, float_precision="round_trip", dtype=dict.fromkeys(["name", "hash", *grid], str))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: can't be read as a table ({error}); name a results.csv, or the folder of one"
        ) from error
    if missing := [column for column in IDENTITY if column not in frame]:
        raise UserError(f"{path}: has no column {missing[0]}; name a results.csv that sweep or report has written")
    return frame


def write_table(frame: pd.DataFrame, path: Path, float_format: str | None = None) -> None:
    """Write a CSV in one step: whoever reads it finds the old or the new one; numbers bit for bit, or formatted."""
    part = path.with_name(f".{path.name}.part")
    frame.to_csv(part, index=False, float_format=float_format)
    os.replace(part, path)


def put(rows: pd.DataFrame, new: Sequence[Mapping[Any, Any]]) -> pd.DataFrame:
    """The rows with new ones, of one run the newest, by name, hash and seed.

    Columns: those that name a run, then the grid's, the facts, the figures.
    """
    frames = [frame for frame in (rows, pd.DataFrame(new)) if len(frame)]
    if not frames:
        return rows
    both = pd.concat(frames).drop_duplicates(IDENTITY, keep="last").sort_values(IDENTITY, ignore_index=True)
    grid = sorted(grid_columns(both))
    facts = [column for column in FIRST if column in both]
    rest = sorted(str(column) for column in both if column not in {*IDENTITY, *grid, *facts})
    return both[[*IDENTITY, *grid, *facts, *rest]]


def grid_columns(rows: pd.DataFrame) -> list[str]:
    """The columns that show keys of configurations."""
    return [str(column) for column in rows if "." in str(column)]
