"""Sizes that are promised: of checkpoints, and of what a rollout adds to the event file; in short, and memory too."""

from pathlib import Path

import torch

from lit_cory.__main__ import main
from tests.endurance import endure, growth
from tests.test_cli import place, tiny

__all__ = ["place"]


def trained(path: Path) -> list[int]:
    """How many numbers each agent trains."""
    weights = torch.load(path, weights_only=True)["state_dict"]
    agents = sorted({name.split(".")[0] for name in weights})
    return [sum(tensor.numel() for name, tensor in weights.items() if name.startswith(agent)) for agent in agents]


def test_a_checkpoint_is_hardly_more_than_weights_and_moments(place: Path, gpt2_base: Path) -> None:
    # A rank at which adapters outweigh what is constant, random states say.
    assert main(["fit", *tiny(gpt2_base, run_folder="run", model__rollouts=1, model__lora__r=512)]) == 0
    path = place / "run" / "checkpoints" / "last.ckpt"
    assert len(trained(path)) == 2
    assert path.stat().st_size < 1.1 * 3 * 4 * sum(trained(path))


def test_a_rollout_adds_little_to_the_event_file_and_nothing_to_memory(place: Path, gpt2_base: Path) -> None:
    samples, event_bytes = endure(gpt2_base, place / "run", 40)
    early, late = growth(samples)
    assert late < early + 60
    assert event_bytes / 40 < 10_000
