"""Bad input on the command line: one clear line that names the key, before the base is loaded."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lit_cory.__main__ import main
from tests.test_cli import place, tiny

__all__ = ["place"]


REFUSALS: dict[str, tuple[str, str]] = {
    "unknown key": ("--model.learnig_rate=1", r"learnig_rate"),
    "no queries": ("--data.batch_size=0", r"error: data\.batch_size=0: must be at least 1"),
    "wrong type": ("--model.rollouts=many", r"model\.rollouts"),
    "dtype of full copies": ("--model.policy=full --model.dtype=bfloat16", r"model\.dtype=bfloat16: .*float32"),
    "no filter of tokens": ("--model.top_k=5", r"top_k"),
    "no floor of tokens": ("--model.min_new_tokens=8", r"min_new_tokens"),
    "no greedy rollouts": ("--model.temperature=0", r"model\.temperature=0.*above 0"),
    "bad number": ("--model.rollouts=0", r"model\.rollouts=0: must be at least 1"),
    "missing file": ("--data.source=./nowhere.csv", r"nowhere\.csv"),
    "missing column": ("--data.source=odd.csv", r"text_column=text: odd\.csv.*review"),
    "empty data": ("--data.source=empty.txt", r"empty\.txt"),
    "batch larger than the data": ("--data.source=few.txt", r"batch_size=4"),
    "missing base": ("--model.base=./no/such/base", r"no/such/base"),
    "unknown bundled base": ("--model.base=bundled:nothing", r"bundled:nothing.*bundled:smollm2-135m"),
    "hub out of reach": ("--model.base=somebody/some-model", r"somebody/some-model"),
    "wrong target": ("--model.lora.target_modules=[q_prj]", r"q_prj.*c_attn"),
    "too long for the last role": ("--model.response_tokens=[4,70]", r"last role.*128 positions"),
    "minibatch larger than the rollout": ("--model.update.minibatch_size=5", r"minibatch_size=5.*batch_size=4"),
    "run folder in use": ("--run_folder=old", r"run_folder=old: already holds a run"),
    "run folder below a file": ("--run_folder=file/run", r"run_folder=file/run"),
    "trainer's clipping": ("--trainer.gradient_clip_val=1", r"gradient_clip_val.*model\.update\.max_grad_norm"),
    "trainer's steps": ("--trainer.max_steps=10", r"max_steps.*model\.rollouts"),
    "trainer's batches": ("--trainer.limit_train_batches=3", r"trainer\.limit_train_batches.*model\.rollouts"),
    "missing checkpoint": ("--ckpt_path=nowhere.ckpt", r"nowhere\.ckpt"),
    "no checkpoint": ("--ckpt_path=text.ckpt", r"text\.ckpt: can't be read as a checkpoint"),
    "a checkpoint of something else": ("--ckpt_path=foreign.ckpt", r"was not written by lit_cory"),
    "a checkpoint of another version": ("--ckpt_path=older.ckpt", r"by another version of lit_cory"),
    "part of the held-out queries": ("--trainer.limit_val_batches=1", r"limit_val_batches.*data\.val_size"),
    "part of the start": ("--trainer.num_sanity_val_steps=1", r"num_sanity_val_steps=1: must be -1"),
    "a seed without end": (f"--model.evaluation.seed={10**17}", r"model\.evaluation\.seed=.*2\^32"),
    "no tokens in a pass": ("--model.update.pass_tokens=0", r"model\.update\.pass_tokens=0: must be at least 1"),
    "missing config": ("--config=nowhere.yaml", r"nowhere\.yaml"),
    "weights without weighted": ("--model.team.weights=[[1]]", r"model\.team\.weights"),
    "more draws than samples": (
        "--model.evaluation.pass_at=[2]",
        r"evaluation\.pass_at=\[2\]: must be from 1 to the 1",
    ),
    "no samples": ("--model.evaluation.samples=0", r"model\.evaluation\.samples=0: must be at least 1, or 0 with"),
    "a team of one": ("--model.agents=1 --model.evaluation.team=true", r"model\.evaluation\.team=True: must be false"),
    "rounded copies": ("--model.policy=full --model.quantization=nf4", r"model\.quantization=nf4: must be none"),
    "too many bases": ("--model.base=[a,b,c]", r"model\.base=.*one name, or one an agent \(2\)"),
    "missing reward": ("--model.task.reward=./no/classifier", r"no/classifier"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_gives_one_line_before_the_base_is_loaded(
    name: str, place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "few.txt").write_text("A film about a dog.\nA film about a cat.\n")
    (place / "empty.txt").write_text("\n \n")
    (place / "odd.csv").write_text("review,label\n" + "A fine film indeed,1\n" * 30)
    (place / "old").mkdir()
    (place / "old" / "events").write_text("someone's run")
    (place / "file").write_text("")
    (place / "text.ckpt").write_text("no checkpoint")
    torch.save({"state_dict": {}}, place / "foreign.ckpt")
    torch.save({"cory": {"format": 0}}, place / "older.ckpt")
    files = {path: path.read_bytes() if path.is_file() else b"" for path in place.rglob("*")}
    monkeypatch.setattr("lit_cory.module.build_policies", lambda *_: pytest.fail("the base was loaded"))
    option, expected = REFUSALS[name]
    assert main(["fit", *tiny(gpt2_base), *option.split()]) == 2
    printed = capfd.readouterr().err
    error = [line for line in printed.splitlines() if "error" in line.lower()]
    assert len(error) == 1, printed
    assert re.search(expected, error[0]), error[0]
    assert "Traceback" not in printed
    assert {path: path.read_bytes() if path.is_file() else b"" for path in place.rglob("*")} == files


def test_a_checkpoint_of_other_adapters_is_refused(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *tiny(gpt2_base, run_folder="run", model__rollouts=1)]) == 0
    checkpoint = place / "run" / "checkpoints" / "last.ckpt"
    capfd.readouterr()
    assert main(["validate", *tiny(gpt2_base, ckpt_path=checkpoint, model__lora__r=3)]) == 2
    assert "trained with model.lora={'r': 2" in capfd.readouterr().err
    assert not (place / "run" / "validate").exists(), "no empty folder is left"
    for option, expected in {
        "--model.agents=3": "the checkpoint is of 2 agents; set model.agents=2",
        "--model.quantization=nf4": "trained with model.quantization=none, not nf4; set it so",
        "--model.lora.alpha=7": "trained with model.lora=",
    }.items():
        assert main(["validate", *tiny(gpt2_base, ckpt_path=checkpoint), option]) == 2
        assert expected in capfd.readouterr().err
    saved = torch.load(checkpoint, weights_only=True)
    assert all("lora_" in name or "value_head" in name for name in saved["state_dict"]), "the frozen base is left out"


def test_the_module_runs_as_a_process_and_fails_with_status_2(place: Path) -> None:
    command = [sys.executable, "-m", "lit_cory", "fit", "--model.base=./no/such/base"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "no/such/base" in done.stderr
    assert "Traceback" not in done.stderr
