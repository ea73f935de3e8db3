"""Methods from rows, worked out by hand. Student's t at 2 degrees of freedom over sqrt(3) is 2.4841."""

from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from lit_cory.analysis.evidence import (
    front_points,
    hypervolumes,
    matched_ratios,
    summary_table,
    with_methods,
    worst_corner,
)
from lit_cory.analysis.evidence_plots import plot_methods, plot_pareto

T = 2.4841


def make_rows() -> pd.DataFrame:
    """Two methods at two eta, three seeds; before training the score is 0.2."""
    cells = {
        ("cory", "h1", 0.1, 2): [(0.7, 3.0), (0.8, 4.0), (0.9, 5.0)],
        ("cory", "h2", 0.4, 2): [(0.4, 1.0), (0.5, 1.0), (0.6, 1.0)],
        ("ppo", "h3", 0.1, 1): [(0.7, 8.0)] * 3,
        ("ppo", "h4", 0.4, 1): [(0.5, 2.0)] * 3,
    }
    rows = [
        (name, found, seed, eta, agents, 0.2, score, kl)
        for (name, found, eta, agents), points in cells.items()
        for seed, (score, kl) in enumerate(points)
    ]
    columns = ["name", "hash", "seed", "kl_coef", "agents", "start/score", "val/mean/score", "val/mean/ref_kl"]
    return pd.DataFrame(rows, columns=columns)


def make_curves() -> pd.DataFrame:
    """At eta 0.1 cory goes straight to 0.8 at 1, 2 and 4 nats, ppo to 0.7 at 8; at 0.4 ppo never rises."""
    ends = {f"h1 {seed}": (0.8, kl) for seed, kl in enumerate((1.0, 2.0, 4.0))}
    ends |= {f"h3 {seed}": (0.7, 8.0) for seed in range(3)} | {"h2 0": (0.5, 1.0), "h4 0": (0.1, 1.0)}
    rows = [
        ("cory" if run[:2] in ("h1", "h2") else "ppo", run[:2], int(run[3:]), agent, rollout, *point, 0.0)
        for run, end in ends.items()
        for rollout, point in ((0, (0.2, 0.0)), (6, end))
        for agent in ("mean", "agent_0")
    ]
    columns = ["name", "hash", "seed", "agent", "rollout", "score", "ref_kl", "combined"]
    return pd.DataFrame(rows, columns=columns)


def values(row: Any, columns: list[str]) -> list[float]:
    """Some cells of a row."""
    return [float(row[column]) for column in columns]


def test_the_table_has_means_with_intervals() -> None:
    table = summary_table(with_methods(make_rows()))
    assert table[["method", "kl_coef", "seeds"]].to_numpy().tolist() == [
        ["cory", 0.1, 3],
        ["cory", 0.4, 3],
        ["ppo", 0.1, 3],
        ["ppo", 0.4, 3],
    ]
    assert values(table.loc[0], ["score", "KL"]) == pytest.approx([0.8, 4])
    assert values(table.loc[0], ["KL low", "KL high"]) == pytest.approx([4 - T, 4 + T], abs=1e-4)
    assert values(table.loc[3], ["score low", "score high"]) == pytest.approx([0.5, 0.5])
    assert "accuracy" not in table, "was not measured"


def test_fronts_are_of_all_methods() -> None:
    """PPO's 0.7 at 8 loses to 0.8 at 4, its 0.5 at 2 to 0.5 at 1."""
    points = front_points(summary_table(with_methods(make_rows())))
    assert points["dominated_by"].tolist() == [0, 0, 1, 1]
    broken = make_rows()
    broken.loc[0, "val/mean/score"] = float("nan")
    assert front_points(summary_table(with_methods(broken)))["dominated_by"].isna().tolist() == [1, 0, 0, 0]


def test_hypervolumes_by_hand() -> None:
    """Corner (0.2, 8). Cory: 0.2 * 7 + 0.3 * 5 = 2.9, then 3.3, 3.7. PPO: 0.3 * 6, its other point is on the edge."""
    rows = make_rows()
    assert worst_corner(rows) == pytest.approx((0.2, 8.0))
    assert worst_corner(rows.drop(columns="start/score")) == pytest.approx((0.4, 8.0))
    found = hypervolumes(with_methods(rows)).set_index("method")
    assert values(found.loc["cory"], ["hypervolume", "low", "high"]) == pytest.approx(
        [3.3, 3.3 - 0.4 * T, 3.3 + 0.4 * T], abs=1e-4
    )
    assert found.loc["ppo", "hypervolume"] == pytest.approx(1.8)
    assert found["eta"].tolist() == ["0.1 0.4", "0.1 0.4"]


