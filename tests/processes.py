"""The command line in processes of its own, forked so that none has to import everything again, to be killed."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import lit_cory.cli  # noqa: F401 - here, so that no process has to
from lit_cory.__main__ import main


def start(args: list[str], log: Path) -> int:
    """Run ``main(args)`` in a forked process, its output appended to ``log``; returns its id."""
    child = os.fork()
    if child:
        return child
    status = 70
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)  # those of the parent are not there after the fork, and would be waited for
    try:
        with log.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        status = main(args)
    finally:
        os._exit(status)
    raise AssertionError("unreachable")


def ended(child: int) -> int | None:
    """The status of a process, negative for the signal that killed it; None while it runs."""
    done, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def wait(child: int, seconds: float = 600) -> int:
    """Wait for a process and return its status; one that takes too long is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (status := ended(child)) is not None:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def not_left_behind(child: int) -> Iterator[int]:
    """Kill the process where the block fails."""
    try:
        yield child
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


KILLED = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass
class Toll:
    """What a run suffered.

    Attributes:
        sent: signals that hit the run while it was going.
        codes: how the processes that they hit ended.
        lost: seconds of work since the last checkpoint, for each hit after the first checkpoint.
        resumed: seconds from each start to the first checkpoint after it, or to its end.
    """

    sent: int
    codes: list[int]
    lost: list[float]
    resumed: list[float]


def harried(args: list[str], run: Path, signals: list[int], within: float, seed: int) -> Toll:
    """Start a run and end it by a signal at a random moment, resume it and end it again, until it comes to its end.

    Args:
        args: options of the run, less its folder.
        run: its folder.
        signals: each sent once at most; once they are used up, the run is left to come to its end.
        within: seconds from which the moments are drawn, counted from the start of each process.
        seed: of the moments.
    """
    moments, toll, left = random.Random(seed), Toll(0, [], [], []), list(signals)
    last, log = run / "checkpoints" / "last.ckpt", run.with_suffix(".log")
    attempt = 0
    while True:
        if not last.is_file():  # killed before anything was saved: begun again, in an empty folder
            if run.exists():
                run.rename(run.with_name(f"{run.name}-{attempt}"))
            given = ["fit", *args, f"--run_folder={run}"]
        else:
            given = ["fit", "--resume", str(run)]
        attempt += 1
        started, before = time.time(), saved_at(last)
        with not_left_behind(start(given, log)) as child:
            deadline = started + moments.uniform(0, within)
            status = None
            while left and time.time() < deadline and (status := ended(child)) is None:
                time.sleep(0.005)
            if left and status is None:
                os.kill(child, left.pop())
                toll.sent += 1
                if saved_at(last):
                    toll.lost.append(time.time() - max(saved_at(last), started))
            if status is None:
                status = wait(child)
        if saved_at(last) > before:
            toll.resumed.append(saved_at(last) - started)
        toll.codes.append(status)
        if status == 0:
            return toll
        assert -status in KILLED or status - 128 in KILLED, f"status {status}: {log.read_text()}"


def saved_at(path: Path) -> float:
    """When a file was written last; 0 for none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
