import pytest
import torch

from lit_cory.kl_control import KLController, KLSettings, ScoreScaler


def test_adaptive_weight_of_the_worked_example() -> None:
    """0.2, target 6, horizon 10,000, 256 responses, KL 12: error 1 is clipped to 0.2; 0.2 * (1 + 0.2 * 0.0256)."""
    controller = KLController(KLSettings(coef=0.2, adaptive=True, target=6, horizon=10_000))
    controller.update(12.0, 256)
    assert controller.coef == pytest.approx(0.201024, abs=1e-12)
    other = KLController(controller.settings)
    other.load_state_dict(controller.state_dict())
    assert other.coef == controller.coef


def test_fixed_weight_stays() -> None:
    controller = KLController(KLSettings(coef=0.2))
    controller.update(100.0, 256)
    assert controller.coef == 0.2


def test_scores_are_scaled_by_the_moments_of_all_seen_so_far() -> None:
    """1, 3 then 5, 7: mean 4, sum of squares 9 + 1 + 1 + 9 = 20, deviation (20 / 3) ** 0.5."""
    for scaling, centre in (("normalize", 4.0), ("scale", 0.0)):
        scaler = ScoreScaler(scaling)  # type: ignore[arg-type]
        first = scaler(torch.tensor([1.0, 3.0]))
        spread = 2**0.5
        mean = 2.0 if scaling == "normalize" else 0.0
        assert first.tolist() == pytest.approx([(1 - mean) / spread, (3 - mean) / spread], abs=1e-6)
        second = scaler(torch.tensor([5.0, 7.0]))
        deviation = (20 / 3) ** 0.5
        assert second.tolist() == pytest.approx([(5 - centre) / deviation, (7 - centre) / deviation], abs=1e-6)
        again = ScoreScaler(scaling)  # type: ignore[arg-type]
        again.load_state_dict(scaler.state_dict())
        assert torch.equal(again(torch.tensor([2.0])), scaler(torch.tensor([2.0])))


def test_equal_scores_and_no_scaling_change_nothing() -> None:
    same = torch.tensor([3.0, 3.0])
    assert ScoreScaler("scale")(same).tolist() == [3.0, 3.0]
    assert ScoreScaler("normalize")(same).tolist() == [0.0, 0.0]
    assert ScoreScaler("none")(same) is same
