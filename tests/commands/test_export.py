"""What is exported, loaded in a fresh process by plain transformers and peft, against deltas added by hand."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

from lit_cory.__main__ import main
from lit_cory.commands.load import load_agents
from lit_cory.module import CoryLightningModule
from lit_cory.policies import LoraSettings, bundled
from lit_cory.policies.loading import load_model
from tests.agents import LetterTask
from tests.commands.conftest import TrainedRun
from tests.tiny import make_base

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


def export(checkpoint: Path, to: Path, *options: str) -> Path:
    """Export through the command line, by the run's own configuration."""
    assert main(["export", f"--ckpt_path={checkpoint}", f"--to={to}", *options]) == 0
    return to


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
    quantization: Literal["nf4", "int8"], trained: TrainedRun, tiny_base: Callable[[str], Path], tmp_path: Path
) -> None:
    checkpoint, base = trained("llama", f"--model.quantization={quantization}"), tiny_base("llama")
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


REFUSALS: dict[str, tuple[list[str], str]] = {
    "unknown agent": (["--agent=agent_7"], r"agent=agent_7: .* agent_0, agent_1, and merged"),
    "folder in use": (["--to=used"], r"to=.*used: is there already"),
    "a file in its place": (["--to=file"], r"to=.*file: is there already"),
    "below a file": (["--to=file/out"], r"to=.*out: can't be written"),
    "negative scale": (["--scale=-1"], r"scale=-1\.0: .*0 or above"),
    "no number": (["--scale=nan"], r"scale.*nan"),
    "a word for a scale": (["--scale=much"], r"scale"),
    "unknown dtype": (["--merge", "--dtype=int8"], r"dtype"),
    "dtype of an adapter": (["--dtype=bfloat16"], r"dtype=bfloat16: .*--merge"),
    "no such checkpoint": (["--ckpt_path=nowhere.ckpt"], r"nowhere\.ckpt: no such file"),
    "no configuration beside it": (["--ckpt_path=alone/checkpoints/last.ckpt"], r"alone/config\.yaml.*--config"),
    "other agents": (["--model.agents=3"], r"the checkpoint does not fit this model"),
    "other base": (["--model.base=other"], r"the checkpoint's agents start from model\.base"),
    "other rank": (["--model.lora.r=3"], r"the checkpoint does not fit this model"),
    "no checkpoint at all": (["--ckpt_path=garbage"], r"ckpt_path=garbage: can't be read as a checkpoint"),
    "a checkpoint of something else": (["--ckpt_path=foreign"], r"not written by lit_cory"),
    "two bases": (["--agent=merged", "--model.base=[BASE,other]"], r"agent=merged: .*different bases"),
}

AFTER_LOADING = {"other agents", "other base", "other rank", "a checkpoint of something else"}


@pytest.mark.parametrize("name", REFUSALS)
def test_export_refuses_in_one_line_and_leaves_nothing(
    name: str,
    trained: TrainedRun,
    tiny_base: Callable[[str], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = trained("llama")
    Path("used").mkdir()
    Path("used/mine").write_text("someone's")
    Path("file").write_text("")
    Path("garbage").write_bytes(b"PK\x03\x04 nothing")
    torch.save({"state_dict": {}}, "foreign")
    Path("alone/checkpoints").mkdir(parents=True)
    Path("alone/checkpoints/last.ckpt").write_bytes(checkpoint.read_bytes())
    Path("other").symlink_to(tiny_base("llama"))
    if name not in AFTER_LOADING:
        monkeypatch.setattr("lit_cory.module.build_policies", lambda *_: pytest.fail("the base was loaded"))
    options, expected = REFUSALS[name]
    given = [f"--ckpt_path={checkpoint}", "--to=out", *(o.replace("BASE", str(tiny_base("llama"))) for o in options)]
    if "alone" not in options[0]:
        given.append(f"--config={checkpoint.parents[1] / 'config.yaml'}")
    capfd.readouterr()
    there = sorted(tmp_path.rglob("*"))
    assert main(["export", *given]) == 2
    printed = capfd.readouterr().err
    errors = [line for line in printed.splitlines() if "error" in line.lower()]
    assert len(errors) == 1, printed
    assert re.search(expected, errors[0]), errors[0]
    assert "Traceback" not in printed
    assert sorted(tmp_path.rglob("*")) == there


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


def test_an_export_that_is_killed_leaves_no_folder_of_that_name(trained: TrainedRun, tmp_path: Path) -> None:
    script = (
        "import os, sys; from lit_cory.commands import export; from lit_cory.__main__ import main\n"
        "export.model_card = lambda *_: os._exit(9)\n"  # all but the card is written by then
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "export", f"--ckpt_path={trained('llama')}", f"--to={tmp_path / 'out'}"]
    command.append("--merge")
    env = os.environ | {"PYTHONPATH": str(ROOT)}  # for the task of these tests
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 9, done.stderr
    assert not (tmp_path / "out").exists()
    assert export(trained("llama"), tmp_path / "out").is_dir(), "and it can be tried again"


def test_an_empty_folder_is_taken(trained: TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert (export(trained("llama"), tmp_path / "out") / "adapter_config.json").is_file()


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
