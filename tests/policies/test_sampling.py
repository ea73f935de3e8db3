import pytest
import torch

from lit_cory.policies.sampling import NonFiniteLogitsError, RefuseNonFinite, response_mask


def test_mask_ends_with_the_first_end_of_sequence_token_even_where_pad_is_the_same_id() -> None:
    tokens = torch.tensor([[5, 6, 0, 0, 0], [0, 0, 0, 0, 0], [5, 6, 7, 8, 9]])
    mask, ended = response_mask(tokens, torch.tensor([0]))
    assert mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert ended.tolist() == [True, True, False]


def test_either_of_two_end_of_sequence_ids_ends_an_answer() -> None:
    mask, ended = response_mask(torch.tensor([[5, 3, 4, 4], [5, 4, 3, 3]]), torch.tensor([3, 4]))
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert ended.tolist() == [True, True]


def test_non_finite_logits_are_refused_with_the_row() -> None:
    scores = torch.zeros(3, 4)
    assert RefuseNonFinite()(torch.zeros(3, 1).long(), scores) is scores
    scores[2, 1] = float("nan")
    with pytest.raises(NonFiniteLogitsError, match="prompt 2 of the batch"):
        RefuseNonFinite()(torch.zeros(3, 1).long(), scores)
