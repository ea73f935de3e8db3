"""TensorBoard's custom scalars: the agents' curves in common charts."""

from collections.abc import Sequence
from typing import cast

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger

SPLITS = {"held-out": "val", "training": "train"}
METRICS = {"score": "score", "KL to the reference": "ref_kl", "combined reward": "combined"}

Layout = dict[str, dict[str, tuple[str, list[str]]]]


class CurveLayout(L.Callback):
    """Overlays the agents in TensorBoard's tab of custom scalars: score, KL and combined reward, held-out and training.

    Reads the module's public attribute ``agent_names`` (list of str); leaves loggers other than TensorBoard's alone.
    """

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the layout once, before the first scalar."""
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_custom_scalars(curve_layout(cast(list[str], pl_module.agent_names)))


def curve_layout(agents: Sequence[str]) -> Layout:
    """Category -> chart -> the agents' tags, in the form that ``SummaryWriter.add_custom_scalars`` takes.

    TensorBoard takes each tag as a regular expression for the start of a tag: without its end, ``score`` would draw
    ``score_std`` too.
    """
    return {
        category: {
            f"{title} ({category})": ("Multiline", [f"{split}/{agent}/{metric}$" for agent in agents])
            for title, metric in METRICS.items()
        }
        for category, split in SPLITS.items()
    }
