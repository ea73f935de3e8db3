"""The layout of the custom scalars, read back from the event file of a real fit."""

import re
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from torch.utils.data import DataLoader

from lit_cory.callbacks.layout import CurveLayout


class Module(L.LightningModule):
    """One weight, and the names of its agents."""

    def __init__(self, agent_names: list[str]) -> None:
        super().__init__()
        self.agent_names = agent_names
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return self.weight * batch.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder: Path, agent_names: list[str], logger: Logger | bool) -> None:
    trainer = L.Trainer(
        max_steps=1,
        accelerator="cpu",
        logger=logger,
        callbacks=[CurveLayout()],
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(agent_names), DataLoader(torch.zeros(2, 1)))  # type: ignore[arg-type]


def charts(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Category -> chart -> tags of the one layout in a folder's event file."""
    events = EventAccumulator(str(folder))
    events.Reload()
    (written,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(written.tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }


def test_charts_overlay_the_agents(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="", version="run")
    fit(tmp_path, ["agent_0", "agent_1"], logger)
    assert charts(tmp_path / "run") == {
        "held-out": {
            "score (held-out)": ["val/agent_0/score$", "val/agent_1/score$"],
            "KL to the reference (held-out)": ["val/agent_0/ref_kl$", "val/agent_1/ref_kl$"],
            "combined reward (held-out)": ["val/agent_0/combined$", "val/agent_1/combined$"],
        },
        "training": {
            "score (training)": ["train/agent_0/score$", "train/agent_1/score$"],
            "KL to the reference (training)": ["train/agent_0/ref_kl$", "train/agent_1/ref_kl$"],
            "combined reward (training)": ["train/agent_0/combined$", "train/agent_1/combined$"],
        },
    }


def test_a_chart_takes_its_own_tag_alone(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="", version="run")
    fit(tmp_path, ["agent_0"], logger)
    (pattern,) = charts(tmp_path / "run")["held-out"]["score (held-out)"]
    logged = ["val/agent_0/score", "val/agent_0/score_low", "val/agent_1/score", "train/agent_0/score"]
    # TensorBoard's server picks with re.match, which asks for no end
    assert [tag for tag in logged if re.match(pattern, tag)] == ["val/agent_0/score"]


def test_other_loggers_are_left_alone(tmp_path: Path) -> None:
    fit(tmp_path, ["agent_0"], CSVLogger(tmp_path))
    fit(tmp_path, ["agent_0"], False)
    assert not list(tmp_path.rglob("events.out.tfevents.*"))
