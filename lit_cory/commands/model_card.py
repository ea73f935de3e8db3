"""The README.md of an exported folder: what it is, where it comes from, what it can do, how to load it."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lit_cory.commands.load import run_folder_of
from lit_cory.module import CoryLightningModule
from lit_cory.types import Query


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Attributes:
        folder: its name.
        checkpoint: where the agents come from.
        agents: names of one agent, or of all that were averaged.
        base: what they start from, as the configuration names it.
        source: the same as transformers loads it, a hub id or folder.
        whole: a whole model rather than an adapter.
        scale: of what was learnt.
        dtype: of the weights.
    """

    folder: str
    checkpoint: str
    agents: list[str]
    base: str
    source: str
    whole: bool
    scale: float
    dtype: str

    def title(self) -> str:
        """What it is, in a few words."""
        kind = "Whole model" if self.whole else "LoRA adapter"
        who = self.agents[0] if len(self.agents) == 1 else f"the mean of {' and '.join(self.agents)}"
        strength = "" if self.scale == 1 else f", what was learnt times {self.scale:g}"
        return f"{kind} of {who}{strength}, {self.dtype}"


def model_card(exported: Exported, module: CoryLightningModule) -> str:
    """The text of the card; ``module`` holds the agents of the checkpoint."""
    header = {
        "base_model": exported.base,
        "library_name": "transformers" if exported.whole else "peft",
        "pipeline_tag": "text-generation",
    }
    policies, task = module.policy_settings, type(module.task)
    doc = (inspect.getdoc(task) or "").partition("\n")[0]
    rounded = "" if policies.quantization == "none" else f", in {policies.quantization} while training"
    lines = [
        f"# {exported.title()}",
        "",
        "Trained with `lit_cory`: reinforcement learning of cooperating agents.",
        "",
        f"- task: {task.__name__}. {doc}",
        f"- base: {exported.base}{rounded}",
        f"- agents of the team: {', '.join(module.agent_names)} ({policies.policy})",
        f"- rollouts done: {module.rollouts_done}",
        *held_out(exported, module),
        "",
        "## How to load it",
        "",
        *loading(exported, module),
    ]
    return f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n\n" + "\n".join(lines) + "\n"


def held_out(exported: Exported, module: CoryLightningModule) -> list[str]:
    """The line of the agent's own score and drift at the end of its run, where they are known."""
    table = run_folder_of(exported.checkpoint) / "summary.csv"
    ended = module.rollouts_done == module.rollouts
    if len(exported.agents) > 1 or exported.scale != 1 or not ended or not table.is_file():
        return []
    frame = pd.read_csv(table)
    rows: dict[str, Any] = {row["metric"]: row for _, row in frame[frame["agent"] == exported.agents[0]].iterrows()}
    if not {"score", "ref_kl"} <= rows.keys():
        return []
    score, drift = (interval(rows[metric]) for metric in ("score", "ref_kl"))
    asked = f"alone on {rows['score']['queries']} held-out queries, mean [95% interval]"
    return [f"- {asked}: score {score}, KL to the base {drift} nats"]


def interval(row: Any) -> str:
    """Mean and interval; the mean alone where one query says nothing of the spread."""
    mean, low, high = (row[f"after{end}"] for end in ("", "_low", "_high"))
    return f"{mean:.3f}" if low != low else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def loading(exported: Exported, module: CoryLightningModule) -> list[str]:
    """Lines of code, with the prompt and the settings that the agent was sampled with in training."""
    temperature, new_tokens = module.policy_settings.temperature, module.response_tokens[1]
    asked = module.task.prompt(Query("...", 0), [])
    prompt = f'prompt = tokenizer({asked!r}, return_tensors="pt")'
    if not isinstance(asked, str):
        options = 'add_generation_prompt=True, return_dict=True, return_tensors="pt"'
        prompt = f"prompt = tokenizer.apply_chat_template(\n    {asked!r},\n    {options},\n)"
    load = [
        f"tokenizer = AutoTokenizer.from_pretrained({exported.folder!r})",
        f'model = AutoModelForCausalLM.from_pretrained({exported.folder!r}, dtype="auto")',
    ]
    if not exported.whole:
        load[1] = f"base = AutoModelForCausalLM.from_pretrained({exported.source!r})"
        load.append(f"model = PeftModel.from_pretrained(base, {exported.folder!r})")
    lines = [
        "```python",
        *([] if exported.whole else ["from peft import PeftModel"]),
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        *load,
        "# As in training, with a query in place of the dots: nothing is filtered.",
        prompt,
        f"sampling = dict(do_sample=True, temperature={temperature}, top_k=0, top_p=1.0, max_new_tokens={new_tokens})",
        "print(tokenizer.decode(model.generate(**prompt, **sampling)[0], skip_special_tokens=True))",
        "```",
    ]
    if not exported.whole and Path(exported.source).is_dir():
        lines += ["", "The base is a folder of the machine that wrote this; export with `--merge` for other machines."]
    return lines
