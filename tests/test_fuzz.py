"""Files from strangers: one line or a run, nothing outside the run folder, and no code of theirs."""

import copy
import functools
import operator
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lit_cory.__main__ import main
from lit_cory.checkpoint_file import read_checkpoint
from lit_cory.commands.load import load_agents
from lit_cory.data import Gsm8kDataModule, ImdbDataModule, QueryDataModule
from lit_cory.errors import UserError
from lit_cory.policies.loading import load_tokenizer
from tests import fuzzing
from tests.test_cli import place
from tests.test_resume import options

__all__ = ["place"]

# `make torture` raises this; examples are then as many times as many.
TIMES = int(os.environ.get("LIT_CORY_FUZZ", "1"))

few: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "derandomize": TIMES == 1,
    "phases": [Phase.explicit, Phase.generate],  # what fails in seconds needs no smaller example
}


@pytest.fixture(scope="module")
def run(gpt2_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one real run of a rollout."""
    folder = tmp_path_factory.mktemp("fuzzed") / "run"
    given = options(gpt2_base, model__rollouts=1, run_folder=folder, trainer__num_sanity_val_steps=0)
    assert main(["fit", *given, "--data.val_size=2"]) == 0
    return folder


@pytest.fixture(scope="module")
def module(run: Path) -> Any:
    """Its module, without agents, as the command line makes it."""
    from lit_cory.module import CoryLightningModule
    from lit_cory.policies import LoraSettings

    base = yaml.safe_load((run / "config.yaml").read_text())["model"]["base"]
    return lambda: CoryLightningModule(base=base, rollouts=2, lora=LoraSettings(r=2), response_tokens=(3, 5))


def used(path: Path, module: Any, optimizers: bool) -> None:
    """Read a checkpoint as ``generate`` does, and its optimizers as ``fit`` does."""
    agents = module()
    load_agents(agents, path, torch.device("cpu"))
    if optimizers:
        saved = read_checkpoint(path)
        for optimizer, state in zip(agents.configure_optimizers()[0], saved["optimizer_states"], strict=True):
            optimizer.load_state_dict(state)


@settings(max_examples=80 * TIMES, **few)
@given(data=st.data())
def test_damaged_checkpoints(data: st.DataObject, run: Path, module: Any, tmp_path: Path) -> None:
    original = (run / "checkpoints" / "last.ckpt").read_bytes()
    path = tmp_path / "odd.ckpt"
    path.write_bytes(data.draw(st.one_of(fuzzing.changed_bytes([original]), fuzzing.changed_zip(original))))
    fuzzing.refused_or_used(lambda: read_checkpoint(path))
    assert fuzzing.files_below(tmp_path) == {"odd.ckpt"}


@settings(max_examples=60 * TIMES, **few)
@given(data=st.data())
def test_checkpoints_of_other_shapes_and_types(data: st.DataObject, run: Path, module: Any, tmp_path: Path) -> None:
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    odd = [*fuzzing.ODD, torch.zeros(3), torch.zeros(1).expand(2**40), torch.zeros(2, 2, dtype=torch.int64)]
    tree = data.draw(fuzzing.changed_tree(saved, odd, balanced(saved)))
    path = tmp_path / "odd.ckpt"
    path.write_bytes(fuzzing.saved_bytes(tree))
    fuzzing.refused_or_used(lambda: used(path, module, optimizers=True))


def test_each_part_of_a_checkpoint_gone_or_odd(run: Path, module: Any, tmp_path: Path) -> None:
    """One at a time, of the first agent, the first weight and the training loop where there are several alike."""
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    gone = object()
    saved["loops"] = {"fit_loop": saved["loops"]["fit_loop"]}
    for optimizer in saved["optimizer_states"]:
        optimizer["state"] = {0: optimizer["state"][0]}
    torch.save(saved, tmp_path / "odd.ckpt")
    used(tmp_path / "odd.ckpt", module, optimizers=True)
    for at in fuzzing.paths(saved):
        if at[0] == "state_dict" or at[1:2] == (1,):
            continue
        for value in (gone, None, {}) if TIMES > 1 else (gone,):
            tree = copy.deepcopy(saved)
            parent = functools.reduce(operator.getitem, at[:-1], tree)
            if isinstance(parent, tuple):
                continue
            if value is gone:
                del parent[at[-1]]
            else:
                parent[at[-1]] = value
            (tmp_path / "odd.ckpt").write_bytes(fuzzing.saved_bytes(tree))
            fuzzing.refused_or_used(lambda: used(tmp_path / "odd.ckpt", module, optimizers=True))


@pytest.mark.parametrize("key", ["format", "bases", "policies", "rollouts_done", "order", "updates", "before"])
def test_a_checkpoint_that_lacks_a_part_is_refused(key: str, run: Path, module: Any, tmp_path: Path) -> None:
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    del saved["cory"][key]
    torch.save(saved, tmp_path / "odd.ckpt")
    with pytest.raises(UserError, match="another version" if key == "format" else "team can't be used"):
        used(tmp_path / "odd.ckpt", module, optimizers=False)


def balanced(saved: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Places in a checkpoint, as many of the few in its small parts as of the many in its optimizers."""
    found = fuzzing.paths(saved)
    parts = {name: [path for path in found if path[0] == name] for name in saved}
    return [path for part in parts.values() for path in (part * 20)[:40]]


@settings(max_examples=3 * TIMES, **few)
@given(data=st.data())
def test_runs_resumed_from_odd_checkpoints(data: st.DataObject, run: Path, place: Path) -> None:
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    loops = [path for path in fuzzing.paths(saved) if path[0] in ("loops", "callbacks", "epoch", "global_step")]
    tree = data.draw(fuzzing.changed_tree(saved, fuzzing.ODD, loops))
    (place / "odd.ckpt").write_bytes(fuzzing.saved_bytes(tree))
    folder = place / f"run{len(list(place.iterdir()))}"
    config = ["--config", str(run / "config.yaml"), "--model.rollouts=2", f"--run_folder={folder}"]
    fuzzing.run_main(["fit", *config, "--ckpt_path=odd.ckpt"])


@settings(max_examples=60 * TIMES, **few)
@given(data=st.data())
def test_odd_data(data: st.DataObject, gpt2_base: Path, tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"text": ["A fine film.", "Dull.", None, "\x1b[31mred"] * 3, "label": range(12)})
    problems = pd.DataFrame({"question": ["How many? 1 + 1"] * 9, "answer": ["1 + 1 = 2\n#### 2"] * 9})
    frame.to_parquet(tmp_path / "a.parquet")
    parquet = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").unlink()
    originals = {
        ".csv": [frame.to_csv(index=False).encode(), problems.to_csv(index=False).encode()],
        ".jsonl": [rows.to_json(orient="records", lines=True).encode() for rows in (frame, problems)],
        ".parquet": [parquet],
        ".txt": [b"A film.\nA dull one.\r\n\x00\n"],
    }
    suffix = data.draw(st.sampled_from(sorted(originals)))
    path = tmp_path / f"data{suffix}"
    path.write_bytes(data.draw(fuzzing.changed_bytes(originals[suffix])))
    tokenizer = load_tokenizer(str(gpt2_base))
    kinds: list[QueryDataModule] = [ImdbDataModule(str(path), batch_size=2, tokenizer=tokenizer)]
    kinds += [Gsm8kDataModule(str(path), batch_size=2, tokenizer=tokenizer)]
    for source in kinds:
        fuzzing.refused_or_used(lambda source=source: source.setup("fit"))  # type: ignore[misc]
    assert fuzzing.files_below(tmp_path) == {path.name}
    path.unlink()


