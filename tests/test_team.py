"""Who answers when, who reads what, and what each is paid, with real tiny agents."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lit_cory.errors import UserError
from lit_cory.team import TeamSettings, role_name
from lit_cory.types import Prompt, Query
from tests.agents import (
    QUERIES,
    ConstantTask,
    LetterTask,
    adam,
    backward,
    digest,
    make_agents,
    make_team,
    make_update,
    push_away,
)


class Recorder(LetterTask):
    """Keeps what each role was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        self.asked.append((query.text, tuple(answers)))
        return super().prompt(query, answers)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("transfer", [True, False])
def test_each_role_reads_the_query_and_the_answers_before_it(gpt2_base: Path, count: int, transfer: bool) -> None:
    task = Recorder()
    agents = make_agents(gpt2_base, count)
    rollouts = make_team(agents, task, TeamSettings(knowledge_transfer=transfer)).rollout(QUERIES)
    size = len(QUERIES)
    assert [(r.agent, r.role) for r in rollouts] == [(k, k) for k in range(count)]
    for role in range(count):
        earlier = [rollouts[k].response.texts for k in range(role)] if transfer else []
        expected = [(query.text, tuple(texts[i] for texts in earlier)) for i, query in enumerate(QUERIES)]
        assert task.asked[role * size : (role + 1) * size] == expected


def test_an_observer_is_trained_on_its_own_tokens_only(gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 2)
    pioneer, observer = make_team(agents, tokens=(7, 7)).rollout(QUERIES)
    prompts = observer.response.prompt_ids
    for row, text in enumerate(pioneer.response.texts):
        prompt = agents[1].tokenizer.decode(prompts[row][observer.response.prompt_mask[row]])
        assert prompt == f"{text}; {QUERIES[row].text}"
    own = [len(text) for text in observer.response.texts]
    assert observer.response.mask.shape == observer.response.tokens.shape
    assert observer.response.tokens.shape[1] <= 7
    assert all(own)
    for row in range(len(QUERIES)):
        tokens = observer.response.tokens[row][observer.response.mask[row]]
        assert agents[1].tokenizer.decode(tokens, skip_special_tokens=True) == observer.response.texts[row]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (TeamSettings("sum"), [6, 6, 6]),
        (TeamSettings("own"), [1, 2, 3]),
        (TeamSettings("mean"), [2, 2, 2]),
        (TeamSettings("max"), [3, 3, 3]),
        (TeamSettings("causal"), [6, 5, 3]),
        (TeamSettings("difference"), [1 - 2.5, 2 - 2.0, 3 - 1.5]),
        (TeamSettings("weighted", [[1, 0, 0], [0, 1, -1], [2, 2, 2]]), [1, -1, 12]),
    ],
)
def test_roles_are_paid_by_the_team_score(gpt2_base: Path, settings: TeamSettings, expected: list[float]) -> None:
    class ByRole(LetterTask):
        calls = 0

        def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
            self.calls += 1
            return [float(self.calls)] * len(responses)

    rollouts = make_team(make_agents(gpt2_base, 3), ByRole(), settings).rollout(QUERIES[:2])
    assert [r.score.tolist() for r in rollouts] == [[1, 1], [2, 2], [3, 3]]
    assert [r.team_score.tolist() for r in rollouts] == [[value] * 2 for value in expected]


def test_limits_are_drawn_from_both_ends(gpt2_base: Path) -> None:
    team = make_team(make_agents(gpt2_base, 1), tokens=(4, 6))
    torch.manual_seed(0)
    assert {team.draw_limit() for _ in range(60)} == {4, 5, 6}


