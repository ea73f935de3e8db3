"""Where a rollout's seconds go: named phases, measured where they happen and added up by whoever listens."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stopwatch:
    """Seconds by phase since the last :meth:`lap`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def lap(self) -> dict[str, float]:
        """Seconds by phase so far; starts again from zero."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds


_listening: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


@contextmanager
def listen(stopwatch: Stopwatch) -> Iterator[None]:
    """Add the phases run inside the block to ``stopwatch``."""
    token = _listening.set(stopwatch)
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what runs inside the block. Each is measured whole, with what is named inside it."""
    stopwatch = _listening.get()
    start = time.perf_counter()
    try:
        yield
    finally:
        if stopwatch is not None:
            stopwatch.seconds[name] += time.perf_counter() - start
