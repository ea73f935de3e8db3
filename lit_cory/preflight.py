"""What can be found wrong before the base is loaded, each in one line that names the key and the remedy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lit_cory.checkpoint_check import check_structure
from lit_cory.errors import UserError
from lit_cory.guards import task_call
from lit_cory.policies.loading import load_config, load_tokenizer, lora_targets, max_positions
from lit_cory.policies.policy import prompt_ids
from lit_cory.types import Query

if TYPE_CHECKING:
    from lit_cory.module import CoryLightningModule

CHECKPOINT_FORMAT = 2
"""Raised whenever what a checkpoint holds changes."""

MOST_AGENTS, MOST_RANK = 64, 4096
"""Bounds of what memory is asked for in good faith: a slip of the keyboard must not take a shared machine down."""

Requirement = tuple[bool, str, object, str]
"""Whether a key is as it must be, the key, its value, and the words for what it must be."""


def check_settings(module: CoryLightningModule) -> None:
    """Check the keys of the model that need no data; reads the base's configuration, not its weights.

    Warns of a KL estimator in a place where its gradient is not that of the KL.

    Raises:
        UserError: for the first key that can't be used.
    """
    for good, key, value, want in requirements(module):
        if not good:
            raise UserError(f"{key}={value}: must be {want}")
    if (warning := module.kl.warning()) is not None:
        warnings.warn(warning, stacklevel=2)
    for base in dict.fromkeys(module.bases()):
        config = load_config(base)
        if module.policy_settings.policy == "shared_lora":
            lora_targets(config, module.policy_settings.lora.target_modules)


def requirements(module: CoryLightningModule) -> list[Requirement]:
    """What the keys of the model must be."""
    low, high = module.response_tokens
    agents, bases = len(module.agent_names), len(module.bases())
    return [
        *policy_requirements(module),
        (module.rollouts >= 1, "model.rollouts", module.rollouts, "at least 1"),
        (1 <= agents <= MOST_AGENTS, "model.agents", agents, f"from 1 to {MOST_AGENTS}"),
        (bases == agents, "model.base", module.base, f"one name, or one an agent ({agents})"),
        (1 <= low <= high, "model.response_tokens", [low, high], "1 <= lowest <= highest"),
        (0 <= module.lr < math.inf, "model.lr", module.lr, "0 or above, and finite"),
        *update_requirements(module),
        *evaluation_requirements(module),
        *team_requirements(module),
    ]


def policy_requirements(module: CoryLightningModule) -> list[Requirement]:
    """What must hold of an agent."""
    policies = module.policy_settings
    whole = policies.policy == "full"
    return [
        (
            not whole or policies.dtype in ("auto", "float32"),
            "model.dtype",
            policies.dtype,
            "auto or float32 with model.policy=full, whose copies are trained in float32",
        ),
        (
            not whole or policies.quantization == "none",
            "model.quantization",
            policies.quantization,
            "none with model.policy=full, which trains the weights that it would round",
        ),
        (0 < policies.temperature < math.inf, "model.temperature", policies.temperature, "above 0, and finite"),
        (1 <= policies.lora.r <= MOST_RANK, "model.lora.r", policies.lora.r, f"from 1 to {MOST_RANK}"),
    ]


def update_requirements(module: CoryLightningModule) -> list[Requirement]:
    """What must hold of an update."""
    update, kl = module.update_settings, module.kl
    return [
        (0 <= kl.coef < math.inf, "model.kl.coef", kl.coef, "0 or above, and finite"),
        (kl.target > 0, "model.kl.target", kl.target, "above 0"),
        (kl.horizon > 0, "model.kl.horizon", kl.horizon, "above 0"),
        (
            kl.anchor_decay is None or (0 <= kl.anchor_decay < 1 and kl.estimator != "full"),
            "model.kl.anchor_decay",
            kl.anchor_decay,
            "0 or above and below 1, or null for the reference, and null with model.kl.estimator=full",
        ),
        (update.epochs >= 1, "model.update.epochs", update.epochs, "at least 1"),
        (
            update.minibatch_size is None or update.minibatch_size >= 1,
            "model.update.minibatch_size",
            update.minibatch_size,
            "at least 1",
        ),
        (update.max_grad_norm > 0, "model.update.max_grad_norm", update.max_grad_norm, "above 0"),
        (update.max_skipped >= 1, "model.update.max_skipped", update.max_skipped, "at least 1"),
        (update.pass_tokens >= 1, "model.update.pass_tokens", update.pass_tokens, "at least 1"),
    ]


def evaluation_requirements(module: CoryLightningModule) -> list[Requirement]:
    """What must hold of an evaluation."""
    evaluation = module.evaluation
    reads = len(module.agent_names) > 1 and module.team_settings.knowledge_transfer
    return [
        (
            evaluation.samples >= (0 if evaluation.greedy else 1),
            "model.evaluation.samples",
            evaluation.samples,
            "at least 1, or 0 with model.evaluation.greedy=true",
        ),
        (
            all(1 <= k <= max(1, evaluation.samples) for k in evaluation.pass_at),
            "model.evaluation.pass_at",
            list(evaluation.pass_at),
            f"from 1 to the {evaluation.samples} of model.evaluation.samples: n samples say nothing of more draws",
        ),
        (
            not evaluation.team or reads,
            "model.evaluation.team",
            evaluation.team,
            "false where no agent reads another's answer",
        ),
        (evaluation.stride >= 1, "model.evaluation.stride", evaluation.stride, "at least 1"),
        (0 <= evaluation.seed < 2**32, "model.evaluation.seed", evaluation.seed, "from 0 to 2^32 - 1"),
    ]


def team_requirements(module: CoryLightningModule) -> list[Requirement]:
    """What must hold of a team's pay."""
    team, agents = module.team_settings, len(module.agent_names)
    return [
        (team.cut_off_penalty >= 0, "model.team.cut_off_penalty", team.cut_off_penalty, "0 or above"),
        (
            (team.score == "weighted") == (team.weights is not None),
            "model.team.weights",
            team.weights,
            "given with team.score=weighted, and only then",
        ),
        (
            team.weights is None or [len(row) for row in team.weights] == [agents] * agents,
            "model.team.weights",
            team.weights,
            f"a row a role, each of {agents} numbers",
        ),
    ]


