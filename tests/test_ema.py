"""Moving averages of an agent: by hand, in Elastic Reset, and as the anchor of the KL penalty."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lit_cory import ops
from lit_cory.callbacks import ElasticReset
from lit_cory.ema import Ema
from lit_cory.errors import UserError
from lit_cory.kl_control import KLSettings
from tests.agents import QUERIES, adam, backward, make_agents, make_team, make_update, push_away
from tests.test_cli import place
from tests.test_resume import StopError, assert_equal_runs, options, state, stop_after

__all__ = ["place"]


def test_average_and_exchange_by_hand() -> None:
    """0.75 * 4 + 0.25 * 8 = 5, then 0.75 * 5 + 0.25 * 1 = 4."""
    weight = nn.Parameter(torch.tensor([4.0]))
    ema = Ema({"w": weight}, 0.75)
    weight.data.fill_(8)
    ema.update()
    assert ema.average["w"].item() == 5
    weight.data.fill_(1)
    ema.update()
    assert ema.average["w"].item() == 4
    with ema.exchanged():
        assert weight.item() == 4
    assert (weight.item(), ema.average["w"].item()) == (1, 4)
    with pytest.raises(StopError), ema.exchanged():
        raise StopError
    assert (weight.item(), ema.average["w"].item()) == (1, 4), "restored however the block ends"


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
def test_resets_follow_the_schedule_by_hand(kind: Any, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With decay 0.5 from 0: the policy is set to 1, 1, 1, 1, ... each rollout, N = 2.

    Averages 0.5, 0.75; after rollout 2 policy 0.75, average 0. Then 0.5, 0.75 and a reset again.
    """
    from lit_cory.module import CoryLightningModule

    agents = make_agents(gpt2_base, 2, kind)
    module = CoryLightningModule(base=str(gpt2_base), agents=2)
    module.policies.extend(agents)
    for agent in agents:
        for parameter in agent.lm_parameters().values():
            parameter.data.fill_(0)
    heads = [agent.value_head.state_dict() for agent in agents]
    callback = ElasticReset(every_n_rollouts=2, decay=0.5)
    callback.on_train_start(None, module)  # type: ignore[arg-type]
    seen = []
    for rollout in (1, 2, 3, 4):
        for agent in agents:
            for parameter in agent.lm_parameters().values():
                parameter.data.fill_(1)
        module.rollouts_done = rollout
        callback.on_train_batch_end(None, module)  # type: ignore[arg-type]
        values = [torch.cat([p.flatten() for p in agent.lm_parameters().values()]).unique() for agent in agents]
        averages = [
            torch.cat([t.flatten() for t in callback.averages[a.name].average.values()]).unique() for a in agents
        ]
        assert torch.equal(values[0], values[1])
        seen.append((*values[0].tolist(), *averages[1].tolist()))
    assert seen == [(1, 0.5), (0.75, 0), (1, 0.5), (0.75, 0)]
    for agent, before in zip(agents, heads, strict=True):
        assert all(torch.equal(before[name], tensor) for name, tensor in agent.value_head.state_dict().items())


def test_no_resets_keep_nothing() -> None:
    assert ElasticReset().state_dict() == {}


@pytest.mark.parametrize(("every", "decay"), [(-1, 0.5), (1, 1.0), (1, -0.1)])
def test_numbers_out_of_range(every: int, decay: float) -> None:
    with pytest.raises(UserError, match=r"^elastic_reset\.(every_n_rollouts|decay)=.*must be"):
        ElasticReset(every, decay)


@pytest.mark.parametrize("kind", ["shared_lora", "full"])
def test_the_penalty_is_against_the_anchor_and_ref_kl_against_the_reference(kind: Any, gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 1, kind)
    update = make_update(agents[0], kl=KLSettings(coef=0.3, anchor_decay=0.5))
    push_away(agents[0], 0.05)
    assert update.anchor is not None
    update.anchor.update()  # half way from the reference (for full copies just that) to the agent
    team = make_team(agents)
    torch.manual_seed(0)
    (rollout,) = team.rollout(QUERIES)
    response, weights = rollout.response, {n: p.detach().clone() for n, p in agents[0].lm_parameters().items()}
    average = {name: tensor.clone() for name, tensor in update.anchor.average.items()}
    with torch.no_grad():
        own, reference = agents[0].score(response).logprobs, agents[0].reference_scores(response).logprobs
        for name, parameter in agents[0].lm_parameters().items():
            parameter.copy_(average[name])
        anchored = agents[0].score(response).logprobs
        for name, parameter in agents[0].lm_parameters().items():
            parameter.copy_(weights[name])
    stats = update.run(rollout, adam(agents[0], lr=0.0), backward)
    penalty, drift = ((own - other).sum(dim=1).mean().item() for other in (anchored, reference))
    assert abs(penalty - drift) > 1e-3
    assert stats.scalars["kl_penalty"] == pytest.approx(penalty, abs=1e-5)
    assert stats.scalars["ref_kl"] == pytest.approx(drift, abs=1e-5)
    for name, parameter in agents[0].lm_parameters().items():
        assert torch.equal(parameter, weights[name]), "a rate of 0 moves nothing"
        torch.testing.assert_close(update.anchor.average[name], (average[name] + weights[name]) / 2)
    anchor = update.anchor_scores(update.anchor, [response])
    shaped = update.experience(rollout, agents[0].score(response).detach(), anchor)
    assert shaped.reference.hidden.shape[-1] == 0
    assert ops.masked_mean(shaped.reference.logprobs, response.mask).isfinite()


def test_an_anchor_needs_a_fixed_estimator_and_range(gpt2_base: Path) -> None:
    from lit_cory.module import CoryLightningModule

    for kl in (KLSettings(anchor_decay=1.0), KLSettings(anchor_decay=0.5, estimator="full", placement="loss")):
        with pytest.raises(UserError, match=r"model\.kl\.anchor_decay=.*: must be 0 or above and below 1"):
            CoryLightningModule(base=str(gpt2_base), kl=kl)


@pytest.mark.parametrize(
    "more",
    [
        {"elastic_reset.every_n_rollouts": 2, "elastic_reset.decay": 0.5, "model.kl.anchor_decay": 0.6},
        {"model.policy": "full", "model.lr": 1e-3, "elastic_reset.every_n_rollouts": 5, "elastic_reset.decay": 0.5},
    ],
)
def test_averages_resume_bit_for_bit(
    more: dict[str, Any], place: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(gpt2_base, **more)
    assert main_fit(given, "whole") == 0
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(StopError):
            main_fit(given, "broken")
    from lit_cory.__main__ import main

    assert main(["fit", "--resume", "broken"]) == 0
    saved = [state(place / run) for run in ("whole", "broken")]
    callbacks = [s["callbacks"][next(key for key in s["callbacks"] if "ElasticReset" in key)] for s in saved]
    anchors = [[u.pop("anchor", {}) for u in s["cory"]["updates"]] for s in saved]
    for part in ("averages", "start"):
        for agent, tensors in callbacks[0][part].items():
            assert all(torch.equal(callbacks[1][part][agent][name], tensor) for name, tensor in tensors.items())
    for left, right in zip(*anchors, strict=True):
        assert all(torch.equal(right[name], tensor) for name, tensor in left.items())
    weights = [s["state_dict"] for s in saved]
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())
    if not any(anchors[0]):
        assert_equal_runs(place / "whole", place / "broken")


def main_fit(given: list[str], folder: str) -> int:
    from lit_cory.__main__ import main

    return main(["fit", *given, f"--run_folder={folder}"])
