"""What export refuses, and that it leaves nothing half done."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lit_cory.__main__ import main
from tests.commands.conftest import TrainedRun, export

ROOT = Path(__file__).resolve().parents[2]

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
    "other agents": (["--model.agents=3"], r"the checkpoint is of 2 agents"),
    "other base": (["--model.base=other"], r"the checkpoint's agents start from .*, not from model\.base=other"),
    "other rank": (["--model.lora.r=3"], r"trained with model\.lora="),
    "no checkpoint at all": (["--ckpt_path=garbage"], r"ckpt_path=garbage: can't be read as a checkpoint"),
    "a checkpoint of something else": (["--ckpt_path=foreign"], r"not written by lit_cory"),
    "two bases": (["--agent=merged", "--model.base=[BASE,other]"], r"the checkpoint's agents start from "),
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
