"""What a run cost, and by which software it was made."""

import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning as L

from lit_cory.commands.bench import peak_megabytes

LIBRARIES = ("torch", "transformers", "peft", "lightning")
"""Those whose versions a run's numbers may depend on."""


class RunCost(L.Callback):
    """Wall seconds and peak memory of a run; of a resumed one, of all its parts, each up to its last checkpoint."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.revision = revision()  # now: the code may change while the run goes on
        self.earlier: dict[str, Any] = {"seconds": 0.0, "peak_mb": {}}

    def state_dict(self) -> dict[str, Any]:
        """The cost so far: ``seconds``, and ``peak_mb`` of the process and of the GPU where there is one."""
        now, before = peak_megabytes(), self.earlier["peak_mb"]
        return {
            "seconds": self.earlier["seconds"] + time.monotonic() - self.start,
            "peak_mb": {name: max(size, before.get(name, 0)) for name, size in now.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the cost of the parts before."""
        self.earlier = state_dict

    def facts(self) -> dict[str, Any]:
        """The cost, with ``revision`` of the code and ``versions`` of what computes."""
        return self.state_dict() | {"revision": self.revision, "versions": versions()}


def revision() -> str | None:
    """The Git commit of lit_cory's code, with ``-dirty`` where it was changed since; None where it is not in Git."""
    package = Path(__file__).resolve().parents[1]
    git = ["git", "--no-optional-locks", "-C", str(package)]
    try:
        # A copy among a virtual environment's packages may lie inside a repository of something else.
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], check=True, capture_output=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def versions() -> str:
    """Python's and the libraries', in one line."""
    return " ".join([f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])