def test_seeds_without_a_whole_front_have_no_hypervolume() -> None:
    found = hypervolumes(with_methods(make_rows().iloc[1:])).set_index("method")
    assert found.loc["cory", "seeds"] == 2
    assert found.loc["cory", "hypervolume"] == pytest.approx(3.5)


def test_matched_ratios_by_hand() -> None:
    """From 0.2 to 0.7 cory pays 5/6 of 1, 2 and 4 nats where PPO pays 8: 5/24 in the middle, a factor of 2 around."""
    found = matched_ratios(with_methods(make_rows()), make_curves())
    assert found[["method", "over", "kl_coef", "pairs", "compared"]].to_numpy().tolist() == [
        ["cory", "ppo", 0.1, 3, 3],
        ["cory", "ppo", 0.4, 3, 0],
    ]
    spread = exp(4.30265 * log(2) / sqrt(3))
    expected = [0.2, 0.7, *(2 * [5 / 24, 5 / 24 / spread, 5 / 24 * spread])]
    columns = ["from", "to", "ratio", "low", "high", "ratio at top", "top low", "top high"]
    assert values(found.loc[0], columns) == pytest.approx(expected, rel=1e-4)
    assert found.loc[1][columns].isna().all(), "no run of PPO rises there"


def test_a_kl_below_0_is_not_compared() -> None:
    """Sampled KL can be negative near the start; here its mean is, though not at the top."""
    curves = make_curves()
    dip = curves[(curves["hash"] == "h1") & (curves["seed"] == 0) & (curves["rollout"] == 6)]
    on_the_way = [dip.assign(rollout=3, score=0.6, ref_kl=-30.0), dip.assign(rollout=4, score=0.65, ref_kl=1.0)]
    found = matched_ratios(with_methods(make_rows()), pd.concat([curves, *on_the_way]))
    assert values(found.loc[0], ["pairs", "compared"]) == [3, 2]


def test_methods_of_one_eta_each_are_compared_whatever_it_is() -> None:
    rows = make_rows()
    rows = rows[rows["hash"].isin(["h1", "h3"])].replace({"kl_coef": {0.1: 0.3}, "hash": {}})
    rows.loc[rows["name"] == "cory", "kl_coef"] = 0.4
    found = matched_ratios(with_methods(rows), make_curves())
    assert found[["kl_coef", "over kl_coef", "compared"]].to_numpy().tolist() == [[0.4, 0.3, 3]]


def test_methods_are_names_and_what_differs_in_the_grid() -> None:
    rows = make_rows().iloc[[0, 1, 6]]
    keys: dict[str, Any] = {
        "model.team.score": ["sum", "own", None],
        "model.kl.coef": ["0.1", "0.1", "0.1"],
        "model.lr": ["1e-4"] * 3,
    }
    assert with_methods(rows.assign(**keys))["method"].tolist() == [
        "cory, team.score=sum",
        "cory, team.score=own",
        "ppo",
    ]
    other = rows.assign(hash=["h1", "h9", "h3"])
    assert with_methods(other)["method"].tolist() == ["cory h1", "cory h9", "ppo"], "different configurations never mix"


def test_the_front_is_drawn_over_what_it_dominates(tmp_path: Path) -> None:
    """Grey lies right of the front and below it: more of it than white on the right, none at the upper left."""
    points = front_points(summary_table(with_methods(make_rows())))
    picture = image.imread(plot_pareto(points, tmp_path / "pareto.png"))[:, :, :3]
    assert picture.shape[:2] == (650, 900)
    grey = np.isclose(picture, 0.925, atol=0.01).all(axis=2)  # 15% of a middle grey over white
    assert grey[350:450, 600:800].mean() > 0.8
    assert grey[30:200, 100:160].mean() < 0.01
    one = summary_table(with_methods(make_rows().iloc[:1]))
    assert plot_pareto(front_points(one), tmp_path / "one.png").is_file(), "one seed has no bars"


def test_curves_of_methods_are_drawn(tmp_path: Path) -> None:
    rows = with_methods(make_rows())
    curves = make_curves().merge(rows[["name", "hash", "seed", "method", "kl_coef"]], on=["name", "hash", "seed"])
    picture = image.imread(plot_methods(curves, tmp_path / "curves.png"))
    assert picture.shape[:2] == (600, 1500)
    blue = np.isclose(picture[:, :, :3], [0, 0x72 / 255, 0xB2 / 255], atol=0.01).all(axis=2)
    assert blue[:, :500].any()
    assert blue[:, 500:1000].any()
