import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lit_cory.ops import merge_moments


def test_by_hand() -> None:
    # 1, 3: mean 2, squares 2. With 8: mean 4, squares 9 + 1 + 16.
    assert merge_moments(0, 0.0, 0.0, torch.tensor([1.0, 3.0])) == (2, 2.0, 2.0)
    assert merge_moments(2, 2.0, 2.0, torch.tensor([8.0])) == (3, 4.0, 26.0)


def test_nothing_new_changes_nothing() -> None:
    assert merge_moments(3, 4.0, 26.0, torch.zeros(0)) == (3, 4.0, 26.0)
    assert merge_moments(0, 0.0, 0.0, torch.zeros(0)) == (0, 0.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 7), min_size=1, max_size=6), st.sampled_from([0.0, 1e6]))
def test_parts_agree_with_the_whole(seed: int, sizes: list[int], offset: float) -> None:
    g = torch.Generator().manual_seed(seed)
    parts = [offset + torch.randn(n, generator=g, dtype=torch.float64) for n in [*sizes, 2]]
    moments = (0, 0.0, 0.0)
    for part in parts:
        moments = merge_moments(*moments, part)
    whole = torch.cat(parts).numpy()
    assert moments[0] == len(whole)
    assert moments[1] == pytest.approx(whole.mean(), rel=1e-12, abs=1e-12)
    assert moments[2] / (moments[0] - 1) == pytest.approx(np.var(whole, ddof=1), rel=1e-8)


def test_float32_scores_are_summed_in_double() -> None:
    # 2^24 + 1 has no float32, nor has half of it.
    moments = merge_moments(0, 0.0, 0.0, torch.tensor([2.0**24, 1.0]))
    assert moments == (2, 8388608.5, 2 * 8388607.5**2)
