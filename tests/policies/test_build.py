"""Teams whose agents start from different bases, and agents that share one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lit_cory.__main__ import main
from lit_cory.analysis import read_scalars
from lit_cory.policies import LoraSettings, Policy, PolicySettings, build_policies
from lit_cory.policies.loading import load_tokenizer
from tests.agents import QUERIES, LetterTask, adam, backward, digest, make_team, make_update, push_away
from tests.tasks.tiny_classifier import make_classifier
from tests.test_cli import place, tiny  # noqa: F401
from tests.tiny import make_base

PROMPTS = [query.text for query in QUERIES]
SETTINGS = PolicySettings("shared_lora", "float32", "none", LoraSettings(r=4, alpha=8), 1.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A base of the GPT-2 kind, and one of the Llama kind with other ids and fewer tokens in its vocabulary."""
    folder = tmp_path_factory.mktemp("pair")
    return str(make_base(folder / "one", "gpt2")), str(make_base(folder / "two", "llama", pad="own", vocab=290, seed=1))


def make_agents(*bases: str, settings: PolicySettings = SETTINGS) -> list[Policy]:
    torch.manual_seed(0)
    return build_policies([*bases], [f"agent_{i}" for i in range(len(bases))], settings, "cpu")


def storages(agent: Policy) -> set[int]:
    """Where an agent's language model lies, the adapters of all its agents included."""
    return {p.data_ptr() for p in agent.lm.parameters()}


def test_the_two_tokenizers_differ(pair: tuple[str, str]) -> None:
    one, two = (load_tokenizer(base)(PROMPTS[3])["input_ids"] for base in pair)
    assert len(one) < len(two)
    assert len(load_tokenizer(pair[0])) != len(load_tokenizer(pair[1]))


def test_each_agent_starts_at_its_own_base(pair: tuple[str, str]) -> None:
    agents = make_agents(*pair)
    assert [agent.name for agent in agents] == ["agent_0", "agent_1"]
    assert [agent.lm.config.model_type for agent in agents] == ["gpt2", "llama"]
    for agent in agents:
        response = agent.generate(PROMPTS, 6)
        assert torch.equal(agent.score(response).logprobs, agent.reference_scores(response).logprobs)


def test_agents_of_the_same_base_share_it_and_others_do_not(pair: tuple[str, str]) -> None:
    first, other, second = make_agents(pair[0], pair[1], pair[0])
    assert first.lm is second.lm
    assert first.tokenizer is second.tokenizer
    assert not storages(first) & storages(other)
    trained = [{p.data_ptr() for p in agent.trainable().values()} for agent in (first, other, second)]
    assert len(set.union(*trained)) == sum(map(len, trained))


def test_full_copies_of_the_same_base_share_its_reference(pair: tuple[str, str]) -> None:
    agents: list[Any] = make_agents(*pair, pair[0], settings=PolicySettings("full", "auto", "none", LoraSettings(), 1))
    assert agents[0].frozen is agents[2].frozen is not agents[1].frozen
    assert not storages(agents[0]) & storages(agents[2])


@pytest.mark.parametrize("exchanged", [False, True])
def test_the_observer_reads_the_answer_in_its_own_tokens(pair: tuple[str, str], exchanged: bool) -> None:
    agents = make_agents(*pair)
    team = make_team(agents, LetterTask())
    if exchanged:
        team.exchange()
    pioneer, observer = team.rollout(QUERIES)
    assert (pioneer.agent, observer.agent) == ((1, 0) if exchanged else (0, 1))
    response, tokenizer = observer.response, agents[observer.agent].tokenizer
    for row, query in enumerate(QUERIES):
        ids = response.prompt_ids[row][response.prompt_mask[row]]
        # Byte-level tokens decode to the very text that was encoded.
        read = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        assert read == f"{pioneer.response.texts[row]}; {query.text}"
    assert all(pioneer.response.texts)


@pytest.mark.parametrize("trained", [0, 1])
def test_training_one_agent_changes_it_alone(pair: tuple[str, str], trained: int) -> None:
    agents = make_agents(*pair)
    for agent in agents:
        push_away(agent)

    def digests() -> dict[str, str]:
        bases = {f"base of {a.name}": digest(p for n, p in a.lm.named_parameters() if "lora_" not in n) for a in agents}
        return bases | {agent.name: digest(agent.trainable().values()) for agent in agents}

    before, rollouts = digests(), make_team(agents).rollout(QUERIES)
    make_update(agents[trained]).run(rollouts[trained], adam(agents[trained]), backward)
    after = digests()
    assert {name for name in before if before[name] != after[name]} == {f"agent_{trained}"}


@pytest.mark.usefixtures("place")
def test_a_run_of_two_bases(tmp_path: Path, pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    more = {"model.task.reward": make_classifier(tmp_path / "classifier"), "exchange.every_n_rollouts": 1}
    options = tiny(f"[{pair[0]},{pair[1]}]", model__rollouts=2, **more)  # type: ignore[arg-type]
    assert main(["fit", *options]) == 0
    run = Path("runs/default/0")
    scalars = read_scalars(run).set_index(["tag", "step"])["value"]
    for agent, roles in (("agent_0", [0, 1]), ("agent_1", [1, 0])):
        assert scalars[f"val/{agent}/ref_kl", 0] == 0
        assert scalars[f"val/{agent}/ref_kl", 2] != 0
        assert [scalars[f"train/{agent}/role", step] for step in (1, 2)] == roles

    assert main(["fit", "--config", str(run / "config.yaml")]) == 0
    again = read_scalars(Path("runs/default/1")).set_index(["tag", "step"])["value"]
    names = [tag for tag in scalars.index if not tag[0].startswith("time/")]
    assert again[names].equals(scalars[names])

    checkpoint = f"--ckpt_path={run / 'checkpoints' / 'last.ckpt'}"
    assert main(["validate", "--config", str(run / "config.yaml"), checkpoint]) == 0
    capfd.readouterr()
    for bases in (f"[{pair[1]},{pair[0]}]", pair[0]):
        assert main(["validate", *tiny(bases), checkpoint]) == 2  # type: ignore[arg-type]
        printed = capfd.readouterr().err
        assert f"start from {', '.join(map(str, pair))}, not from model.base=" in printed
        assert "Traceback" not in printed


@pytest.mark.usefixtures("place")
def test_lists_that_do_not_fit_are_refused(
    tmp_path: Path, pair: tuple[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lit_cory.module.build_policies", lambda *_: pytest.fail("the bases were loaded"))
    short = make_base(tmp_path / "short", "gpt2", n_positions=16)
    for bases, line in (
        ([pair[0]], f"model.base={[pair[0]]}: must be one name, or one an agent (2)"),
        ([*pair, pair[0]], "must be one name, or one an agent (2)"),
        ([pair[0], "./no/such"], "model.base=./no/such"),
        ([pair[0], str(short)], f"{short} has 16 positions"),
        ([str(short), pair[1]], f"{short} has 16 positions"),
    ):
        assert main(["fit", *tiny(f"[{','.join(bases)}]")]) == 2, bases  # type: ignore[arg-type]
        errors = [text for text in capfd.readouterr().err.splitlines() if "error" in text.lower()]
        assert len(errors) == 1, errors
        assert line in errors[0]
