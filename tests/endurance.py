"""A long run watched from outside: memory of its process, growth of its files."""

import time
from pathlib import Path
from statistics import median

from lit_cory.analysis import read_scalars
from tests.processes import ended, not_left_behind, start
from tests.test_cli import tiny

Samples = list[tuple[float, float]]
"""Seconds since the start, and resident memory in MB."""


def endure(base: Path, run: Path, rollouts: int) -> tuple[Samples, int]:
    """Run so many rollouts in another process; returns its memory over time, and the bytes of its event files."""
    period = max(1, rollouts // 4)
    given = tiny(base, run_folder=run, model__rollouts=rollouts, samples__every_n_rollouts=period)
    given += [f"--trainer.val_check_interval={period}", f"--checkpoint.every_n_rollouts={period}"]
    samples: Samples = []
    started = time.monotonic()
    with not_left_behind(start(["fit", *given], run.with_suffix(".log"))) as child:
        while (status := ended(child)) is None:
            pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
            samples.append((time.monotonic() - started, pages * 4096 / 2**20))
            time.sleep(0.1)
        assert status == 0, run.with_suffix(".log").read_text()
    assert read_scalars(run)["step"].max() == rollouts
    return samples, sum(path.stat().st_size for path in run.rglob("events.out.tfevents.*"))


def growth(samples: Samples) -> tuple[float, float]:
    """Median memory in the second fifth of the samples, after the start, and in the last but the end: MB."""
    fifth = len(samples) // 5
    return median(mb for _, mb in samples[fifth : 2 * fifth]), median(mb for _, mb in samples[4 * fifth : -fifth // 4])


def draw(samples: Samples, path: Path) -> Path:
    """The picture of memory over time."""
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*samples, strict=True))
    axes.set(xlabel="seconds", ylabel="resident memory, MB", ylim=(0, None))
    figure.savefig(path, dpi=120)
    return path
