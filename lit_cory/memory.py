"""Hand freed memory back: what the C library keeps of it is as large as a rollout's activations."""

import ctypes
import sys


def release_freed_memory() -> bool:
    """Give freed memory back to the system, wherever in the heap it lies.

    A pass leaves hundreds of blocks of a megabyte. In the heap they lie between smaller ones that live on, and the next
    rollout, if it is wider, doesn't fit the gaps and takes new memory beside them. (To take again what was given back
    costs a seventh of a rollout's time; to keep large blocks out of the heap altogether, half of the speed.)

    Returns:
        whether there was any to give; only glibc can.
    """
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    trim = getattr(libc, "malloc_trim", None)
    return trim is not None and trim(0) == 1
