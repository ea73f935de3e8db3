"""`make torture`: runs that are killed again and again, at random moments, equal the unbroken one in the end."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.processes import Toll, harried, start, wait
from tests.test_cli import place
from tests.test_resume import assert_equal_runs, options

__all__ = ["place"]

pytestmark = [pytest.mark.torture, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("LIT_CORY_KILLS", "30"))


@pytest.mark.parametrize("kind", ["kill -9", "SIGTERM and SIGINT"])
def test_a_run_that_is_ended_at_random_moments_again_and_again(kind: str, place: Path, gpt2_base: Path) -> None:
    given = options(gpt2_base, model__rollouts=12, exchange__every_n_rollouts=1)
    started = time.monotonic()
    assert wait(start(["fit", *given, f"--run_folder={place / 'whole'}"], place / "whole.log")) == 0
    seconds = time.monotonic() - started
    tolls: list[Toll] = []
    number = 0
    while (sent := sum(toll.sent for toll in tolls)) < KILLS:
        several = [signal.SIGKILL] if kind == "kill -9" else [signal.SIGTERM, signal.SIGINT]
        signals = [int(several[i % len(several)]) for i in range(min(6, KILLS - sent))]
        run = place / f"run{number}"
        tolls.append(harried(given, run, signals, 1.2 * seconds, number))
        assert_equal_runs(place / "whole", run)
        number += 1
    lost = [each for toll in tolls for each in toll.lost]
    codes = sorted({code for toll in tolls for code in toll.codes})
    print(
        f"\n{kind}: {sent} hits on {number} runs of {seconds:.1f} s, each equal to the unbroken one in the end; exit "
        f"statuses {codes}; work lost a hit: mean {sum(lost) / len(lost):.2f} s, most {max(lost):.2f} s"
    )
