"""The critic of one agent: a line from its hidden states to the expected return."""

from torch import Tensor, nn


class ValueHead(nn.Module):
    """Linear map from a hidden state to a value, in fp32 whatever the base's dtype.

    It starts at zero, so that the first advantages are the rewards themselves and not the noise of a random critic.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., H] of any dtype -> values [...] fp32."""
        values: Tensor = self.linear(hidden.float()).squeeze(-1)
        return values
