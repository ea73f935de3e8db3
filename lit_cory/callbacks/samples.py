"""Tables of what the agents write, beside the curves."""

from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger

from lit_cory.evaluation import sampling_stream
from lit_cory.module import CoryLightningModule
from lit_cory.team import role_name
from lit_cory.types import Query, one_line


class SampleTable(L.Callback):
    """Write a table of samples to TensorBoard: query, each role's answer, the reference's, and their scores.

    The queries are held out, the same in every table, and answered from a random stream of the table's own.

    Args:
        every_n_rollouts: the period; 0 writes none.
        rows: queries a table.
    """

    def __init__(self, every_n_rollouts: int = 10, rows: int = 4) -> None:
        self.every_n_rollouts = every_n_rollouts
        self.rows = rows

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any, **kwargs: Any) -> None:
        """Write a table after each N-th rollout."""
        del args, kwargs
        assert isinstance(pl_module, CoryLightningModule)
        if self.every_n_rollouts == 0 or pl_module.rollouts_done % self.every_n_rollouts:
            return
        queries = getattr(trainer.datamodule, "val_queries", [])[: self.rows]  # type: ignore[attr-defined]
        if queries and isinstance(pl_module.logger, TensorBoardLogger):
            table = markdown_table(sample_rows(pl_module, queries))
            pl_module.logger.experiment.add_text("samples", table, pl_module.rollouts_done)


@torch.no_grad()
def sample_rows(module: CoryLightningModule, queries: list[Query]) -> list[dict[str, str]]:
    """One row a query: its text, then text and score by role and for the reference."""
    team = module.team
    with sampling_stream(module.evaluation.seed, module.device):
        rollouts = team.rollout(queries)
        reference = team.alone(team.order[0], queries, team.response_tokens[1], reference=True)
    answers = {
        f"{role_name(r.role)} ({module.agent_names[r.agent]})": (r.response.texts, r.score) for r in rollouts
    } | {"reference": (reference.texts, team.score(queries, reference))}
    return [
        {"query": query.text} | {column: f"{texts[i]} [{scores[i]:.2f}]" for column, (texts, scores) in answers.items()}
        for i, query in enumerate(queries)
    ]


def markdown_table(rows: list[dict[str, str]]) -> str:
    """A Markdown table; what models wrote can't break its cells."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines)


def escape(text: str) -> str:
    """One line without characters that Markdown or a terminal would take for its own."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
