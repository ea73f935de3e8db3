"""``python -m lit_cory front``: a whole front of score against KL from one run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from lit_cory.analysis import mean_interval
from lit_cory.analysis.front_plot import plot_front
from lit_cory.commands.export import MERGED
from lit_cory.commands.load import load_agents
from lit_cory.commands.weights import mean_policy
from lit_cory.data import QueryDataModule
from lit_cory.errors import UserError
from lit_cory.evaluation import Evaluator, HeldOut, joined
from lit_cory.module import CoryLightningModule
from lit_cory.policies import Policy
from lit_cory.results import figures
from lit_cory.team import Team


def front(
    module: CoryLightningModule,
    datamodule: QueryDataModule,
    checkpoint: str,
    device: torch.device,
    scales: Sequence[float],
    folder: Path,
) -> pd.DataFrame:
    """Evaluate each agent alone, and the mean of all, with what it has learnt multiplied by each scale.

    Scaling a delta interpolates towards the start, and averaging deltas merges agents, as in WARP (Rame et al. 2024,
    arXiv 2406.16768). All points answer the same held-out queries from the same random streams, those of ``validate``.

    Args:
        module: as configured, without agents yet.
        datamodule: set up; its ``val_queries`` are asked.
        checkpoint: of the run.
        device: where to compute.
        scales: finite numbers, 0 or above.
        folder: gets ``front.csv`` and ``front.png``.

    Returns:
        what ``front.csv`` holds, a row a point: ``agent``, ``scale``, ``queries``, ``distinct``, and ``score``,
        ``ref_kl`` and ``combined`` with ``_low`` and ``_high``, the ends of 95% intervals over queries.

    Raises:
        UserError: for scales that can't be used, before anything is loaded, and as ``load_agents`` does.
    """
    check(module, scales)
    load_agents(module, checkpoint, device)
    module.task.prepare(device)
    rows = []
    for name, agents in sources(module):
        for scale in scales:
            rows.append(point(module, datamodule, mean_policy(agents, f"front_of_{name}", scale), name, scale))
            print(f"{name} x {scale:g}: score {rows[-1]['score']:.3f}, KL {rows[-1]['ref_kl']:.2f}", flush=True)
            pd.DataFrame(rows).to_csv(folder / "front.csv", index=False)  # what is done is kept
    frame = pd.DataFrame(rows)
    picture = plot_front(frame, folder / "front.png")
    print(f"Front: {folder / 'front.csv'}, {picture}")
    return frame


def check(module: CoryLightningModule, scales: Sequence[float]) -> None:
    """Raise a UserError for scales, or an evaluation, that can't be used."""
    if not scales:
        raise UserError("scales=[]: name at least one")
    for scale in scales:
        if not (math.isfinite(scale) and scale >= 0):
            raise UserError(f"scales={scale}: must be finite numbers, 0 or above")
    if module.evaluation.samples < 1 or not module.evaluation.kl:
        raise UserError("model.evaluation: a front needs samples=1 or more and kl=true, as it shows score against KL")


def sources(module: CoryLightningModule) -> Iterator[tuple[str, list[Policy]]]:
    """Each agent, and where several start from one base, all of them."""
    agents = module.agents()
    yield from ((agent.name, [agent]) for agent in agents)
    if len(agents) > 1 and len(set(module.bases())) == 1:
        yield MERGED, agents


def point(
    module: CoryLightningModule, datamodule: QueryDataModule, policy: Policy, name: str, scale: float
) -> dict[str, float | str]:
    """The row of one policy."""
    team = Team([policy], module.task, module.team_settings, module.response_tokens)
    settings = replace(module.evaluation, team=False, greedy=False)
    evaluator = Evaluator(team, settings, module.combined_kl_coef)
    queries, size = datamodule.val_queries, datamodule.val_batch_size
    starts = range(0, len(queries), size)
    parts = [evaluator.run(queries[start : start + size], batch, [0]) for batch, start in enumerate(starts)]
    samples: list[HeldOut] = joined(parts)[policy.name]
    texts = [text for table in samples for text in table.texts]
    row: dict[str, float | str] = {"agent": name, "scale": scale, "queries": len(queries)}
    row["distinct"] = len(set(texts)) / len(texts)
    found = figures(samples, (), module.task.WAYS)
    for metric in ("score", "ref_kl", "combined"):
        interval = mean_interval(found[metric])
        row |= {metric: interval.mean, f"{metric}_low": interval.low, f"{metric}_high": interval.high}
    return row