STRATEGIES = ("auto", "ddp", "sharded")
"""The trainer's strategies that train several agents, each by an optimizer of its own."""


def check_strategy(strategy: Any) -> None:
    """Check the trainer's strategy, given by name or as a class with its arguments.

    Raises:
        UserError: for one that knows one optimizer alone, or doesn't write checkpoints of what trains alone.
    """
    name = (strategy if isinstance(strategy, str) else strategy.class_path).rpartition(".")[2]
    if name not in (*STRATEGIES, "DDPStrategy", "ShardedBase") and not name.startswith("ddp_find_unused_parameters"):
        raise UserError(
            f"trainer.strategy={name}: can't train agents by an optimizer each; use ddp, or sharded where the base is "
            "too large for one device"
        )


def check_processes(module: CoryLightningModule, batch_size: int, processes: int, sharded: bool) -> None:
    """Check that a rollout can be dealt among the processes of a run.

    Raises:
        UserError: where one would have no query, or, with a sharded base, fewer than another.
    """
    if batch_size < processes:
        raise UserError(f"data.batch_size={batch_size}: must be at least the number of processes, {processes}")
    if not sharded or processes == 1:
        return
    policies, minibatch = module.policy_settings, module.update_settings.minibatch_size or batch_size
    for good, key, value, want in (
        (policies.policy == "shared_lora", "model.policy", policies.policy, "shared_lora"),
        (policies.quantization == "none", "model.quantization", policies.quantization, "none"),
        (batch_size % processes == 0, "data.batch_size", batch_size, f"a multiple of the {processes} processes"),
        (minibatch % processes == 0, "model.update.minibatch_size", minibatch, f"a multiple of {processes}"),
    ):
        if not good:
            raise UserError(f"{key}={value}: must be {want} with trainer.strategy=sharded")


def check_checkpoint(module: CoryLightningModule, checkpoint: Mapping[str, Any]) -> None:
    """Check that a checkpoint is of agents like the module's, before the base is loaded.

    Raises:
        UserError: for one that was not written here, or of other bases, adapters, quantization or number of agents.
    """
    saved = checkpoint.get("cory")
    if not isinstance(saved, dict):
        raise UserError("this checkpoint was not written by lit_cory; give --ckpt_path one from a run folder")
    if saved.get("format") != CHECKPOINT_FORMAT:
        raise UserError("this checkpoint was written by another version of lit_cory; use that version for it")
    check_structure(dict(checkpoint))
    if (agents := len(saved["bases"])) != len(module.agent_names):
        raise UserError(f"the checkpoint is of {agents} agents; set model.agents={agents}")
    if saved["bases"] != module.bases():
        theirs, own = (", ".join(bases) for bases in (saved["bases"], module.bases()))
        raise UserError(f"the checkpoint's agents start from {theirs}, not from model.base={own}; set it so")
    trained, now = saved["policies"], asdict(module.policy_settings)
    for key in ("policy", "quantization", "lora"):
        if trained.get(key) != now[key]:
            raise UserError(
                f"the checkpoint's agents were trained with model.{key}={trained.get(key)}, not {now[key]}; set it so"
            )


def check_with_data(module: CoryLightningModule, queries: Sequence[Query], batch_size: int) -> None:
    """Check that a rollout fills its minibatches, and that the last role's prompt leaves room for its answer.

    In a team of different bases the room is a lower bound: an answer may be more tokens to another tokenizer.

    Raises:
        UserError: for a minibatch larger than the rollout, or prompts that don't fit the model's positions.
    """
    minibatch = module.update_settings.minibatch_size
    rows = batch_size * module.algorithm.group_size
    if minibatch is not None and minibatch > rows:
        raise UserError(
            f"model.update.minibatch_size={minibatch} is larger than the rollout of {rows} responses "
            f"(data.batch_size={batch_size}); lower it, or leave it null for the whole rollout"
        )
    earlier = len(module.agent_names) - 1 if module.team_settings.knowledge_transfer else 0
    # Tokens grow with characters closely enough that the longest prompt is among the few longest texts.
    longest = sorted(queries, key=lambda query: len(query.text))[-8:]
    for base in dict.fromkeys(module.bases()):
        tokenizer, limit = load_tokenizer(base), max_positions(load_config(base))
        with task_call(module.task, "prompt"):
            asked = [module.task.prompt(query, [""] * earlier) for query in longest]
        prompts = [len(prompt_ids(tokenizer, prompt)) for prompt in asked]
        needed = max(prompts, default=0) + (earlier + 1) * module.response_tokens[1]
        if limit is not None and needed > limit:
            raise UserError(
                f"the last role may need {needed} tokens (prompt {max(prompts)}, {earlier + 1} answers of up to "
                f"{module.response_tokens[1]}), and {base} has {limit} positions; shorten the prompts (data), "
                "the answers (model.response_tokens) or the team (model.agents)"
            )
