"""How rollouts become losses."""

from lit_cory.algorithms.base import Algorithm
from lit_cory.algorithms.grpo import GRPO
from lit_cory.algorithms.ppo import PPO
from lit_cory.algorithms.reinforce import REINFORCE
from lit_cory.algorithms.rloo import RLOO

__all__ = ["GRPO", "PPO", "REINFORCE", "RLOO", "Algorithm"]
