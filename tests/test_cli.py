"""The command line on tiny models: whole runs."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; runs go below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lit_cory"])
    # Lightning's log handler keeps the stream of the first test, which is closed by now.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    return tmp_path


def tiny(base: Path, **more: Any) -> list[str]:
    """Options of a run of seconds."""
    options = {
        "model.base": base,
        "model.rollouts": 4,
        "model.lora.r": 2,
        "model.lr": 0.01,
        "model.response_tokens": "[3, 5]",
        "data.batch_size": 4,
        "data.val_size": 6,
        "data.val_batch_size": 4,
        "trainer.val_check_interval": 2,
        "samples.every_n_rollouts": 2,
        "exchange.every_n_rollouts": 2,
    } | {key.replace("__", "."): value for key, value in more.items()}
    return [f"--{key}={value}" for key, value in options.items()]


def test_fit_leaves_a_whole_run_and_validate_repeats_its_numbers(
    place: Path, gpt2_base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *tiny(gpt2_base)]) == 0
    run = place / "runs" / "default" / "0"
    printed = capsys.readouterr().out
    assert {"config.yaml", "summary.csv", "curves.png", "checkpoints"} <= set(os.listdir(run))
    assert f"Curves: {Path('runs/default/0/curves.png')}" in printed
    assert "rollout 4/4: agent_0 score" in printed

    scalars = read_scalars(run)
    train = scalars[scalars["tag"] == "train/agent_0/score"]
    assert train["step"].tolist() == [1, 2, 3, 4], "the axis is rollouts, whatever the number of optimizer steps"
    assert scalars[scalars["tag"] == "val/agent_1/ref_kl"]["step"].tolist() == [0, 2, 4]
    roles = {name: scalars[scalars["tag"] == f"train/{name}/role"]["value"].tolist() for name in ("agent_0", "agent_1")}
    assert roles == {"agent_0": [0, 0, 1, 1], "agent_1": [1, 1, 0, 0]}
    for role, agents in (("pioneer", (0, 0, 1, 1)), ("observer", (1, 1, 0, 0))):
        by_role = scalars[scalars["tag"] == f"train/{role}/score"]["value"].tolist()
        by_agent = [
            scalars[scalars["tag"] == f"train/agent_{a}/score"]["value"].tolist()[i] for i, a in enumerate(agents)
        ]
        assert by_role == by_agent

    assert {"train/agent_0/lr", "train/pioneer/ref_kl"} <= set(scalars["tag"])
    assert "train/pioneer/lr" not in set(scalars["tag"]), "what a role does not bear on would fill the event file"

    at_step = scalars.set_index(["tag", "step"])["value"]
    for agent in ("agent_0", "agent_1"):
        combined = at_step[f"train/{agent}/score", 3] - 0.05 * at_step[f"train/{agent}/ref_kl", 3]
        assert at_step[f"train/{agent}/combined", 3] == pytest.approx(combined, abs=1e-5)
        assert at_step[f"val/{agent}/ref_kl", 0] == 0

    summary = pd.read_csv(run / "summary.csv")
    again = ["validate", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "last.ckpt")]
    assert main(again) == 0
    table = capsys.readouterr().out
    for value in summary["after"]:
        assert f"{value:.3f} [" in table
    assert not (place / "runs" / "default" / "1").exists(), "an evaluation's files lie beside its checkpoint"
    repeated = pd.read_csv(run / "validate" / "0" / "summary.csv")
    assert repeated["after"].tolist() == summary["after"].tolist()
    answers = [pd.read_csv(folder / "answers.csv") for folder in (run, run / "validate" / "0")]
    pd.testing.assert_frame_equal(answers[0], answers[1])
    assert len(answers[0]) == 2 * 6, "a row an agent and query"
    assert json.loads((run / "validate" / "0" / "summary.json").read_text())["rollouts"] == 4


def test_the_same_command_or_its_saved_config_gives_another_run_of_equal_numbers(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *tiny(gpt2_base)]) == 0
    assert main(["fit", *tiny(gpt2_base)]) == 0
    assert main(["fit", "--config", "runs/default/0/config.yaml"]) == 0
    columns = ["tag", "step", "value"]
    frames = [read_scalars(place / "runs" / "default" / n) for n in "012"]
    kept = [f[~f["tag"].str.startswith("time/")][columns].reset_index(drop=True) for f in frames]
    pd.testing.assert_frame_equal(kept[0], kept[1])
    pd.testing.assert_frame_equal(kept[0], kept[2])
    configs = [(place / "runs" / "default" / n / "config.yaml").read_text() for n in "012"]
    assert configs[0] == configs[1] == configs[2]


def test_validation_does_not_disturb_the_training_stream(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *tiny(gpt2_base, run_folder="with")]) == 0
    without = {"trainer.val_check_interval": 1000, "trainer.num_sanity_val_steps": 0, "samples.every_n_rollouts": 0}
    assert main(["fit", *tiny(gpt2_base, run_folder="without", **without)]) == 0
    frames = [read_scalars(place / name) for name in ("with", "without")]
    scores = [f[f["tag"] == "train/agent_0/team_score"].sort_values("step")["value"].tolist() for f in frames]
    assert scores[0] == scores[1]
    assert len(set(scores[0])) > 1


def test_ppo_runs_have_one_agent_and_no_roles(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *tiny(gpt2_base, model__agents=1, run_folder="ppo")]) == 0
    tags = set(read_scalars(place / "ppo")["tag"])
    assert {tag.split("/")[1] for tag in tags if not tag.startswith("time/")} == {"agent_0"}


def test_three_agents_rotate_through_the_roles(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *tiny(gpt2_base, model__agents=3, run_folder="three", exchange__every_n_rollouts=1)]) == 0
    scalars = read_scalars(place / "three")
    roles = [scalars[scalars["tag"] == f"train/agent_{k}/role"]["value"].tolist() for k in range(3)]
    assert roles == [[0, 2, 1, 0], [1, 0, 2, 1], [2, 1, 0, 2]]
    assert "train/observer_2/score" in set(scalars["tag"])


def test_learning_rates_follow_the_schedule_by_rollouts(place: Path, gpt2_base: Path) -> None:
    options = {"model.lr_schedule": "linear", "model.update.epochs": 2, "model.update.minibatch_size": 3}
    assert main(["fit", *tiny(gpt2_base, run_folder="run", **options)]) == 0
    scalars = read_scalars(place / "run")
    for agent in ("agent_0", "agent_1"):
        rates = scalars[scalars["tag"] == f"train/{agent}/lr"]["value"].tolist()
        assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025], rel=1e-6)
        assert scalars[scalars["tag"] == f"train/{agent}/steps"]["value"].tolist() == [4, 4, 4, 4]


def test_full_copies_train_from_the_command_line(place: Path, llama_base: Path) -> None:
    assert main(["fit", *tiny(llama_base, model__policy="full", model__lr=1e-3, run_folder="full")]) == 0
    assert (place / "full" / "checkpoints" / "last.ckpt").exists()


def test_a_classifier_folder_is_a_reward(place: Path, gpt2_base: Path) -> None:
    from tests.tasks.tiny_classifier import make_classifier

    folder = make_classifier(place / "classifier")
    assert main(["fit", *tiny(gpt2_base, run_folder="run", model__task__reward=folder)]) == 0
    scores = read_scalars(place / "run")
    assert scores[scores["tag"] == "train/agent_0/score"]["value"].notna().all()


def test_real_reviews_from_the_command_line(place: Path, gpt2_base: Path, shared_data: Path) -> None:
    options = tiny(gpt2_base, run_folder="run", data__source=shared_data / "imdb", model__task__reward="vader")
    overrides = ["--model.policy=shared_lora", "--model.task.reward=vader"]
    assert main(["fit", "--config", str(CONFIGS / "imdb_cory.yaml"), *options, *overrides]) == 0
    saved = yaml.safe_load((place / "run" / "config.yaml").read_text())
    assert saved["data"]["init_args"]["source"] == str(shared_data / "imdb"), "what is typed wins over the file"
    assert saved["model"]["kl"]["coef"] == 0.4


def test_real_word_problems_from_the_command_line(
    place: Path, llama_base: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        *("--config", str(CONFIGS / "gsm8k_cory.yaml")),
        *(f"--model.base={llama_base}", "--model.quantization=none", "--model.task.chat=false"),
        *("--model.task.instruction=Solve.", "--model.task.revision=Again.", "--model.response_tokens=[3, 5]"),
        *(f"--data.source={place / 'gsm8k'}", "--data.val_size=6", "--data.batch_size=4", "--run_folder=run"),
    ]
    # The shortest problems of the real set, since the tiny base reads 128 tokens.
    for part in ("train", "test"):
        rows = (shared_data / "gsm8k" / f"{part}.jsonl").read_text().splitlines()
        short = sorted(rows, key=lambda row: len(json.loads(row)["question"]))[:12]
        (place / "gsm8k").mkdir(exist_ok=True)
        (place / "gsm8k" / f"{part}.jsonl").write_text("\n".join(short) + "\n")
    assert main(["fit", *options, "--model.rollouts=2"]) == 0
    capsys.readouterr()
    asked = ["--model.evaluation.samples=3", "--model.evaluation.pass_at=[1, 2]"]
    asked += ["--model.evaluation.greedy=true", "--model.evaluation.team=true"]
    checkpoint = ["--config", "run/config.yaml", "--ckpt_path", "run/checkpoints/last.ckpt"]
    assert main(["test", *checkpoint, *asked]) == 0
    printed = capsys.readouterr().out
    found = json.loads((place / "run" / "test" / "0" / "summary.json").read_text())["agents"]
    after = {"agent_1 after agent_0", "agent_1 after agent_0 greedy"}
    after |= {f"{name}: effect of reading" for name in after}
    alone = {"agent_0", "agent_1", "agent_0 greedy", "agent_1 greedy"}
    assert set(found) == alone | after | {"all agents' vote", "best of all agents"}
    for metric in ("accuracy", "pass@2", "vote", "cut_off", "length", "given: marker", "given: bare", "ran_on"):
        assert found["agent_0"][metric]["queries"] == 12
    assert found["agent_0"]["pass@2"]["after"] >= found["agent_0"]["accuracy"]["after"]
    assert {"accuracy", "cut_off"} <= set(found["agent_1 greedy"])
    assert "ref_kl" not in found["agent_1 greedy"]
    assert "pass@2" in printed
    assert len(pd.read_csv(place / "run" / "test" / "0" / "answers.csv")) == 12 * (3 * 3 + 3)


def test_non_finite_scores_stop_the_run_with_agent_and_rollout(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lit_cory.tasks import SentimentTask

    monkeypatch.setattr(SentimentTask, "score", lambda self, queries, responses: [float("nan")] * len(queries))
    options = tiny(gpt2_base, run_folder="run", trainer__num_sanity_val_steps=0, exchange__every_n_rollouts=0)
    assert main(["fit", *options]) == 2
    assert re.search(r"error: agent_0: 3 updates in a row were skipped, the last at rollout 3", capfd.readouterr().err)


def test_an_estimator_with_a_wrong_gradient_warns(place: Path, gpt2_base: Path) -> None:
    with pytest.warns(UserWarning, match="model.kl: full in the reward: it depends on the state alone"):
        assert main(["fit", *tiny(gpt2_base, model__kl__estimator="full", model__rollouts=1)]) == 0


def test_samples_are_tabled_beside_the_curves(place: Path, gpt2_base: Path) -> None:
    assert main(["fit", *tiny(gpt2_base, run_folder="run", samples__every_n_rollouts=2)]) == 0
    events = EventAccumulator(str(place / "run"), {"tensors": 0}).Reload()
    tables = list(events.Tensors("samples/text_summary"))
    assert [e.step for e in tables] == [2, 4]
    rows = tables[-1].tensor_proto.string_val[0].decode().splitlines()
    # The table is written before the exchange that the fourth rollout brings.
    assert rows[0] == "| query | pioneer (agent_1) | observer (agent_0) | reference |"
    assert len(rows) == 2 + 4
    assert all(re.search(r"\[-?\d\.\d\d\] \|$", row) for row in rows[2:])


def test_test_takes_all_that_is_held_out(place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["test", *tiny(gpt2_base, data__val_batch_size=100)]) == 0
    assert "192 held-out queries" in " ".join(capfd.readouterr().out.split())


def test_bench_prints_phases_and_memory(place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *tiny(gpt2_base), "--repeat=2", "--json=bench.json"]) == 0
    result = json.loads((place / "bench.json").read_text())
    phases = {"generation/pioneer", "generation/observer", "task score", "reference", "scoring", "update", "rollout"}
    assert set(result["seconds"]) == phases
    assert sum(result["seconds"].values()) < 2.1 * result["seconds"]["rollout"]
    assert result["peak_mb"]["process"] > 100
    assert "Peak memory" in capfd.readouterr().out
    assert not (place / "runs").exists()


def test_bench_refuses_what_it_would_not_measure(
    place: Path, gpt2_base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *tiny(gpt2_base), "--trainer.devices=2"]) == 2
    assert "--trainer.devices 1" in capfd.readouterr().err.splitlines()[-1]


def test_the_installed_script_is_the_same_command(place: Path) -> None:
    script = Path(sys.executable).with_name("lit-cory")
    done = subprocess.run([script, "fit", "--help"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert "model.rollouts" in done.stdout


def test_help_comes_without_torch() -> None:
    code = "import sys; from lit_cory.__main__ import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    commands = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert commands >= {"fit", "validate", "test", "bench", "export", "generate"}
