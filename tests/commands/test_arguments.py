"""A checkpoint alone is enough: its run's own configuration is read before what is typed."""

import shutil
from pathlib import Path

import pytest

from lit_cory.__main__ import main
from lit_cory.commands.arguments import complete
from lit_cory.errors import UserError
from tests.commands.conftest import TrainedRun


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Empty files where a run has its own."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("")
    (run / "checkpoints" / "last.ckpt").write_text("")
    return run / "checkpoints" / "last.ckpt"


def test_the_configuration_comes_before_what_is_typed(checkpoint: Path) -> None:
    config = ["--config", str(checkpoint.parents[1] / "config.yaml"), "--run_folder=null"]
    for named in ([f"--ckpt_path={checkpoint}"], ["--ckpt_path", str(checkpoint)]):
        for subcommand in ("validate", "test", "export", "generate"):
            typed = ["--seed_everything=3", *named, "--to=x"]
            assert complete([subcommand, *typed]) == [subcommand, *config, *typed]
        assert complete(["fit", *named]) == ["fit", *named], "a resumed run's settings are named by its user"
        for given in (["--config", "a.yaml"], ["--config=a.yaml"], ["-c", "a.yaml"]):
            assert complete(["fit", *named, *given, "--x=1"]) == ["fit", *given, *named, "--x=1"]
            assert complete(["test", *named, *given, "--x=1"]) == ["test", *given, *named, "--x=1"]
    assert complete(["export", "--ckpt_path=nowhere"]) == ["export", "--ckpt_path=nowhere"]
    several = ["fit", "--seed_everything=3", "--config=a.yaml", "--config", "b.yaml"]
    assert complete(several) == ["fit", "--config=a.yaml", "--config", "b.yaml", "--seed_everything=3"]
    for other in ([], ["--help"], ["fit"], ["fit", "--config"]):
        assert complete(other) == other


def test_flags_stand_alone_or_with_a_value() -> None:
    assert complete(["export", "--merge"]) == ["export", "--merge=true"]
    assert complete(["export", "--merge", "--to", "x"]) == ["export", "--merge=true", "--to", "x"]
    assert complete(["export", "--merge", "false", "--merge=false"]) == ["export", "--merge", "false", "--merge=false"]
    assert complete(["generate", "--greedy", "--seed", "-1"]) == ["generate", "--greedy=true", "--seed", "-1"]


def test_without_a_configuration_one_is_asked_for(checkpoint: Path) -> None:
    (checkpoint.parents[1] / "config.yaml").unlink()
    with pytest.raises(UserError, match=r"config\.yaml; give the configuration of the run with --config"):
        complete(["validate", f"--ckpt_path={checkpoint}"])


def test_validate_needs_the_checkpoint_only_and_what_is_typed_wins(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained("llama").parents[1], run)
    capsys.readouterr()
    options = [f"--ckpt_path={run / 'checkpoints' / 'last.ckpt'}", "--data.val_size=4"]
    for config in ([], [f"--config={run / 'config.yaml'}"]):
        assert main(["validate", *options, *config]) == 0
        assert "4 held-out queries" in " ".join(capsys.readouterr().out.split())


def test_bench_reads_the_configuration_that_fit_saves(trained: TrainedRun, capsys: pytest.CaptureFixture[str]) -> None:
    config = trained("llama").parents[1] / "config.yaml"
    assert main(["bench", f"--config={config}", "--repeat=1"]) == 0
    assert "median of 1 rollouts" in capsys.readouterr().out


def test_the_last_checkpoint_is_that_of_the_run_that_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last.ckpt").touch()
    (run / "config.yaml").touch()
    resumed = complete(["fit", "--resume", str(run), "--model.lr=1"])
    for given in (
        ["--ckpt_path", "last", f"--run_folder={run}", "--model.lr=1"],
        ["--model.lr=1", "--ckpt_path=last", "--run_folder", str(run)],
        ["--resume", str(run), "--model.lr=1", "--ckpt_path=last"],
    ):
        assert complete(["fit", *given]) == resumed
    config = ["--config", str(run / "config.yaml")]
    again = complete(["fit", *config, "--ckpt_path", "last", "--model.lr=1"])
    assert again == ["fit", *config, *resumed[1:]]
