"""The files of an exported folder: adapter, generation config and card."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import GenerationConfig

from lit_cory.__main__ import main
from tests.commands.conftest import TrainedRun, export
from tests.tiny import make_base


def test_an_adapter_names_its_base_and_keeps_what_was_trained(
    trained: TrainedRun, tiny_base: Callable[[str], Path], tmp_path: Path
) -> None:
    checkpoint = trained("gpt2")
    folder = export(checkpoint, tmp_path / "new" / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_base("gpt2"))
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (2, 6, True)
    saved = torch.load(checkpoint, weights_only=True)["state_dict"]
    tensors = load_file(folder / "adapter_model.safetensors")
    trained_ones = {n.removeprefix("agent_0.lm."): t for n, t in saved.items() if n.startswith("agent_0.lm.")}
    assert {n.removeprefix("base_model.model.") for n in tensors} == set(trained_ones)
    assert all(torch.equal(t, trained_ones[n.removeprefix("base_model.model.")]) for n, t in tensors.items())
    mean = export(checkpoint, tmp_path / "mean", "--agent=merged")
    config = json.loads((mean / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 6)
    assert sorted(os.listdir(tmp_path)) == ["mean", "new"], "nothing is left beside"


def test_the_generation_config_keeps_the_end_tokens_and_nothing_else(trained: TrainedRun, tmp_path: Path) -> None:
    odd = {"repetition_penalty": 1.3, "do_sample": True}
    base = make_base(tmp_path / "base", "llama", second_eos=True, pad="own", generation=odd)
    checkpoint = trained("llama", f"--model.base={base}", "--model.rollouts=1")
    for policy, name in (("shared_lora", "a"), ("full", "b")):
        if policy == "full":
            checkpoint = trained("llama", f"--model.base={base}", "--model.rollouts=1", "--model.policy=full")
        config = GenerationConfig.from_pretrained(export(checkpoint, tmp_path / name, "--merge"))
        assert config.eos_token_id == [0, 1]
        assert config.pad_token_id == 2
        assert not config.do_sample
        assert config.repetition_penalty in (None, 1.0)
        assert config.top_k in (None, 50), "transformers' own default"


def test_the_card_says_what_it_is_and_how_to_load_it(trained: TrainedRun, tmp_path: Path) -> None:
    checkpoint = trained("gpt2")
    adapter = (export(checkpoint, tmp_path / "adapter", "--agent=agent_1") / "README.md").read_text()
    header = yaml.safe_load(adapter.split("---\n")[1])
    config = yaml.safe_load((checkpoint.parents[1] / "config.yaml").read_text())
    assert header == {
        "base_model": config["model"]["base"],
        "library_name": "peft",
        "pipeline_tag": "text-generation",
    }
    for expected in (
        "# LoRA adapter of agent_1, float32",
        "- task: LetterTask. Pays a point for every letter e of an answer",
        "- agents of the team: agent_0, agent_1 (shared_lora)",
        "- rollouts done: 2",
        "export with `--merge` for other machines",
    ):
        assert expected in adapter
    table = pd.read_csv(checkpoint.parents[1] / "summary.csv").set_index(["agent", "metric"])
    for metric in ("score", "ref_kl"):
        mean, low, high = table.loc[("agent_1", metric), ["after", "after_low", "after_high"]]
        assert f"{mean:.3f} [{low:.3f}, {high:.3f}]" in adapter
    assert "alone on 6 held-out queries" in adapter

    mean_card = (export(checkpoint, tmp_path / "mean", "--agent=merged", "--merge") / "README.md").read_text()
    assert yaml.safe_load(mean_card.split("---\n")[1])["library_name"] == "transformers"
    assert "# Whole model of the mean of agent_0 and agent_1, float32" in mean_card
    assert "held-out" not in mean_card, "the mean was never evaluated"
    half = (export(checkpoint, tmp_path / "half", "--scale=0.5") / "README.md").read_text()
    assert "times 0.5" in half
    assert "held-out" not in half


def test_the_code_of_the_card_runs(trained: TrainedRun, tmp_path: Path) -> None:
    for name, options in (("adapter", []), ("whole", ["--merge"])):
        card = (export(trained("llama"), tmp_path / name, *options) / "README.md").read_text()
        found = re.search(r"```python\n(.*?)```", card, re.DOTALL)
        assert found is not None
        command = [sys.executable, "-c", found[1]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_a_checkpoint_is_needed(tmp_path: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", f"--to={tmp_path / 'out'}", f"--model.base={gpt2_base}"]) == 2
    assert "--ckpt_path is missing" in capfd.readouterr().err
    assert main(["export", f"--ckpt_path={tmp_path / 'last.ckpt'}", f"--model.base={gpt2_base}"]) == 2
    assert re.search(r"error: .*required: export\.to", capfd.readouterr().err)


def test_agents_of_different_bases_name_their_own(
    trained: TrainedRun, tiny_base: Callable[[str], Path], tmp_path: Path
) -> None:
    bases = [tiny_base("gpt2"), tiny_base("llama")]
    checkpoint = trained("gpt2", f"--model.base=[{bases[0]},{bases[1]}]", "--model.rollouts=1")
    for agent, (base, target) in enumerate(zip(bases, ("c_attn", "q_proj"), strict=True)):
        folder = export(checkpoint, tmp_path / str(agent), f"--agent=agent_{agent}")
        config = json.loads((folder / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == str(base)
        assert any(name.endswith(target) for name in config["target_modules"])
        assert f"- base: {base}\n" in (folder / "README.md").read_text()
