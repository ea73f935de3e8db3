"""Several processes that learn as one, over gloo on the loopback interface."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lit_cory import ops, ranks
from lit_cory.algorithms import PPO
from lit_cory.errors import UserError
from lit_cory.evaluation import EvaluationSettings, Evaluator
from lit_cory.kl_control import KLSettings
from lit_cory.types import Rollout
from lit_cory.update import AgentUpdate, UpdateSettings
from tests.agents import QUERIES, adam, backward, make_agents, make_team, push_away
from tests.pair import Pair, two_processes


def talk(rank: int, folder: Path) -> None:
    rows = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]][rank])
    assert ranks.gather(rows).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (
        ranks.over_all(lambda x: x - x.mean(), torch.tensor([[1.0], [2.0, 6.0]][rank])).tolist()
        == [
            [-2.0],
            [-1.0, 3.0],
        ][rank]
    )
    mine = torch.tensor([1.0, 10.0]) * (rank + 1)
    assert ranks.total(mine).tolist() == [3.0, 30.0]
    assert mine[0] == rank + 1  # not changed in place
    assert (ranks.largest(7 - rank), ranks.first(7 - rank)) == (7, 7)
    assert ranks.gather_objects(str(rank)) == ["0", "1"]
    assert ranks.share("abcde") == [["a", "c", "e"], ["b", "d"]][rank]
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, 1))]
    parameters[0].grad = torch.tensor([1.0, 2.0]) * (rank + 1)
    if rank == 1:
        parameters[1].grad = torch.tensor([[5.0]])
    ranks.add_gradients(parameters)
    assert [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None] == [[3, 6], [[5]]]


def test_what_processes_do_together(tmp_path: Path, pair: Pair) -> None:
    pair.run(talk, tmp_path)


def test_one_process_gets_back_what_it_gave() -> None:
    rows = torch.tensor([[1.0, 2.0]])
    assert ranks.gather(rows) is rows
    assert ranks.total(rows) is rows
    assert (ranks.count(), ranks.own(), ranks.largest(3), ranks.first(4)) == (1, 0, 3, 4)
    assert ranks.share([1, 2, 3]) == [1, 2, 3]


def recorded(base: Path) -> tuple[list[AgentUpdate], list[Rollout]]:
    """Two agents off the reference, their updates, and six rollouts of 8 rows of theirs, the same in every process."""
    agents = make_agents(base)
    for number, agent in enumerate(agents):
        push_away(agent, seed=number)
    torch.manual_seed(5)
    team = make_team(agents, tokens=(3, 9))
    rollouts = [rollout for _ in range(3) for rollout in team.rollout(QUERIES)]
    settings = UpdateSettings(epochs=2, minibatch_size=4, pass_tokens=60)
    kl = KLSettings(coef=0.2, adaptive=True, target=1.0, horizon=20)
    return [AgentUpdate(agent, PPO(), settings, kl, "normalize") for agent in agents], rollouts


def of_rows(rollout: Rollout, index: list[int]) -> Rollout:
    rows = torch.tensor(index)
    score, team_score = rollout.score[rows], rollout.team_score[rows]
    return Rollout(rollout.agent, rollout.role, rollout.response.rows(rows), score, team_score)


def learn(updates: list[AgentUpdate], rollouts: list[Rollout]) -> dict[str, object]:
    optimizers = [adam(update.policy, lr=1e-3) for update in updates]
    scalars = [updates[r.agent].run(r, optimizers[r.agent], backward).scalars for r in rollouts]
    weights = [torch.cat([p.detach().flatten() for p in u.policy.trainable().values()]) for u in updates]
    return {"weights": weights, "scalars": scalars, "states": [update.state_dict() for update in updates]}


def replay(rank: int, folder: Path) -> None:
    updates, rollouts = recorded(folder / "base")
    torch.manual_seed(100 + rank)
    found = learn(updates, [of_rows(r, list(range(rank, 8, 2))) for r in rollouts])
    torch.save(found, folder / f"found-{rank}.pt")


def test_two_processes_learn_what_one_does(
    llama_base: Path, tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rollouts, Adam, 2 epochs of 2 minibatches of all processes' rows, passes of several sizes."""
    (tmp_path / "base").symlink_to(llama_base)
    pair.run(replay, tmp_path)
    updates, rollouts = recorded(llama_base)
    streams = [torch.Generator().manual_seed(100 + rank) for rank in range(2)]

    def as_dealt(self: AgentUpdate, rows: int) -> Iterator[torch.Tensor]:
        """The rows that the two processes take in each step, their orders drawn as theirs are."""
        for _ in range(self.settings.epochs):
            orders = [2 * torch.randperm(rows // 2, generator=stream) + rank for rank, stream in enumerate(streams)]
            yield from (torch.cat([order[step : step + 2] for order in orders]) for step in (0, 2))

    monkeypatch.setattr(AgentUpdate, "minibatches", as_dealt)
    start = [torch.cat([p.detach().flatten() for p in u.policy.trainable().values()]) for u in updates]
    one = learn(updates, rollouts)
    for rank in range(2):
        two = torch.load(tmp_path / f"found-{rank}.pt", weights_only=True)
        for before, mine, theirs in zip(start, one["weights"], two["weights"], strict=True):  # type: ignore[call-overload]
            assert float((mine - before).abs().max()) > 5e-3
            torch.testing.assert_close(theirs, mine, atol=1e-5, rtol=0)
        for mine, theirs in zip(one["scalars"], two["scalars"], strict=True):  # type: ignore[call-overload]
            assert theirs == pytest.approx(mine, rel=1e-3, abs=1e-5)
        for mine, theirs in zip(one["states"], two["states"], strict=True):  # type: ignore[call-overload]
            assert theirs["kl"]["coef"] == pytest.approx(mine["kl"]["coef"], rel=1e-6)
            assert theirs["scaler"]["moments"] == pytest.approx(mine["scaler"]["moments"], rel=1e-6)


def uneven(rank: int, folder: Path) -> None:
    """Five rows on two processes, in steps of one row each and of all, ended by the same limit."""
    updates, rollouts = recorded(folder / "base")
    for size in (1, 4, None):
        settings = UpdateSettings(epochs=2, minibatch_size=size, pass_tokens=60, target_kl=1e-4)
        update = AgentUpdate(updates[0].policy, PPO(), settings, KLSettings(), "none")
        stats = update.run(of_rows(rollouts[0], list(range(rank, 5, 2))), adam(update.policy), backward)
        found = ranks.gather_objects(stats.scalars)
        assert found[0] == found[1]
        weights = ranks.gather(torch.cat([p.detach().flatten() for p in update.policy.trainable().values()])[None])
        assert torch.equal(weights[0], weights[1])


def test_uneven_batches_end(llama_base: Path, tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "base").symlink_to(llama_base)
    pair.run(uneven, tmp_path)


def bad_number(rank: int, folder: Path) -> None:
    """A score that is none in one process skips the step in both."""
    updates, rollouts = recorded(folder / "base")
    rollout = of_rows(rollouts[0], list(range(rank, 8, 2)))
    if rank == 1:
        rollout.team_score[0] = float("nan")
    before = [p.detach().clone() for p in updates[0].policy.trainable().values()]
    stats = updates[0].run(rollout, adam(updates[0].policy), backward)
    assert stats.skipped == "non-finite team score"
    after = updates[0].policy.trainable().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_number_that_is_none_skips_the_update_everywhere(llama_base: Path, tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "base").symlink_to(llama_base)
    pair.run(bad_number, tmp_path)


def evaluate(rank: int, folder: Path) -> None:
    """Seven queries in batches of four and three, then a single one: more processes than queries."""
    agents = make_agents(folder / "base")
    team = make_team(agents, tokens=(5, 5))
    evaluator = Evaluator(team, EvaluationSettings(samples=0, greedy=True, team=True), 0.05)
    for queries in (QUERIES[:7], QUERIES[:1]):
        shared = evaluator.run_shared(queries, 0, [0, 0])
        whole = evaluator.run(queries, 0, [0, 0])
        assert {name: [table.texts for table in tables] for name, tables in shared.items()} == {
            name: [table.texts for table in tables] for name, tables in whole.items()
        }
        assert shared["agent_0 greedy"][0].score == whole["agent_0 greedy"][0].score
    torch.manual_seed(0)
    texts = ranks.gather_objects(team.rollout(QUERIES)[0].response.texts)
    assert texts[0] == texts[1]


def test_an_evaluation_is_dealt_and_put_together_in_order(llama_base: Path, tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "base").symlink_to(llama_base)
    pair.run(evaluate, tmp_path)


def lonely(rank: int, folder: Path) -> None:
    if rank == 1:
        os._exit(0)
    with pytest.raises(UserError, match="process 0 of 2 lost another one"):
        ranks.gather_objects(1)


def test_a_process_that_lost_another_says_so(tmp_path: Path) -> None:
    with two_processes(tmp_path) as pair:
        for connection in pair.connections:
            connection.send((lonely, tmp_path))
        assert pair.connections[0].poll(60)
        assert pair.connections[0].recv() == ""


def test_whitening_over_all_is_that_of_ops() -> None:
    """With one process it is the very function, bit for bit."""
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    rewards, values = torch.randn(2, 3) * mask, torch.randn(2, 3) * mask
    advantages, _ = PPO().advantages(rewards, values, mask)
    assert torch.equal(advantages, ops.masked_whiten(ops.gae(rewards, values, mask, 1.0, 0.95)[0], mask))
