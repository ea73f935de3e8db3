"""What is exported, loaded in a fresh process by plain transformers and peft, against deltas added by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from lit_cory.commands.load import load_agents
from lit_cory.module import CoryLightningModule
from lit_cory.policies import LoraSettings, bundled
from lit_cory.policies.loading import load_model
from tests.agents import LetterTask
from tests.commands.conftest import TrainedRun, export

ROOT = Path(__file__).resolve().parents[2]

IDS = torch.tensor([[5, 60, 7, 300, 42], [9, 8, 250, 6, 1]])

# One process loads every folder: each is an adapter and its base, or a whole model.
PLAIN = """
import json, sys, torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

job = json.load(open(sys.argv[1]))
ids, logits = torch.tensor(job["ids"]), {}
for name, (base, folder) in job["folders"].items():
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("Hello") and tokenizer.pad_token_id is not None and tokenizer.padding_side == "left"
    model, info = AutoModelForCausalLM.from_pretrained(base or folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    if base is not None:
        model = PeftModel.from_pretrained(model, folder)
    assert not getattr(model.config, "quantization_config", None)
    with torch.no_grad():
        logits[name] = model.eval()(ids).logits.contiguous()
assert "lit_cory" not in sys.modules
save_file(logits, sys.argv[2])
"""


def logits_elsewhere(folders: dict[str, tuple[Path | None, Path]], work: Path, ids: Tensor = IDS) -> dict[str, Tensor]:
    """Logits of each folder (base or None, exported folder) from a process that knows nothing of lit_cory."""
    job = {"ids": ids.tolist(), "folders": {name: [b and str(b), str(f)] for name, (b, f) in folders.items()}}
    (work / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", PLAIN, str(work / "job.json"), str(work / "logits")],
        cwd=work,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return load_file(work / "logits")


def plain_logits(model: Any, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.eval()(ids).logits
    return logits


def agent_logits(checkpoint: Path, base: Path | str, policy: Any) -> dict[str, Tensor]:
    """What lit_cory's own agents say."""
    module = CoryLightningModule(str(base), policy=policy, dtype="float32", lora=LoraSettings(r=2, alpha=6))
    load_agents(module, checkpoint, torch.device("cpu"))
    logits = {}
    for agent in module.agents():
        with agent.model() as lm:
            logits[agent.name] = plain_logits(lm)
    with module.agents()[0].model(reference=True) as lm:
        logits["base"] = plain_logits(lm)
    return logits


def with_deltas(model: Any, checkpoint: Path, weights: dict[str, float], transposed: bool) -> Any:
    """Add dense deltas, alpha / r = 3 times B A, weighted by agent, to a plain model's own weights."""
    saved = torch.load(checkpoint, weights_only=True)["state_dict"]
    parameters = dict(model.named_parameters())
    changed = set()
    with torch.no_grad():
        for name, b in saved.items():
            agent, _, rest = name.partition(".lm.")
            if rest.endswith(".lora_B.weight"):
                target = rest.replace(".lora_B.weight", ".weight")
                delta = 3.0 * (b @ saved[name.replace("lora_B", "lora_A")])
                parameters[target] += weights.get(agent, 0.0) * (delta.T if transposed else delta)
                changed.add(target)
    assert len(changed) >= 8, "the deltas have found their weights"
    return model


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


VARIANTS: dict[str, list[str]] = {
    "agent_0": [],
    "agent_1": ["--agent=agent_1"],
    "mean": ["--agent=merged"],
    "half": ["--scale=0.5"],
    "half mean": ["--agent=merged", "--scale=0.5"],
}

WEIGHTS = {
    "agent_0": {"agent_0": 1.0},
    "agent_1": {"agent_1": 1.0},
    "mean": {"agent_0": 0.5, "agent_1": 0.5},
    "half": {"agent_0": 0.5},
    "half mean": {"agent_0": 0.25, "agent_1": 0.25},
}


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_exported_adapters_say_what_the_agents_say_in_a_fresh_process(
    family: str,
    trained: TrainedRun,
    tiny_base: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint, base = trained(family), tiny_base(family)
    monkeypatch.setattr(LetterTask, "prepare", lambda *_: pytest.fail("no score is needed"))
    folders: dict[str, tuple[Path | None, Path]] = {}
    for name, options in VARIANTS.items():
        folders[name] = (base, export(checkpoint, tmp_path / name.replace(" ", "-"), *options))
        merged = export(checkpoint, tmp_path / f"{name.replace(' ', '-')}-merged", "--merge", *options)
        folders[f"{name} merged"] = (None, merged)
    found = logits_elsewhere(folders, tmp_path)

    own = agent_logits(checkpoint, base, "shared_lora")
    assert apart(own["agent_0"], own["base"]) > 1e-2
    assert apart(own["agent_0"], own["agent_1"]) > 1e-2
    for agent in ("agent_0", "agent_1"):
        assert apart(found[agent], own[agent]) < 1e-4
        assert apart(found[f"{agent} merged"], own[agent]) < 1e-4
    for name, weights in WEIGHTS.items():
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        expected = plain_logits(with_deltas(plain, checkpoint, weights, transposed=family == "gpt2"))
        assert apart(found[name], expected) < 1e-4, name
        assert apart(found[f"{name} merged"], expected) < 1e-4, name
    assert apart(found["mean"], found["agent_0"]) > 1e-3
    assert apart(found["half"], found["agent_0"]) > 1e-3


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_full_copies_are_exported_as_whole_models(
    family: str,
    trained: TrainedRun,
    tiny_base: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint, base = trained(family, "--model.policy=full", "--model.lr=0.01"), tiny_base(family)
    capsys.readouterr()
    folders: dict[str, tuple[Path | None, Path]] = {
        name: (None, export(checkpoint, tmp_path / name.replace(" ", "-"), *options))
        for name, options in VARIANTS.items()
    }
    assert "model.policy=full have no adapters: a whole model is written" in capsys.readouterr().out
    found = logits_elsewhere(folders, tmp_path)

    own = agent_logits(checkpoint, base, "full")
    assert apart(own["agent_0"], own["agent_1"]) > 1e-2
    assert apart(found["agent_0"], own["agent_0"]) < 1e-4
    assert apart(found["agent_1"], own["agent_1"]) < 1e-4
    saved = torch.load(checkpoint, weights_only=True)["state_dict"]
    for name, weights in WEIGHTS.items():
        plain: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        with torch.no_grad():
            for key, p in plain.named_parameters():
                start = p.clone()
                for agent, weight in weights.items():
                    p += weight * (saved[f"{agent}.lm.{key}"] - start)
        assert apart(found[name], plain_logits(plain)) < 1e-4, name
    assert apart(found["mean"], found["agent_0"]) > 1e-3


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_a_quantised_base_is_merged_as_the_weights_that_it_was_trained_beside(
    quantization: Literal["nf4", "int8"], trained: TrainedRun, wide_base: Callable[[str], Path], tmp_path: Path
) -> None:
    base = wide_base("llama")
    checkpoint = trained("llama", f"--model.base={base}", f"--model.quantization={quantization}")
    merged = export(checkpoint, tmp_path / "merged", "--merge")
    assert "quantization_config" not in json.loads((merged / "config.json").read_text())
    found = logits_elsewhere({"merged": (None, merged)}, tmp_path)["merged"]
    rounded: Any = load_model(str(base), "float32", "cpu", quantization)
    whole = rounded.dequantize(dtype=torch.float32)
    expected = plain_logits(with_deltas(whole, checkpoint, {"agent_0": 1.0}, transposed=False))
    assert apart(found, expected) < 1e-4
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    unrounded = plain_logits(with_deltas(plain, checkpoint, {"agent_0": 1.0}, transposed=False))
    assert apart(found, unrounded) > 1e-3, "the base's rounding is seen"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("policy", ["shared_lora", "full"])
def test_whole_models_come_in_the_dtype_asked_for(
    dtype: str, policy: str, trained: TrainedRun, tiny_base: Callable[[str], Path], tmp_path: Path
) -> None:
    options = () if policy == "shared_lora" else ("--model.policy=full", "--model.lr=0.01")
    folder = export(trained("llama", *options), tmp_path / "out", "--merge", f"--dtype={dtype}")
    tensors = load_file(folder / "model.safetensors")
    assert {str(t.dtype) for t in tensors.values()} == {f"torch.{dtype}"}
    found = plain_logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    own = agent_logits(trained("llama", *options), tiny_base("llama"), policy)
    assert apart(found, own["agent_0"]) < 0.5 * apart(own["base"], own["agent_0"])


def test_agents_of_a_bundled_base_are_exported(trained: TrainedRun, tmp_path: Path) -> None:
    name = "bundled:smollm2-135m"
    if not (bundled.cache_folder() / "smollm2-135m").is_dir():
        pytest.skip(f"{name} isn't in the cache")
    checkpoint = trained("llama", f"--model.base={name}", "--model.rollouts=1", "--trainer.num_sanity_val_steps=0")
    adapter = export(checkpoint, tmp_path / "adapter")
    whole = export(checkpoint, tmp_path / "whole", "--merge")
    base = Path(bundled.bundled_folder(name))
    found = logits_elsewhere({"adapter": (base, adapter), "whole": (None, whole)}, tmp_path)
    own = agent_logits(checkpoint, name, "shared_lora")
    assert apart(own["agent_0"], own["base"]) > 1e-2
    assert apart(found["adapter"], own["agent_0"]) < 1e-4 * float(own["agent_0"].abs().max())
    assert apart(found["whole"], own["agent_0"]) < 1e-4 * float(own["agent_0"].abs().max())
    assert "export with `--merge` for other machines" in (adapter / "README.md").read_text()
    assert yaml.safe_load((adapter / "README.md").read_text().split("---\n")[1])["base_model"] == name
