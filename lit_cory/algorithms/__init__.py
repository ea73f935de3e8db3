"""How rollouts become losses."""

from lit_cory.algorithms.base import Algorithm
from lit_cory.algorithms.ppo import PPO

__all__ = ["PPO", "Algorithm"]
