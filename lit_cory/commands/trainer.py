"""Lightning's trainer with the commands as methods, as the command line makes a subcommand of each."""

from pathlib import Path

import lightning as L

from lit_cory.commands import bench, export, front, generate
from lit_cory.data import QueryDataModule
from lit_cory.errors import UserError
from lit_cory.module import CoryLightningModule


class CoryTrainer(L.Trainer):
    """Lightning's trainer, and what else the command line can do with a module and its data."""

    def bench(
        self, model: CoryLightningModule, datamodule: QueryDataModule, repeat: int = 5, json: str | None = None
    ) -> None:
        """Measure seconds per rollout by phase, and peak memory.

        Args:
            model: the module.
            datamodule: its data.
            repeat: rollouts to measure, after one that warms up.
            json: a file to write the figures to.

        Raises:
            UserError: where several processes are asked for.
        """
        if self.world_size > 1:
            raise UserError("bench measures one process: add --trainer.devices 1 --trainer.num_nodes 1")
        bench.report(bench.bench(model, datamodule, repeat), json)

    def export(
        self,
        model: CoryLightningModule,
        datamodule: QueryDataModule,
        to: str,
        ckpt_path: str | None = None,
        agent: str = "agent_0",
        merge: bool = False,
        scale: float = 1.0,
        dtype: export.DType = "float32",
    ) -> None:
        """Write an agent of a checkpoint as a folder that plain transformers and peft load.

        Args:
            model: the module.
            datamodule: not needed.
            to: where to write, a new or empty folder.
            ckpt_path: the checkpoint; its run's configuration is used where no other is given.
            agent: the name of one (agent_0, agent_1 ...), or merged: the mean of all agents' deltas.
            merge: write a whole model instead of an adapter.
            scale: what is learnt is multiplied by this.
            dtype: of a whole model.
        """
        del datamodule
        written = export.export(model, needed(ckpt_path), to, self.strategy.root_device, agent, merge, scale, dtype)
        export.report(written, to, model.policy_settings.policy == "full")

    def generate(
        self,
        model: CoryLightningModule,
        datamodule: QueryDataModule,
        ckpt_path: str | None = None,
        agent: str | None = None,
        prompt: str | None = None,
        file: str | None = None,
        out: str | None = None,
        greedy: bool = False,
        seed: int = 0,
        new_tokens: int | None = None,
    ) -> None:
        """Let the agents of a checkpoint answer a prompt, the lines of a file, or what is typed.

        Args:
            model: the module.
            datamodule: not needed.
            ckpt_path: the checkpoint; its run's configuration is used where no other is given.
            agent: one that answers alone; left out, the team answers.
            prompt: what to answer; without prompt and file, the lines of the standard input.
            file: a text file, one prompt a line.
            out: a new JSONL file for prompts and answers.
            greedy: take the likeliest token each time instead of sampling.
            seed: of the sampling.
            new_tokens: limit of an answer; left out, the highest of model.response_tokens.
        """
        del datamodule
        device = self.strategy.root_device
        generate.generate(model, needed(ckpt_path), device, agent, prompt, file, out, greedy, seed, new_tokens)

    def front(
        self,
        model: CoryLightningModule,
        datamodule: QueryDataModule,
        ckpt_path: str | None = None,
        scales: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3),
    ) -> None:
        """Trade score against KL without training: evaluate the agents of a checkpoint at scales of what they learnt.

        Args:
            model: the module.
            datamodule: its held-out queries are asked.
            ckpt_path: the checkpoint; its run's configuration is used where no other is given.
            scales: what is learnt is multiplied by each; 0 is the reference, 1 the agent.
        """
        front.front(
            model, datamodule, needed(ckpt_path), self.strategy.root_device, scales, Path(self.default_root_dir)
        )


def needed(ckpt_path: str | None) -> str:
    """The checkpoint of a subcommand that is about one."""
    if ckpt_path is None:
        raise UserError("--ckpt_path is missing; name a checkpoint below a run folder")
    return ckpt_path
