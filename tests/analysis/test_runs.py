"""Runs as rows: every number is found again in the run's own files."""

import json
import re
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
import yaml

from lit_cory.analysis import area_under, read_scalars
from lit_cory.analysis.runs import config_hash, held_out_curve, put, read_table, run_row, value_at, write_table
from lit_cory.errors import UserError


def test_a_row_says_what_the_runs_files_say(small_runs: Path) -> None:
    run = small_runs / "cory" / "1"
    row = run_row(run, ["model.lr", "model.team.score", "model.algorithm.clip", "model.nothing"])
    assert (row["name"], row["seed"], row["kl_coef"], row["agents"], row["rollouts"]) == ("cory", 1, 0.05, 2, 3)
    assert (row["model.lr"], row["model.team.score"], row["model.algorithm.clip"]) == ("0.05", "sum", "0.2")
    assert row["model.nothing"] is None
    assert row["seconds"] > 0
    assert row["peak_mb"] > 100
    assert re.search(r"torch \d+\.", row["versions"])
    summary = json.loads((run / "summary.json").read_text())["agents"]
    answers = pd.read_csv(run / "answers.csv", keep_default_na=False)
    for agent in ("agent_0", "agent_1"):
        for key in ("score", "ref_kl", "combined", "length"):
            assert row[f"val/{agent}/{key}"] == summary[agent][key]["after"]
        texts = answers[answers["agent"] == agent]["texts"]
        assert row[f"val/{agent}/distinct"] == pytest.approx(texts.nunique() / 8)
    for key in ("score", "ref_kl", "distinct", "perplexity"):
        assert row[f"val/mean/{key}"] == pytest.approx(fmean(row[f"val/agent_{k}/{key}"] for k in (0, 1)))
    by_query = answers.pivot(index="row", columns="agent", values="score")
    assert row["val/best/score"] == pytest.approx(by_query.max(axis=1).mean())
    assert row["start/score"] == summary["agent_0"]["score"]["before"]
    scalars = read_scalars(run).set_index(["tag", "step"])["value"]
    assert row["train/agent_1/ref_kl"] == scalars["train/agent_1/ref_kl", 3], "a tenth of 3 rollouts is the last"
    tokens = [
        scalars[f"train/agent_{k}/response_length", step] * 4  # queries a batch
        for k in (0, 1)
        for step in (1, 2, 3)
    ]
    assert row["tokens"] == pytest.approx(sum(tokens))


def test_curves_have_the_agents_and_their_mean(small_runs: Path) -> None:
    run = small_runs / "cory" / "0"
    curve = held_out_curve(run).set_index(["agent", "rollout"])
    scalars = read_scalars(run).set_index(["tag", "step"])["value"]
    means = [fmean(scalars[f"val/agent_{k}/score", step] for k in (0, 1)) for step in range(4)]
    assert curve.loc["mean"]["score"].tolist() == pytest.approx(means)
    assert curve.loc["agent_1"]["ref_kl"].tolist() == [scalars["val/agent_1/ref_kl", step] for step in range(4)]
    assert run_row(run)["area/score"] == pytest.approx(area_under(range(4), means))


def test_the_hash_is_of_what_makes_the_numbers(small_runs: Path) -> None:
    seed_0, seed_1 = (yaml.safe_load((small_runs / "ppo" / seed / "config.yaml").read_text()) for seed in "01")
    found = config_hash(seed_0)
    assert found == config_hash(seed_1)
    assert re.fullmatch("[0-9a-f]{10}", found)
    seed_0["model"]["kl"]["coef"] = 0.3
    assert config_hash(seed_0) != found


def test_values_stand_as_one_would_type_them() -> None:
    config = {"a": {"class_path": "x.Y", "init_args": {"b": 1e-5, "c": [1, 2], "d": None}}, "e": True, "f": "text"}
    assert [value_at(config, key) for key in ("a", "a.b", "a.init_args.c", "a.d", "e", "f", "a.z", "f.g")] == [
        "x.Y",
        "1e-05",
        "[1, 2]",
        "null",
        "true",
        "text",
        None,
        None,
    ]


def test_tables_come_back_bit_for_bit(tmp_path: Path) -> None:
    rows = [
        {"name": "b", "hash": "12345e6789", "seed": 1, "model.lr": "1e-4", "val/mean/score": 1 / 3, "agents": 2},
        {"name": "a", "hash": "1234567890", "seed": 0, "val/mean/score": 0.1 + 0.2, "agents": 1},
    ]
    table = put(pd.DataFrame(), rows)
    assert table["name"].tolist() == ["a", "b"]
    assert list(table) == ["name", "hash", "seed", "model.lr", "agents", "val/mean/score"]
    write_table(table, tmp_path / "results.csv")
    again = read_table(tmp_path / "results.csv")
    assert again["hash"].tolist() == ["1234567890", "12345e6789"], "no number"
    assert again["val/mean/score"].tolist() == [0.1 + 0.2, 1 / 3]
    write_table(put(again, [rows[0]]), tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "results.csv").read_bytes()
    newer = put(again, [{"name": "a", "hash": "1234567890", "seed": 0, "agents": 5}])
    assert newer["agents"].tolist() == [5, 2], "of one run the newest counts"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_no_run_or_table(tmp_path: Path, small_runs: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.yaml in it"):
        run_row(tmp_path)
    (tmp_path / "config.yaml").write_bytes((small_runs / "ppo" / "0" / "config.yaml").read_bytes())
    (tmp_path / "summary.json").write_text('{"agents": {')
    with pytest.raises(UserError, match=r"isn't complete, it has no whole summary\.json; finish it with"):
        run_row(tmp_path)
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"odd\.csv: has no column name"):
        read_table(tmp_path / "odd.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(UserError, match=r"empty\.csv: can't be read as a table"):
        read_table(tmp_path / "empty.csv")
