"""``python -m lit_cory bench``: where a rollout's seconds go, its peak memory, and how far it is from the floor."""

import json
import platform
import resource
import statistics
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers.logger import Logger
from rich.console import Console
from rich.table import Table

from lit_cory.commands.floor import Work, bandwidth, bytes_read, matrix_rate, operations, size_of
from lit_cory.data import QueryDataModule
from lit_cory.module import CoryLightningModule
from lit_cory.team import role_name


class Kept(Logger):
    """Keeps what is logged, an entry a rollout."""

    name = "bench"
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:  # type: ignore[override]
        """Keep the rollout's scalars."""
        self.rollouts.append(metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """There are none to keep."""


def bench(module: CoryLightningModule, datamodule: QueryDataModule, repeat: int) -> dict[str, Any]:
    """Run one rollout to warm up and ``repeat`` counted ones, with neither validation nor files.

    Returns:
        ``seconds``: median per rollout by phase, ``rollout`` the whole. ``roles``: by role, means of prompt and
        response tokens a row, and tokens sampled a second. ``floor``: seconds that operations and reads need at this
        machine's rates, and how many times that the rollout takes. ``peak_mb`` of the process, and of the GPU if there
        is one. And what was run on what.
    """
    kept = Kept()
    trainer = L.Trainer(
        max_epochs=1,
        devices=1,
        limit_train_batches=repeat + 1,
        limit_val_batches=0,
        logger=kept,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, datamodule=datamodule)
    counted = kept.rollouts[1:]
    rows = datamodule.batch_size * module.algorithm.group_size
    by_role = {
        role: [role_scalars(module, scalars, role) for scalars in counted] for role in range(len(module.team.order))
    }
    seconds = {
        name.removeprefix("time/"): statistics.median(scalars.get(name, 0.0) for scalars in counted)
        for name in counted[0]
        if name.startswith("time/")
    }
    base = next(module.agents()[0].lm.parameters())
    peak = peak_megabytes()  # before the floor's own tensors
    return {
        "seconds": seconds,
        "rollouts": repeat,
        "roles": {role_name(role): role_figures(role, own, seconds, rows) for role, own in by_role.items()},
        "floor": floor(module, by_role, rows, seconds["rollout"]),
        "peak_mb": peak,
        "agents": len(module.agent_names),
        "dtype": str(base.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "machine": platform.processor() or platform.machine(),
    }


def role_scalars(module: CoryLightningModule, scalars: dict[str, float], role: int) -> dict[str, float]:
    """What a rollout logged of the agent that had ``role`` in it."""
    agent = next(name for name in module.agent_names if scalars[f"train/{name}/role"] == role)
    prefix = f"train/{agent}/"
    return {tag.removeprefix(prefix): value for tag, value in scalars.items() if tag.startswith(prefix)}


def role_figures(role: int, rollouts: list[dict[str, float]], seconds: dict[str, float], rows: int) -> dict[str, float]:
    """Lengths and speed of one role."""
    prompt, response = (statistics.fmean(r[f"{part}_length"] for r in rollouts) for part in ("prompt", "response"))
    return {
        "prompt_tokens": prompt,
        "response_tokens": response,
        "tokens_per_second": rows * response / seconds[f"generation/{role_name(role)}"],
    }


def floor(
    module: CoryLightningModule, by_role: dict[int, list[dict[str, float]]], rows: int, seconds: float
) -> dict[str, float]:
    """The floor of the rollouts measured, by this machine's rates, and how many times it ``seconds`` is."""
    policy = module.agents()[0]
    size, device = size_of(policy), policy.device
    dtype = policy.lm.dtype if policy.lm.dtype.is_floating_point else torch.float32
    work = [
        Work(r["prompt_length"] * rows, r["response_length"] * rows, r["longest"], module.update_settings.epochs)
        for own in by_role.values()
        for r in own
    ]
    count = len(by_role[0])
    rate, speed = matrix_rate(dtype, device), bandwidth(device)
    computing = sum(operations(size, w) for w in work) / count / rate
    reading = sum(bytes_read(size, w) for w in work) / count / speed
    return {
        "gflops": rate / 1e9,
        "gbytes": speed / 1e9,
        "computing": computing,
        "reading": reading,
        "times": seconds / (computing + reading),
    }


def peak_megabytes() -> dict[str, int]:
    """Peak memory so far, in MB: of the process, and of the GPU where there is one."""
    peak = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    if torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated() // 2**20
    return peak


def report(result: dict[str, Any], path: str | None) -> None:
    """Print the tables of :func:`bench`; write it to a JSON file too where one is named."""
    console = Console()
    console.print(phase_table(result))
    roles = Table(min_width=48)
    for column in ("role", "prompt tokens", "response tokens", "tokens/s"):
        roles.add_column(column, justify="left" if column == "role" else "right")
    for name, role in result["roles"].items():
        roles.add_row(name, *(f"{value:.1f}" for value in role.values()))
    console.print(roles)
    console.print(floor_line(result["floor"]))
    peak = ", ".join(f"{name} {size} MB" for name, size in result["peak_mb"].items())
    console.print(f"Peak memory: {peak}. Base in {result['dtype']}, {result['threads']} threads")
    if path is not None:
        Path(path).write_text(json.dumps(result, indent=1) + "\n")
        console.print(f"Written to {path}")


def floor_line(floor: dict[str, float]) -> str:
    """The floor in words."""
    return (
        f"Floor: {floor['computing'] + floor['reading']:.2f} s, of which {floor['computing']:.2f} for operations at "
        f"{floor['gflops']:.0f} GFLOP/s and {floor['reading']:.2f} for reading weights at {floor['gbytes']:.1f} GB/s; "
        f"a rollout takes {floor['times']:.1f} times that"
    )


def phase_table(result: dict[str, Any]) -> Table:
    """Seconds and shares by phase."""
    seconds = dict(result["seconds"])
    whole = seconds.pop("rollout")
    seconds["rest"] = whole - sum(seconds.values())
    table = Table(title=f"{result['agents']} agents, median of {result['rollouts']} rollouts", min_width=48)
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for name, value in [*seconds.items(), ("rollout", whole)]:
        table.add_row(name, f"{value:.2f}", f"{value / whole:.0%}", end_section=name == "rest")
    return table