def test_an_exchange_moves_roles_and_nothing_else(gpt2_base: Path) -> None:
    """Adapters, heads, Adam moments, KL coefficients and score moments are bit-identical before and after."""
    from lit_cory.kl_control import KLSettings

    agents = make_agents(gpt2_base, 2)
    team = make_team(agents)
    updates = [
        make_update(a, kl=KLSettings(adaptive=True, target=0.1, horizon=50), scaling="normalize") for a in agents
    ]
    optimizers = [adam(a) for a in agents]
    for _ in range(2):
        for rollout in team.rollout(QUERIES):
            updates[rollout.agent].run(rollout, optimizers[rollout.agent], backward)

    def state() -> list[object]:
        moments = [digest(t for s in o.state.values() for t in s.values()) for o in optimizers]
        return [[digest(a.trainable().values()) for a in agents], moments, [u.state_dict() for u in updates]]

    before = state()
    assert before[2] != [make_update(a).state_dict() for a in agents], "the controllers must have moved"
    team.exchange()
    assert state() == before
    assert team.order == [1, 0]
    assert [(r.agent, r.role) for r in team.rollout(QUERIES)] == [(1, 0), (0, 1)]
    team.exchange()
    assert team.order == [0, 1]


def test_three_roles_rotate() -> None:
    team = make_team([None, None, None])  # type: ignore[list-item]
    seen = []
    for _ in range(3):
        team.exchange()
        seen.append(list(team.order))
    assert seen == [[1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert [role_name(k) for k in range(4)] == ["pioneer", "observer", "observer_2", "observer_3"]


def test_an_agent_with_learning_rate_zero_never_changes_through_both_roles(gpt2_base: Path) -> None:
    agents = make_agents(gpt2_base, 2)
    for agent in agents:
        push_away(agent)
    team = make_team(agents)
    optimizers = [adam(agents[0]), adam(agents[1], lr=0.0)]
    updates = [make_update(agent) for agent in agents]
    frozen, moving = digest(agents[1].trainable().values()), digest(agents[0].trainable().values())
    roles = set()
    for number in range(1, 6):
        for rollout in team.rollout(QUERIES):
            updates[rollout.agent].run(rollout, optimizers[rollout.agent], backward)
            roles.add((rollout.agent, rollout.role))
        assert digest(agents[1].trainable().values()) == frozen
        assert digest(agents[0].trainable().values()) != moving
        if number % 2 == 0:
            team.exchange()
    assert roles == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_wrong_number_of_scores_is_refused(gpt2_base: Path) -> None:
    class Short(LetterTask):
        def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
            return [0.0]

    with pytest.raises(UserError, match=r"Short\.score gave 1 scores for 8 answers"):
        make_team(make_agents(gpt2_base, 1), Short()).rollout(QUERIES)


def test_answering_alone_reads_the_query_only_and_leaves_roles_alone(gpt2_base: Path) -> None:
    task = Recorder()
    team = make_team(make_agents(gpt2_base, 2), task)
    response = team.alone(1, QUERIES, 5)
    assert task.asked == [(query.text, ()) for query in QUERIES]
    assert len(response) == len(QUERIES)
    assert team.order == [0, 1]


def test_an_answer_cut_off_costs_its_own_agent_the_penalty(gpt2_base: Path) -> None:
    task = ConstantTask(1.0)
    team = make_team(
        make_agents(gpt2_base, 2), task, TeamSettings(cut_off_penalty=0.25, knowledge_transfer=False), tokens=(40, 40)
    )
    torch.manual_seed(0)
    queries = [*QUERIES * 8, Query("<|end|>An end in the prompt", 0)]
    for rollout in team.rollout(queries):
        prompt = rollout.response.prompt_ids[-1][rollout.response.prompt_mask[-1]]
        assert 0 in prompt, "the prompt holds an end-of-sequence token"
        ended = [0 in row for row in rollout.response.tokens.tolist()]  # 0 is the only token that ends an answer
        assert rollout.team_score.tolist() == [2.0 if end else 1.75 for end in ended]
        assert rollout.score.tolist() == [1.0] * len(ended), "the score that is logged is the task's"
        assert set(ended) == {True, False}, "else this test shows half of it"
