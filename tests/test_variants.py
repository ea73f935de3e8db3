"""Every baseline and ablation runs from its YAML, laid over the demo's, on tiny models."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.commands.arguments import flat
from tests.test_cli import CONFIGS, place

__all__ = ["place"]

OVERLAYS = sorted(path for folder in ("baselines", "ablations") for path in (CONFIGS / folder).glob("*.yaml"))
SIZE = {
    "model.rollouts": 2,
    "model.lora.r": 2,
    "model.lr": 0.01,
    "model.response_tokens": "[6, 8]",
    "model.task": "tests.agents.LetterTask",  # tiny models write no words that a sentiment could be read from
    "data.val_size": 4,
    "data.val_batch_size": 4,
    "trainer.accelerator": "cpu",
    "run_folder": "run",
}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_variant_trains_from_its_yaml(overlay: Path, place: Path, gpt2_base: Path, llama_base: Path) -> None:
    keys = flat(yaml.safe_load(overlay.read_text()))
    base = f"[{gpt2_base}, {llama_base}]" if isinstance(keys.get("model.base"), list) else str(gpt2_base)
    options = [f"--{key}={value}" for key, value in (SIZE | {"model.base": base}).items()]
    assert main(["fit", "--config", str(CONFIGS / "demo.yaml"), "--config", str(overlay), *options]) == 0
    used = flat(yaml.safe_load((place / "run" / "config.yaml").read_text()))
    assert {key: used[key] for key in keys if key != "model.base"} == {
        k: v for k, v in keys.items() if k != "model.base"
    }
    scalars = read_scalars(place / "run").set_index(["tag", "step"])["value"]
    for number in range(used["model.agents"]):
        assert scalars[f"train/agent_{number}/grad_norm", 2] > 0
        assert scalars[f"train/agent_{number}/skipped", 2] == 0
    summary = pd.read_csv(place / "run" / "summary.csv")
    assert ("best of all agents" in set(summary["agent"])) == (used["model.agents"] > 1)


def test_each_overlay_says_how_to_use_it() -> None:
    assert len(OVERLAYS) >= 16
    for path in OVERLAYS:
        place = path.relative_to(CONFIGS.parent)
        assert path.read_text().startswith(
            f"# To be added to another configuration: fit --config configs/demo.yaml --config {place}\n"
        )


def test_a_run_keeps_what_was_answered_before(place: Path, gpt2_base: Path) -> None:
    options = [f"--{key}={value}" for key, value in (SIZE | {"model.base": gpt2_base}).items()]
    assert main(["fit", "--config", str(CONFIGS / "demo.yaml"), *options]) == 0
    before, after = (pd.read_csv(place / "run" / f"{name}.csv") for name in ("answers_before", "answers"))
    assert before[["row", "agent", "query"]].equals(after[["row", "agent", "query"]])
    assert before["ref_kl"].abs().max() < 1e-5
    summary = pd.read_csv(place / "run" / "summary.csv").set_index(["agent", "metric"])["before"]
    for agent, frame in before.groupby("agent"):
        assert summary[agent, "score"] == pytest.approx(frame["score"].mean())
