"""The LightningModule: owns agents, reference and value heads; its training step reads as the algorithm."""

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import lightning as L
import torch
from jsonargparse import lazy_instance  # type: ignore[attr-defined]
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import get_scheduler

from lit_cory import ranks, saved_state
from lit_cory.algorithms import PPO, Algorithm
from lit_cory.data import QueryDataModule
from lit_cory.errors import UserError
from lit_cory.evaluation import EvaluationSettings, Evaluator, Tables, joined, means
from lit_cory.guards import located
from lit_cory.kl_control import KLSettings, ScoreScaling
from lit_cory.policies import LoraSettings, Policy, PolicySettings, build_policies
from lit_cory.policies.quantization import Quantization
from lit_cory.preflight import check_settings, check_with_data
from lit_cory.rollout_stats import OF_AGENT_ALONE, rollout_scalars
from lit_cory.sharding import shard_blocks
from lit_cory.tasks import SentimentTask, Task
from lit_cory.team import Team, TeamSettings, role_name
from lit_cory.timing import Stopwatch, listen, phase
from lit_cory.types import Query
from lit_cory.update import AgentUpdate, UpdateSettings


class CoryLightningModule(L.LightningModule):
    """CORY with N agents; with one agent it is PPO.

    A training batch is one rollout: a batch of queries goes through the whole team, then each agent is updated. Manual
    optimization, one optimizer an agent, in the order of the agents' names.

    Args:
        base: the model that every agent starts from: hub id, local folder, bundled:smollm2-135m or
            bundled:gemma3-270m. Or a list of them, one an agent: a team of different models, between which text passes.
        rollouts: length of the run.
        agents: how many agents; 1 is single-agent PPO, 2 is CORY.
        policy: shared_lora: adapters on one frozen base; full: a full copy of the base each, as in the original.
        dtype: of the frozen base; auto takes bfloat16 where the machine computes it natively, else float32. What is
            trained is float32 always.
        quantization: of the frozen base of shared_lora, through bitsandbytes: nf4 (4 bits a weight) or int8.
        lora: the adapters of shared_lora.
        gradient_checkpointing: keep less for the backward pass and compute it again: much less memory, a slower update.
        temperature: of the policies, in sampling and scoring alike.
        response_tokens: lowest and highest limit of new tokens, drawn uniformly each rollout, both ends included.
        task: what agents are asked and paid for.
        team: what an agent is paid of the others' scores, and whether it reads their answers.
        algorithm: advantages and loss.
        kl: how an agent pays for its drift from the reference.
        score_scaling: of the team score by running moments before it enters the rewards: none, scale (by the
            deviation), or normalize (subtract the mean as well).
        update: epochs, minibatches, clipping, early stop.
        lr: Adam's learning rate.
        lr_schedule: over the rollouts of the run.
        warmup_rollouts: rollouts over which the learning rate rises from 0.
        combined_kl_coef: weight of the KL in the combined reward that is logged; keep it equal in runs to be compared.
        evaluation: how agents are asked on held-out queries.
    """

    def __init__(
        self,
        base: list[str] | str = "bundled:smollm2-135m",
        rollouts: int = 100,
        agents: int = 2,
        policy: Literal["shared_lora", "full"] = "shared_lora",
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        quantization: Quantization = "none",
        lora: LoraSettings = LoraSettings(),
        gradient_checkpointing: bool = False,
        temperature: float = 1.0,
        response_tokens: tuple[int, int] = (4, 16),
        task: Task = lazy_instance(SentimentTask, reward="vader"),
        team: TeamSettings = TeamSettings(),
        algorithm: Algorithm = lazy_instance(PPO),
        kl: KLSettings = KLSettings(),
        score_scaling: ScoreScaling = "none",
        update: UpdateSettings = UpdateSettings(),
        lr: float = 1e-4,
        lr_schedule: Literal["constant", "linear", "cosine"] = "constant",
        warmup_rollouts: int = 0,
        combined_kl_coef: float = 0.05,
        evaluation: EvaluationSettings = EvaluationSettings(),
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.base, self.rollouts, self.response_tokens = base, rollouts, response_tokens
        self.policy_settings = PolicySettings(policy, dtype, quantization, lora, temperature, gradient_checkpointing)
        self.task, self.team_settings, self.algorithm, self.kl = task, team, algorithm, kl
        self.score_scaling, self.update_settings = score_scaling, update
        self.lr, self.lr_schedule, self.warmup_rollouts = lr, lr_schedule, warmup_rollouts
        self.combined_kl_coef, self.evaluation = combined_kl_coef, evaluation
        self.agent_names = [f"agent_{i}" for i in range(agents)]
        self.rollouts_done = 0
        self.scalars: dict[str, float] = {}
        self.stopwatch = Stopwatch()
        self.policies = nn.ModuleList()
        self.before: Tables = {}
        self.before_texts: list[str] = []
        self.held_out: Tables = {}
        self.held_out_queries: list[Query] = []
        self.held_out_at: int | None = None
        check_settings(self)

    # Set-up: settings are checked above, the data when it is there, and only then is the base loaded.

    def setup(self, stage: str) -> None:
        """Check what needs data and settings together, before the base is loaded."""
        del stage
        datamodule = getattr(self.trainer, "datamodule", None)
        if isinstance(datamodule, QueryDataModule):
            self.check_data(datamodule)

    def check_data(self, datamodule: QueryDataModule) -> None:
        """Raise a UserError where minibatches or positions don't suit the data, which must be set up."""
        check_with_data(self, datamodule.queries, datamodule.batch_size)

    def configure_model(self) -> None:
        """Load the base, make the agents and the team; does nothing the second time."""
        if self.policies:
            return
        # The trainer moves the module to its device after this, too late for the choice of dtype and for the task.
        device = self.device if self._trainer is None else self.trainer.strategy.root_device
        self.build_agents(device)
        if self._device_mesh is not None:  # the trainer's strategy shards
            for lm in dict.fromkeys(agent.lm for agent in self.agents()):
                shard_blocks(lm, self._device_mesh["data_parallel"])
        self.task.prepare(device)

    def build_agents(self, device: torch.device) -> None:
        """The agents and the team on ``device``, without what only scoring needs."""
        self.policies.extend(build_policies(self.bases(), self.agent_names, self.policy_settings, device))
        self.team = Team(self.agents(), self.task, self.team_settings, self.response_tokens)
        self.updates = [
            AgentUpdate(agent, self.algorithm, self.update_settings, self.kl, self.score_scaling)
            for agent in self.agents()
        ]

    def bases(self) -> list[str]:
        """The base of each agent."""
        return [self.base] * len(self.agent_names) if isinstance(self.base, str) else self.base

    def agents(self) -> list[Policy]:
        """The agents by index."""
        return [policy for policy in self.policies if isinstance(policy, Policy)]

    def configure_optimizers(self) -> tuple[list[Optimizer], list[Any]]:
        """One Adam and one schedule an agent, in the order of the agents' names."""
        optimizers: list[Optimizer] = [
            torch.optim.Adam(list(agent.trainable().values()), lr=self.lr) for agent in self.agents()
        ]
        schedules = [
            get_scheduler(self.lr_schedule, o, num_warmup_steps=self.warmup_rollouts, num_training_steps=self.rollouts)
            for o in optimizers
        ]
        return optimizers, schedules

    # Training.

    def on_train_start(self) -> None:
        """Begin at the learning rate of the present schedule, also where a resumed run had another."""
        for schedule in as_list(self.lr_schedulers()):
            factors = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
            for group, base, factor in factors:
                group["lr"] = base * factor(schedule.last_epoch)

    def training_step(self, queries: list[Query], batch_idx: int) -> None:
        """One rollout: the team answers, each agent learns from its own answers."""
        del batch_idx
        optimizers = as_list(self.optimizers())
        scalars: dict[str, float] = {}
        queries = [query for query in ranks.share(queries) for _ in range(self.algorithm.group_size)]
        with listen(self.stopwatch), phase("rollout"), self.unsynchronised():
            with located(f"rollout {self.rollouts_done + 1}"):
                rollouts = self.team.rollout(queries)
            for rollout in rollouts:
                update, name = self.updates[rollout.agent], self.agent_names[rollout.agent]
                stats = update.run(rollout, optimizers[rollout.agent], self.manual_backward)
                self.mind_skipped(name, update, stats.skipped)
                own = rollout_scalars(rollout, self.combined_kl_coef, stats)
                scalars |= {f"train/{name}/{key}": value for key, value in own.items()}
                if len(self.agent_names) > 1:
                    of_role = {key: value for key, value in own.items() if key not in OF_AGENT_ALONE}
                    scalars |= {f"train/{role_name(rollout.role)}/{key}": value for key, value in of_role.items()}
        for schedule in as_list(self.lr_schedulers()):
            schedule.step()
        self.rollouts_done += 1
        self.scalars = scalars
        self.record(scalars | {f"time/{name}": seconds for name, seconds in self.stopwatch.lap().items()})

    def unsynchronised(self) -> AbstractContextManager[None]:
        """Keep DDP from averaging gradients in each backward pass; an update adds them up once, weighted by tokens."""
        strategy = self.trainer.strategy
        return strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) else nullcontext()

    def mind_skipped(self, name: str, update: AgentUpdate, skipped: str | None) -> None:
        """Warn of a skipped update; stop the run after too many in a row."""
        if skipped is None:
            return
        number = self.rollouts_done + 1
        warnings.warn(f"{name}, rollout {number}: update skipped ({skipped})", stacklevel=2)
        if update.skipped_in_a_row >= self.update_settings.max_skipped:
            raise UserError(
                f"{name}: {update.skipped_in_a_row} updates in a row were skipped, the last at rollout {number} "
                f"({skipped}); lower model.lr, or look at what the task scores"
            )

    def record(self, scalars: Mapping[str, float]) -> None:
        """Write scalars at the present number of rollouts, and show the chief ones on the progress bar."""
        if self.logger is not None:
            self.logger.log_metrics(dict(scalars), step=self.rollouts_done)
        shown = {
            f"{name} {key}": scalars[f"train/{name}/{full}"]
            for name in self.agent_names
            for key, full in (("score", "score"), ("KL", "ref_kl"))
            if f"train/{name}/{full}" in scalars
        }
        self.log_dict(shown, prog_bar=True, logger=False, batch_size=1)

    # Held-out evaluation.

    def on_validation_epoch_start(self) -> None:
        """Start the held-out tables anew."""
        self._batches: list[Tables] = []
        self.held_out_queries = []

    def validation_step(self, queries: list[Query], batch_idx: int) -> None:
        """The agents answer the batch, from the evaluation's own random streams."""
        # Before the first rollout, agents of the same base are equal.
        bases = self.bases()
        twins = [bases.index(base) if self.rollouts_done == 0 else agent for agent, base in enumerate(bases)]
        evaluator = Evaluator(self.team, self.evaluation, self.combined_kl_coef)
        queries = queries[:: self.stride()]
        with located(f"held-out evaluation after {self.rollouts_done} rollouts"):
            self._batches.append(evaluator.run_shared(queries, batch_idx, twins))
        self.held_out_queries += queries

    def stride(self) -> int:
        """Every how many-th held-out query is asked: each at the start and the end, fewer along the way."""
        along = self.trainer.state.fn == TrainerFn.FITTING and 0 < self.rollouts_done < self.rollouts
        return self.evaluation.stride if along else 1

    def on_validation_epoch_end(self) -> None:
        """Put the batches together, and log the means."""
        self.held_out = joined(self._batches)
        self.held_out_at = self.rollouts_done if self.stride() == 1 else None
        if self.trainer.sanity_checking and self.rollouts_done == 0:
            self.before, self.before_texts = self.held_out, [query.text for query in self.held_out_queries]
        if self.logger is not None:
            scalars = {f"val/{name}": value for name, value in means(self.held_out).items()}
            self.logger.log_metrics(scalars, step=self.rollouts_done)

    test_step = validation_step
    on_test_epoch_start = on_validation_epoch_start
    on_test_epoch_end = on_validation_epoch_end

    # Checkpoints: only what trains, and what a resumed run needs besides.

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What the agents train, by agent and name; the frozen base is left out."""
        del args, kwargs
        return {f"{a.name}.{name}": p.detach() for a in self.agents() for name, p in a.trainable().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> None:  # type: ignore[override]
        """Copy saved weights into the agents.

        Raises:
            UserError: where names or shapes differ from this model's; nothing is loaded then.
        """
        del strict, assign
        saved_state.copy_weights(self.state_dict(), state_dict)

    def start(self) -> Tables:
        """What the agents answered before training; empty where it was to other queries than the last evaluation's."""
        return self.before if self.before_texts == [query.text for query in self.held_out_queries] else {}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of controllers, roles and the held-out tables from before training."""
        saved_state.add(self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take back what :meth:`on_save_checkpoint` saved; a learning rate that was changed since then holds."""
        saved_state.take_back(self, checkpoint)


def as_list(one_or_many: Any) -> list[Any]:
    """Lightning returns a single optimizer or scheduler bare, several as a list, none as None."""
    if one_or_many is None:
        return []
    return list(one_or_many) if isinstance(one_or_many, list | tuple) else [one_or_many]
