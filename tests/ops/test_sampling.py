"""Drawing tokens: the inverse of the distribution function, by hand."""

import pytest
import torch

from lit_cory import ops


def test_the_token_drawn_is_where_the_cumulative_probability_first_exceeds_the_number() -> None:
    """Probabilities 1/8, 1/4, 0, 5/8: the sums 1/8, 3/8, 3/8, 1 are exact."""
    logits = torch.tensor([0.125, 0.25, 0.0, 0.625], dtype=torch.float64).log()
    numbers = torch.tensor([0.0, 0.12499, 0.12501, 0.37499, 0.37501, 1 - 2**-53], dtype=torch.float64)
    assert ops.draw(logits.expand(6, 4), numbers).tolist() == [0, 0, 1, 1, 3, 3]


def test_rows_are_drawn_each_by_its_own_number() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0], [-torch.inf, 5.0, -torch.inf]])
    assert ops.draw(logits, torch.tensor([0.6, 0.0])).tolist() == [2, 1]
    assert ops.draw(logits.bfloat16(), torch.tensor([0.4, 0.99])).tolist() == [0, 1]


def test_no_token_of_a_large_vocabulary_is_lost() -> None:
    """1,000,003 equal ones: the middle of a token's share draws it, which sums in float32 would miss."""
    tokens = torch.tensor([0, 1, 333_333, 700_001, 1_000_001, 1_000_002])
    numbers = (tokens.double() + 0.5) / 1_000_003
    assert torch.equal(ops.draw(torch.zeros(6, 1_000_003), numbers), tokens)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="a number a row"):
        ops.draw(torch.zeros(2, 3), torch.zeros(3))