# Keys whose honest values may be as large as one is willing to wait, or that name folders to write to.
LEFT_ALONE = {
    *("run_folder", "rollouts", "samples", "epochs", "val_size", "rows", "config", "logger", "callbacks", "profiler"),
    *("plugins", "strategy"),
}


@settings(max_examples=8 * TIMES, **few)
@given(data=st.data())
def test_odd_configurations(data: st.DataObject, run: Path, place: Path) -> None:
    tree = yaml.safe_load((run / "config.yaml").read_text())
    tree |= {"run_folder": None, "ckpt_path": None}
    places = [path for path in fuzzing.paths(tree) if path[-1] not in LEFT_ALONE and path != ("model",)]
    changed = data.draw(fuzzing.changed_tree(tree, [x for x in fuzzing.ODD if x != 2**70], places))
    text = fuzzing.as_yaml(changed).encode()
    if data.draw(st.integers(0, 2)) == 0:
        text = data.draw(fuzzing.changed_bytes([text]))
    (place / "odd.yaml").write_bytes(text)
    short = ["--model.rollouts=1", "--model.evaluation.samples=1", "--data.val_size=2", "--samples.every_n_rollouts=0"]
    if b"base:" not in text:
        short.append(f"--model.base={tree['model']['base']}")  # the default is a model of some size
    fuzzing.run_main(["fit", "--config=odd.yaml", *short])
    outside = {name for name in fuzzing.files_below(place) if not name.startswith("runs/odd/")}
    assert outside == {"odd.yaml"}


BOMBS = {
    "growing": "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b]\nmodel: *c\n",
    "code": "model: !!python/object/apply:os.system ['touch executed']\n",
    "deep": "model: " + "[" * 5000 + "]" * 5000,
    "large": "model: " + "x" * 2**21,
    "class": "model:\n  task:\n    class_path: os.system\n    init_args: {command: touch executed}\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_configuration_runs_no_code_and_does_not_grow(name: str, place: Path) -> None:
    (place / "odd.yaml").write_text(BOMBS[name])
    assert fuzzing.run_main(["fit", "--config=odd.yaml"]) == 2
    assert fuzzing.files_below(place) == {"odd.yaml"}


@pytest.mark.parametrize("inside", ["cory", "state_dict", "whole file"])
def test_a_pickle_bomb_is_refused_and_runs_nothing(inside: str, run: Path, place: Path) -> None:
    import pickle

    if inside == "whole file":
        (place / "odd.ckpt").write_bytes(pickle.dumps(fuzzing.Bomb()))
    else:
        saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        saved[inside]["bomb"] = fuzzing.Bomb()
        torch.save(saved, place / "odd.ckpt")
    config = ["--config", str(run / "config.yaml"), "--run_folder=null"]
    for command in ("fit", "validate", "generate"):
        assert fuzzing.run_main([command, *config, "--ckpt_path=odd.ckpt"]) == 2
    assert fuzzing.files_below(place) == {"odd.ckpt"}


def test_a_compressed_checkpoint_does_not_grow(tmp_path: Path) -> None:
    import zipfile

    torch.save({"zeros": torch.zeros(10**6)}, tmp_path / "plain.ckpt")
    source = zipfile.ZipFile(tmp_path / "plain.ckpt")
    with zipfile.ZipFile(tmp_path / "small.ckpt", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert (tmp_path / "small.ckpt").stat().st_size < 10**5
    assert read_checkpoint(tmp_path / "plain.ckpt")["zeros"].shape == (10**6,)
    with pytest.raises(UserError, match="compressed"):
        read_checkpoint(tmp_path / "small.ckpt")


def test_an_unchanged_checkpoint_is_used(run: Path, module: Any) -> None:
    """The fuzzers' checkpoint is a good one before it is changed."""
    used(run / "checkpoints" / "last.ckpt", module, optimizers=True)
