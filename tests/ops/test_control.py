import pytest

from lit_cory.ops import adaptive_kl_coef


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (12.0, 0.201024),  # error 1, clipped to 0.2
        (6.6, 0.200512),  # error 0.1
        (6.0, 0.2),
        (5.4, 0.199488),
        (0.0, 0.198976),  # error -1, clipped to -0.2
        (-3.0, 0.198976),
        (float("inf"), 0.201024),
    ],
)
def test_by_hand(kl: float, expected: float) -> None:
    assert adaptive_kl_coef(0.2, kl, target=6, horizon=10_000, n=256) == pytest.approx(expected, rel=1e-12)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        adaptive_kl_coef(0.2, float("nan"), 6, 10_000, 256)
