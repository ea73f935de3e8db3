"""The picture of a run, told from its pixels."""

from collections.abc import Sequence
from math import inf, nan
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from lit_cory.analysis import plot_curves

BLUE, VERMILION = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)
WIDTH, HEIGHT, LEGEND = 1500, 500, 440  # the legend lies below row 440

pytestmark = pytest.mark.filterwarnings("error")


def frame(*curves: tuple[str, str, str, Sequence[float]]) -> pd.DataFrame:
    """Curves of (agent, split, metric, values at rollouts 0, 1, ...) in the form that ``read_run`` returns."""
    rows = [(step, *curve, value) for *curve, values in curves for step, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["step", "agent", "split", "metric", "value"])


def panels(path: Path, colour: tuple[int, int, int]) -> list["np.ndarray[tuple[int], np.dtype[np.intp]]"]:
    """For each of the three panels the picture's rows (0 = top) of the pixels of just that colour."""
    pixels = np.round(image.imread(path)[:LEGEND, :, :3] * 255).astype(int)
    hits = (pixels == colour).all(axis=2)
    return [np.nonzero(hits[:, left : left + WIDTH // 3])[0] for left in range(0, WIDTH, WIDTH // 3)]


def test_three_panels_each_with_its_metric(tmp_path: Path) -> None:
    low, high = [0.0, 0.2, 0.1], [0.8, 0.9, 1.0]
    curves = frame(
        ("agent_0", "val", "score", high),
        ("agent_1", "val", "score", low),
        ("agent_0", "val", "ref_kl", low),
        ("agent_1", "val", "ref_kl", high),
        ("agent_0", "val", "combined", high),
        ("agent_1", "val", "combined", low),
        ("agent_0", "val", "entropy", [1e9, 1e9, 1e9]),
    )
    path = plot_curves(curves, tmp_path / "curves.png")
    assert path == tmp_path / "curves.png"
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert image.imread(path).shape[:2] == (HEIGHT, WIDTH)
    blue, vermilion = panels(path, BLUE), panels(path, VERMILION)
    assert blue[0].max() < vermilion[0].min()  # agent_0 above agent_1
    assert blue[1].min() > vermilion[1].max()
    assert blue[2].max() < vermilion[2].min()


def test_held_out_is_drawn_thicker_than_training(tmp_path: Path) -> None:
    values = [0.1, 0.4, 0.3, 0.9]
    ink = {
        split: len(panels(plot_curves(frame(("agent_0", split, "score", values)), tmp_path / "c.png"), BLUE)[0])
        for split in ("train", "val")
    }
    assert 0 < 2 * ink["train"] < ink["val"]


def test_training_line_is_a_running_mean(tmp_path: Path) -> None:
    spike = [0.0] * 30 + [1.0] + [0.0] * 29  # 60 rollouts: mean over 3, so the spike stands at a third of its height
    path = plot_curves(frame(("agent_0", "train", "score", spike)), tmp_path / "curves.png")
    rows = panels(path, BLUE)[0]
    top, bottom = rows.min(), rows.max()
    every = np.round(image.imread(path)[:LEGEND, 60 : WIDTH // 3, :3] * 255).astype(int)
    dots = np.nonzero(every[:, :, 2] - every[:, :, 0] > 40)[0]  # anything bluish, the pale dot of the spike included
    assert (bottom - top) / (bottom - dots.min()) == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_value_between_missing_ones_is_seen(tmp_path: Path, split: str) -> None:
    def bluish(values: Sequence[float]) -> int:
        path = plot_curves(frame(("agent_0", split, "score", values)), tmp_path / "curves.png")
        pixels = image.imread(path)[:LEGEND, :, :3]
        return int((pixels[:, :, 2] - pixels[:, :, 0] > 0.15).sum())

    assert bluish([0.5]) > 0
    assert bluish([nan, 0.5, nan, inf, nan]) > 0
    assert bluish([nan, nan]) == 0


def test_a_gap_stays_a_gap(tmp_path: Path) -> None:
    whole, gap = ([0.5] * 60, [0.5] * 20 + [nan] * 20 + [0.5] * 20)
    ink = [
        len(panels(plot_curves(frame(("agent_0", "train", "score", values)), tmp_path / "c.png"), BLUE)[0])
        for values in (whole, gap)
    ]
    assert ink[1] / ink[0] == pytest.approx(38 / 59, abs=0.015)  # of 59 stretches between rollouts 38 are left


def test_metrics_that_werent_logged_leave_empty_panels(tmp_path: Path) -> None:
    path = plot_curves(frame(("agent_0", "val", "score", [0.5, 0.6])), tmp_path / "curves.png")
    assert [len(rows) > 0 for rows in panels(path, BLUE)] == [True, False, False]
    assert plot_curves(frame(), path) == path


def test_agents_beyond_the_palette(tmp_path: Path) -> None:
    many = frame(*((f"agent_{index}", "val", "score", [index, index]) for index in range(12)))
    blue = panels(plot_curves(many, tmp_path / "curves.png"), BLUE)[0]
    assert blue.max() - blue.min() > HEIGHT / 3  # agent_0 at the bottom and agent_6, half way up, share a colour


def test_the_callers_backend_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "backend", "pdf")
    plot_curves(frame(("agent_0", "val", "score", [0.5, 0.6])), tmp_path / "curves.png")
    assert matplotlib.rcParams["backend"] == "pdf"
