"""Freed memory goes back to the system: measured in a process of its own, where nothing else frees any."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc and /proc")

SCRIPT = """
import sys
from pathlib import Path
import torch
from lit_cory.memory import release_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

large = torch.ones(2**22)  # freeing 16 MB makes glibc put everything smaller into the heap
del large
before = resident()
held = []
for _ in range(200):
    big = torch.ones(2**18)  # 1 MB
    held.append((big, torch.ones(2**10)))  # with a small one behind it
held = [small for _, small in held]
del big
if sys.argv[1] == "on":
    assert release_freed_memory()
print(resident() - before)
"""


def kept(setting: str) -> int:
    """MB that stay with the process after 200 MB were freed."""
    result = subprocess.run([sys.executable, "-c", SCRIPT, setting], capture_output=True, text=True, check=True)
    return int(result.stdout)


def test_freed_memory_goes_back_to_the_system() -> None:
    assert kept("off") > 100  # else this test shows nothing
    assert kept("on") < 20
