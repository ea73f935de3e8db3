"""What an evaluation came to: a frame of means with intervals, and the files that keep it."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lit_cory.analysis import majority, mean_interval, paired_gain, pass_at_k
from lit_cory.analysis.runs import BEST, VOTE
from lit_cory.evaluation import HeldOut, Tables
from lit_cory.types import Query


def figures(samples: Sequence[HeldOut], pass_at: Sequence[int], ways: Sequence[str]) -> dict[str, list[float]]:
    """Every metric of one table, an entry a query: means over its samples, where the metric isn't one of all samples.

    Args:
        samples: the table.
        pass_at: the k of pass@k; left out are those above the number of samples, which can't be estimated, and 1, which
            is the accuracy.
        ways: in which answers may be given.

    Returns:
        ``score``, ``length``, ``cut_off``; where measured ``ref_kl``, ``ref_nll`` and ``combined``; where answers
        are right or wrong ``accuracy``, ``pass@k``, ``vote`` (of several samples), ``ran_on`` and ``given: WAY`` for
        each way.
    """
    columns: dict[str, list[list[float]]] = {
        name: [getattr(table, name) for table in samples]
        for name in ("score", "ref_kl", "ref_nll", "combined", "length", "cut_off")
    }
    right = [[float(x) for x in table.correct] for table in samples]
    if right[0]:
        columns["accuracy"] = right
        columns["ran_on"] = [[float(x) for x in table.ran_on] for table in samples]
        columns |= {f"given: {way}": [[float(x == way) for x in t.given] for t in samples] for way in ways}
    found = {name: [float(x) for x in np.mean(column, axis=0)] for name, column in columns.items() if column[0]}
    if right[0]:
        counts = np.sum(right, axis=0).astype(int)
        n = len(samples)
        found |= {f"pass@{k}": [pass_at_k(n, int(c), k) for c in counts] for k in pass_at if 1 < k <= n}
        if n > 1:
            found["vote"] = vote(samples)
    return found


def vote(samples: Sequence[HeldOut]) -> list[float]:
    """1.0 for each query where the answer that most samples give is right, else 0.0; ties go to the first given."""
    right = []
    for query in range(len(samples[0].answer)):
        winner = majority([table.answer[query] for table in samples])
        right.append(float(winner is not None and samples[winner].correct[query]))
    return right


def summary_frame(
    names: Sequence[str], before: Tables, after: Tables, pass_at: Sequence[int] = (), ways: Sequence[str] = ()
) -> pd.DataFrame:
    """One row per table and metric: means with 95% intervals (Student's t), and the gain paired by query.

    Args:
        names: of the agents.
        before: empty where the start was not measured.
        after: on the same queries.
        pass_at: see :func:`figures`.
        ways: see there.
    """
    rows = []
    start, end_figures = (
        {name: figures(samples, pass_at, ways) for name, samples in tables.items()} for tables in (before, after)
    )
    of_all = everyones_best(names, after) | everyones_vote(names, after) | effects(after)
    for table, found in (end_figures | of_all).items():
        for metric, end in found.items():
            row: dict[str, object] = {"agent": table, "metric": metric, "queries": len(end)}
            parts = {"after": mean_interval(end)}
            if (earlier := start.get(table, {}).get(metric)) is not None:
                parts |= {"before": mean_interval(earlier), "gain": paired_gain(earlier, end)}
            for part, interval in parts.items():
                row |= {part: interval.mean, f"{part}_low": interval.low, f"{part}_high": interval.high}
            rows.append(row)
    return pd.DataFrame(rows)


def everyones_vote(names: Sequence[str], tables: Tables) -> dict[str, dict[str, list[float]]]:
    """The vote of what all agents answer alone, where answers can be voted on and there are three or more.

    It is not compared with a start, where the agents are copies of each other.
    """
    pooled = [table for name in names for table in tables.get(name, [])]
    if len(names) == 1 or len(pooled) < 3 or not pooled[0].correct:
        return {}
    return {VOTE: {"vote": vote(pooled)}}


def everyones_best(names: Sequence[str], tables: Tables) -> dict[str, dict[str, list[float]]]:
    """The highest of the agents' scores to each query, mean over the samples: a team as an ensemble.

    It takes the task's score at the time of use, and as many answers as there are agents.
    """
    each = [tables[name] for name in names if name in tables]
    if len(each) < 2:
        return {}
    best = [np.max([table.score for table in samples], axis=0) for samples in zip(*each, strict=False)]
    return {BEST: {"score": [float(x) for x in np.mean(best, axis=0)]}}


def effects(tables: Tables) -> dict[str, dict[str, list[float]]]:
    """What reading the earlier answers does to each observer, an entry a query, mean over the samples.

    ``score`` is what its answer gains over the one it gives alone; ``logprob`` is by how many nats the answer that it
    gave is likelier for having read them, the pointwise information between the answers given the query.
    """
    found = {}
    for name, samples in tables.items():
        if samples[0].logprob_alone:
            pairs = {"score": ("score", "score_alone"), "logprob": ("logprob", "logprob_alone")}
            found[f"{name}: effect of reading"] = {
                metric: [
                    float(x)
                    for x in np.mean([np.subtract(getattr(t, read), getattr(t, alone)) for t in samples], axis=0)
                ]
                for metric, (read, alone) in pairs.items()
            }
    return found


def answers_frame(queries: Sequence[Query], tables: Tables) -> pd.DataFrame:
    """One row per table, sample and query: the query, its gold, the answer and all that is known of it."""
    rows: list[dict[str, Any]] = []
    for name, samples in tables.items():
        for number, table in enumerate(samples):
            columns = {key: values for key, values in vars(table).items() if values}
            for i, query in enumerate(queries):
                own = {key: values[i] for key, values in columns.items()}
                rows.append({"row": query.row, "agent": name, "sample": number, "query": query.text} | own)
                rows[-1]["gold"] = query.gold
    return pd.DataFrame(rows)


def write_results(folder: Path, frame: pd.DataFrame, answers: pd.DataFrame, facts: dict[str, Any]) -> None:
    """Keep a summary as ``summary.csv`` and ``summary.json``, and every answer as a row of ``answers.csv``.

    Args:
        folder: exists.
        frame: of :func:`summary_frame`.
        answers: of :func:`answers_frame`.
        facts: what else the JSON file says of the run.
    """
    frame.to_csv(folder / "summary.csv", index=False)
    write_answers(folder / "answers.csv", answers)
    found: dict[str, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        agent, metric = str(row.pop("agent")), str(row.pop("metric"))
        found.setdefault(agent, {})[metric] = {
            str(key): value if isinstance(value, int) or math.isfinite(value) else None for key, value in row.items()
        }
    (folder / "summary.json").write_text(json.dumps(facts | {"agents": found}, indent=1) + "\n")


def write_answers(path: Path, answers: pd.DataFrame) -> None:
    """Keep what :func:`answers_frame` made."""
    # A bare carriage return in an answer would end its row, were it not quoted.
    answers.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
