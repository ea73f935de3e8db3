"""``python -m lit_cory bench``: seconds per rollout by phase, and peak memory, on the configuration given."""

import json
import platform
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console
from rich.table import Table

from lit_cory.module import CoryLightningModule


class Laps(L.Callback):
    """Keeps the seconds of each rollout by phase, the whole under ``rollout``."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Take the time."""
        self.start = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Note the lap."""
        del trainer, args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        self.laps.append(pl_module.seconds | {"rollout": time.perf_counter() - self.start})


def bench(module: CoryLightningModule, datamodule: L.LightningDataModule, repeat: int) -> dict[str, Any]:
    """Run one rollout to warm up and ``repeat`` counted ones, with neither validation nor files.

    Returns:
        ``seconds``: median per rollout by phase, ``rollout`` the whole; ``peak_mb`` of the process, and of the GPU if
        there is one; ``gflops``: the matrix rates of this machine; and what was run on what.
    """
    laps = Laps()
    trainer = L.Trainer(
        max_epochs=1,
        limit_train_batches=repeat + 1,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=[laps],
    )
    trainer.fit(module, datamodule=datamodule)
    counted = laps.laps[1:]
    seconds = {name: statistics.median(lap.get(name, 0.0) for lap in counted) for name in counted[0]}
    base = next(module.agents()[0].lm.parameters())
    return {
        "seconds": seconds,
        "rollouts": repeat,
        "peak_mb": peak_megabytes(),
        "gflops": {str(dtype).removeprefix("torch."): matrix_rate(dtype) for dtype in (torch.float32, torch.bfloat16)},
        "agents": len(module.agent_names),
        "dtype": str(base.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "machine": platform.processor() or platform.machine(),
    }


def peak_megabytes() -> dict[str, int]:
    """Peak memory so far, in MB: of the process, and of the GPU where there is one."""
    peak = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    if torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated() // 2**20
    return peak


def matrix_rate(dtype: torch.dtype) -> int:
    """GFLOP/s of a 1024 x 576 x 1536 product, the shape of a small model's layers; the best of several."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = torch.randn(1024, 576, dtype=dtype, device=device), torch.randn(1536, 576, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.nn.functional.linear(a, b)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return round(2 * 1024 * 576 * 1536 / best / 1e9)


def report(result: dict[str, Any], path: str | None) -> None:
    """Print the table of :func:`bench`; write it to a JSON file too where one is named."""
    seconds = dict(result["seconds"])
    whole = seconds.pop("rollout")
    seconds["rest"] = whole - sum(seconds.values())
    table = Table(title=f"{result['agents']} agents, median of {result['rollouts']} rollouts", min_width=48)
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for name, value in [*seconds.items(), ("rollout", whole)]:
        table.add_row(name, f"{value:.2f}", f"{value / whole:.0%}", end_section=name == "rest")
    rates = ", ".join(f"{name} {rate}" for name, rate in result["gflops"].items())
    peak = ", ".join(f"{name} {size} MB" for name, size in result["peak_mb"].items())
    console = Console()
    console.print(table)
    console.print(f"Peak memory: {peak}\nBase in {result['dtype']}, {result['threads']} threads; GFLOP/s: {rates}")
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=1) + "\n")
        console.print(f"Written to {path}")
