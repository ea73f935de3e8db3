"""Where a run's files go. Nothing that another run left is ever overwritten."""

import itertools
from pathlib import Path

from lit_cory.errors import UserError


def make_run_folder(
    wanted: str | None, config: str | None, command: str = "fit", checkpoint: str | None = None
) -> Path:
    """Make the folder of a new run or evaluation.

    Args:
        wanted: the folder the user named; it must be new or empty, or, to resume a run, that of its checkpoint. An
            evaluation leaves the folder of its checkpoint's run alone: it stands in that run's saved configuration.
        config: path of the configuration file, which names the run where no folder was named: the first free of
            ``runs/NAME/0``, ``runs/NAME/1`` ...
        command: ``fit``, or the evaluation, whose folders are ``RUN/validate/0`` and so on beside a checkpoint of RUN,
            or ``runs/NAME/validate/0`` without one.
        checkpoint: to resume from, or that an evaluation is of; counts for none where its folder isn't ``checkpoints``.

    Raises:
        UserError: for a folder that can't be made or written, or that already holds something.
    """
    folder = None if checkpoint is None else Path(checkpoint).absolute().parent
    run = folder.parent if folder is not None and folder.name == "checkpoints" else None
    own = wanted is not None and Path(wanted).absolute() == run
    if command == "fit" and own:
        return Path(str(wanted))
    parent = Path("runs") / run_name(config)
    if command != "fit":
        wanted = None if own else wanted
        parent = (parent if run is None else run) / command
    try:
        return named(Path(wanted)) if wanted is not None else numbered(parent)
    except OSError as error:
        raise UserError(
            f"run_folder={wanted or parent}: can't be written ({error.strerror}); name another with --run_folder"
        ) from error


def named(folder: Path) -> Path:
    """Make exactly this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UserError(
            f"run_folder={folder}: already holds a run, and runs are never overwritten; name another, or leave "
            "run_folder out to get the next free one"
        )
    (folder / ".write").touch()
    (folder / ".write").unlink()
    return folder


def remove_if_empty(folder: Path) -> None:
    """Remove a numbered folder and those above it that were made for it, as far as nothing is in them."""
    for empty in (folder, folder.parent, folder.parent.parent):
        try:
            empty.rmdir()
        except OSError:
            return


def numbered(parent: Path) -> Path:
    """Make the first numbered folder that doesn't exist yet, also where several processes look for one at once."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def run_name(config: str | None) -> str:
    """``demo`` for ``configs/demo.yaml``; for the ``config.yaml`` saved in ``runs/demo/0``, ``demo`` too."""
    if config is None:
        return "default"
    path = Path(config).absolute()
    return path.parent.parent.name if path.name == "config.yaml" else path.stem


def last_config(run: Path) -> Path | None:
    """The configuration that a run, resumed or not, had last."""
    return max(run.glob("config*.yaml"), key=lambda path: path.stat().st_mtime, default=None)
