"""REINFORCE with a learnt baseline."""

from lit_cory.algorithms.ppo import PPO


class REINFORCE(PPO):
    """Williams 1992 (Machine Learning 8): the return from a token on, less the critic's value there, and no clip.

    It is PPO without its limits, and with advantages that trust rewards alone (lambda 1).

    Args:
        value_coef: weight of the value loss.
        gamma: discount per token.
    """

    def __init__(self, value_coef: float = 0.1, gamma: float = 1.0) -> None:
        super().__init__(clip=float("inf"), value_clip=None, value_coef=value_coef, gamma=gamma, lam=1.0)
