"""The published configurations."""

from pathlib import Path

import pytest
import yaml

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.commands.arguments import flat
from tests.test_cli import CONFIGS, place, tiny

__all__ = ["place"]

WHOLE = sorted({*CONFIGS.glob("*.yaml"), *CONFIGS.glob("study/*.yaml")} - {CONFIGS / "imdb_reward.yaml"})
"""Those that make a run by themselves."""


@pytest.mark.parametrize("job", ["imdb_", "gsm8k_", "study/"])
def test_configs_of_cory_and_ppo_differ_in_the_team_only(job: str) -> None:
    cory, ppo = (flat(yaml.safe_load((CONFIGS / f"{job}{name}.yaml").read_text())) for name in ("cory", "ppo"))
    assert {key for key in cory | ppo if cory.get(key) != ppo.get(key)} == {
        "model.agents",
        "exchange.every_n_rollouts",
    }


@pytest.mark.parametrize("config", WHOLE, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_config_parses_and_feeds_back(place: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", str(config), "--print_config"])
    assert stop.value.code in (0, None)
    printed = capsys.readouterr().out
    (place / "again.yaml").write_text(printed)
    with pytest.raises(SystemExit):
        main(["fit", "--config", "again.yaml", "--print_config"])
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("config", sorted((CONFIGS / "algorithms").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_algorithm_trains_a_team(place: Path, gpt2_base: Path, config: Path) -> None:
    group = yaml.safe_load(config.read_text())["model"]["algorithm"]["init_args"].get("group_size", 1)
    options = tiny(gpt2_base, model__rollouts=2, data__batch_size=2, run_folder="run")
    # Two queries make two groups, and a minibatch holds one.
    assert main(["fit", "--config", str(config), *options, f"--model.update.minibatch_size={group}"]) == 0
    scalars = read_scalars(place / "run").set_index(["tag", "step"])["value"]
    for agent in ("agent_0", "agent_1"):
        assert scalars[f"train/{agent}/steps", 2] == 2
        assert ((f"train/{agent}/value_loss", 1) in scalars.index) == (group == 1), "groups need no critic"
