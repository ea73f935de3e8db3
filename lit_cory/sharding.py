"""A base too large for one device: its blocks are dealt among all, FSDP2 (Zhao et al. 2023, arXiv 2304.11277)."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy, ParallelStrategy, StrategyRegistry
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def shard_blocks(lm: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Deal the frozen weights of every block of ``lm`` among the devices of ``mesh``, in place.

    What trains (adapters) is whole in each process, as are embeddings and output matrix. It is small, its gradients are
    added up by ``ranks.add_gradients`` whatever the strategy, and optimizer and checkpoints need not know of shards.
    """
    trained = {parameter for parameter in lm.parameters() if parameter.requires_grad}
    for module in lm.modules():
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh, ignored_params=trained)
    # So that ``generate`` goes on in all processes until the last one's answers have ended: each step is a collective.
    lm._is_fsdp_managed_module = True  # type: ignore[assignment]


class ShardedBase(ModelParallelStrategy):
    """Lightning's strategy for FSDP2 over all devices, with checkpoints of what trains, as other strategies write."""

    def setup_environment(self) -> None:
        """All processes share one base."""
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Optimizers hold plain tensors."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """What trains."""
        return ParallelStrategy.lightning_module_state_dict(self)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Take it back."""
        ParallelStrategy.load_model_state_dict(self, checkpoint, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """As it is."""
        return ParallelStrategy.optimizer_state(self, optimizer)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Take it back."""
        ParallelStrategy.load_optimizer_state_dict(self, checkpoint)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """One file, written by the first process."""
        ParallelStrategy.save_checkpoint(self, checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read that file."""
        return ParallelStrategy.load_checkpoint(self, checkpoint_path, weights_only)


StrategyRegistry.register("sharded", ShardedBase, description="one frozen base dealt among all devices (FSDP2)")
