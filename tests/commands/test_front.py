"""A front from one run: scales of what is learnt, merged agents, and the numbers of validate."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from lit_cory.__main__ import main
from lit_cory.analysis.front_plot import plot_front
from lit_cory.commands.weights import mean_policy
from tests.agents import QUERIES, make_agents, push_away
from tests.commands.conftest import TrainedRun


def front(checkpoint: Path, scales: str, *options: str) -> pd.DataFrame:
    run = checkpoint.parents[1]
    number = len(list((run / "front").glob("*"))) if (run / "front").exists() else 0
    assert main(["front", f"--ckpt_path={checkpoint}", f"--scales={scales}", *options]) == 0
    folder = run / "front" / str(number)
    assert (folder / "front.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (folder / "config.yaml").is_file()
    return pd.read_csv(folder / "front.csv")


@pytest.mark.parametrize("options", [(), ("--model.policy=full", "--model.lr=0.003")], ids=["shared_lora", "full"])
def test_scale_0_is_the_reference_and_scale_1_what_validate_says(trained: TrainedRun, options: tuple[str, ...]) -> None:
    checkpoint = trained("gpt2", *options)
    frame = front(checkpoint, "[0, 0.5, 1]").set_index(["agent", "scale"])
    assert set(frame.index.get_level_values("agent")) == {"agent_0", "agent_1", "merged"}
    at_0 = frame.xs(0, level="scale")
    assert at_0["ref_kl"].abs().max() < 1e-5
    assert at_0["score"].nunique() == 1, "the same queries and random streams"
    assert main(["validate", f"--ckpt_path={checkpoint}"]) == 0
    number = max(int(path.name) for path in (checkpoint.parents[1] / "validate").iterdir())
    summary = pd.read_csv(checkpoint.parents[1] / "validate" / str(number) / "summary.csv")
    for _, row in summary[summary["agent"].isin(["agent_0", "agent_1"])].iterrows():
        if row["metric"] in ("score", "ref_kl", "combined"):
            assert frame.loc[(row["agent"], 1), row["metric"]] == pytest.approx(row["after"], abs=1e-4)
            assert frame.loc[(row["agent"], 1), f"{row['metric']}_low"] == pytest.approx(row["after_low"], abs=1e-4)
    assert (frame["ref_kl"].xs(1, level="scale") != 0).all()


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
def test_scaled_and_merged_deltas_by_hand(kind: Any, gpt2_base: Path) -> None:
    """The weights of a layer are W + scale * mean of the deltas, computed from the factors in float64."""
    agents = make_agents(gpt2_base, 2, kind)
    for seed, agent in enumerate(agents):
        push_away(agent, 0.1, seed)
    before = [{n: p.detach().clone() for n, p in agent.lm_parameters().items()} for agent in agents]
    mean = mean_policy(agents, "front_of_merged", 0.6)
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    name = "transformer.h.1.attn.c_attn"
    with mean.model() as lm, torch.no_grad():
        got = lm.get_submodule(name)(x)
    if kind == "full":
        start: Any = agents[0].frozen.get_submodule(name)  # type: ignore[union-attr, operator]
        deltas = [before[i][f"{name}.weight"].double() - start.weight.double() for i in (0, 1)]
        shift = [before[i][f"{name}.bias"].double() - start.bias.double() for i in (0, 1)]
        expected = x.double() @ (start.weight.double() + 0.3 * sum(deltas)) + start.bias.double() + 0.3 * sum(shift)
    else:
        base: Any = agents[0].lm.get_submodule(f"{name}.base_layer")
        factors = [(b[f"{name}.lora_B.weight"].double(), b[f"{name}.lora_A.weight"].double()) for b in before]
        delta: Any = sum(2 * up @ down for up, down in factors)  # alpha / r = 8 / 4
        expected = base(x).double() + 0.3 * x.double() @ delta.T
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-5)
    for agent, weights in zip(agents, before, strict=True):
        assert all(torch.equal(p, weights[n]) for n, p in agent.lm_parameters().items()), "the agents stay as they are"


def test_one_agent_at_scale_1_scores_as_itself(llama_base: Path) -> None:
    agents = make_agents(llama_base, 2)
    push_away(agents[1])
    response = agents[1].generate([query.text for query in QUERIES], 6)
    for scale in (0.5, 1.0):  # the second writes over the first
        same = mean_policy([agents[1]], "front_of_agent_1", scale)
        with torch.no_grad():
            equal = torch.equal(same.score(response).logprobs, agents[1].score(response).logprobs)
        assert equal == (scale == 1.0)


def test_single_agents_have_no_merged_one(trained: TrainedRun) -> None:
    frame = front(trained("gpt2", "--model.agents=1"), "[1]")
    assert frame["agent"].tolist() == ["agent_0"]


REFUSALS = {
    "--scales=[]": "scales=[]: name at least one",
    "--scales=[-1]": "scales=-1.0: must be finite numbers, 0 or above",
    "--model.evaluation.kl=false": "model.evaluation: a front needs",
    "--scales=many": "scales",
}


@pytest.mark.parametrize("option", REFUSALS)
def test_what_cannot_be_used(option: str, trained: TrainedRun, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = trained("gpt2")
    assert main(["front", f"--ckpt_path={checkpoint}", option]) == 2
    assert REFUSALS[option] in capfd.readouterr().err


def test_the_picture_takes_single_and_missing_points(tmp_path: Path) -> None:
    columns = {"score": 0.5, "score_low": 0.4, "score_high": 0.6, "ref_kl": 1.0, "ref_kl_low": 0.9, "ref_kl_high": 1.1}
    rows = [{"agent": "agent_0", "scale": scale} | columns for scale in (0.5, 1.0)]
    rows[1] |= {"score_low": math.nan, "score_high": math.nan}
    path = plot_front(pd.DataFrame(rows), tmp_path / "front.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
