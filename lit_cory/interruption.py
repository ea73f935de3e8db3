"""SIGINT (Ctrl-C) and SIGTERM for everything outside a rollout: end at once, with a status that says so."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lit_cory.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Raise :class:`Interrupted`, wherever the program is."""
    del frame
    raise Interrupted(number)


@contextmanager
def signals_end_at_once() -> Iterator[None]:
    """Handle both signals inside the block by :func:`end_at_once`; only a process's main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end_at_once) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
