"""`make torture`: 2,000 rollouts leave memory flat, and the run folder small."""

import os
import time
from pathlib import Path

import pytest

from tests.endurance import draw, endure, growth
from tests.test_cli import place

__all__ = ["place"]

pytestmark = [pytest.mark.torture, pytest.mark.timeout(14400)]

ROLLOUTS = int(os.environ.get("LIT_CORY_ROLLOUTS", "2000"))


def test_memory_stays_flat(place: Path, gpt2_base: Path) -> None:
    started = time.monotonic()
    samples, event_bytes = endure(gpt2_base, place / "run", ROLLOUTS)
    picture = draw(samples, Path(__file__).parents[2] / "build" / "torture" / "rss.png")
    early, late = growth(samples)
    print(
        f"\n{ROLLOUTS} rollouts in {time.monotonic() - started:.0f} s: memory {early:.0f} MB in the second fifth, "
        f"{late:.0f} MB in the last ({picture}); event files {event_bytes / ROLLOUTS:.0f} bytes a rollout"
    )
    assert late < 1.03 * early + 5
    assert event_bytes / ROLLOUTS < 6000
