"""Files of checkpoints: the former one stays until the new one is safe, and reading one runs no code."""

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import torch
from torch import Tensor

from lit_cory.errors import UserError

PART = ".part"
"""Name of a file that is being written. It is always the same, so that what a killed run left is written over."""


class SaveError(Exception):
    """A file could not be written, and what was there before is untouched; says the path and the space."""


def write_checkpoint(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint of tensors and plain values.

    Raises:
        SaveError: see :func:`replace_file`.
    """
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors(checkpoint))
    # Its pickle and the heads of its tensors are a few hundred bytes a tensor.
    replace_file(path, lambda file: torch.save(checkpoint, file), needed + needed // 50 + 2**18)


def replace_file(path: Path, write: Callable[[IO[bytes]], object], needed: int) -> None:
    """Write a file under another name beside ``path``, flush it to the disk, and only then give it its name.

    Args:
        path: the file; its folder is made.
        write: writes the content.
        needed: bytes that this takes.

    Raises:
        SaveError: where there is not enough space, or the writing fails; the file is then as it was.
    """
    part = path.with_name(PART)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(path.parent).free) < needed:
            raise SaveError(f"{path}: {megabytes(needed)} are needed and {megabytes(free)} are free there")
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch's writer tells of a full disk by a RuntimeError
        free = shutil.disk_usage(existing_parent(path)).free
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise SaveError(f"{path}: can't be written ({why}; {megabytes(free)} are free there)") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names, without which a renamed file may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def existing_parent(path: Path) -> Path:
    """The nearest folder above ``path`` that exists."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def megabytes(size: int) -> str:
    """A size in bytes, to be read."""
    return f"{size / 2**20:.1f} MB"


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """What a checkpoint holds: tensors and plain values, never code, and no more than the file has bytes.

    Raises:
        UserError: for a file that can't be read so.
    """
    try:
        size = Path(path).stat().st_size
        # torch stores its records as they are: a file that would grow when it is read was made by somebody else.
        if records_size(path) > size:
            raise UserError(f"ckpt_path={path}: its parts are compressed or overlap, so that it was not written here")
        saved = torch.load(path, map_location="cpu", weights_only=True)
        odd = any(t.layout != torch.strided or t.device.type != "cpu" for t in tensors(saved))
        if odd or sum(t.numel() * t.element_size() for t in tensors(saved)) > size:
            raise UserError(f"ckpt_path={path}: it holds tensors larger than itself, so that it was not written here")
    except UserError:
        raise
    except UnpicklingError as error:  # whose own text tells how to read the file nevertheless
        raise UserError(
            f"ckpt_path={path}: can't be read as a checkpoint (it is damaged, or holds more than tensors and plain "
            "values, which could run code); name one below a run folder"
        ) from error
    except Exception as error:  # a damaged file makes the reader fail in a dozen ways
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"ckpt_path={path}: can't be read as a checkpoint ({why[0]}); name one below a run folder"
        ) from error
    return saved if isinstance(saved, dict) else {}


def records_size(path: str | Path) -> int:
    """Bytes that the records of a zip file come to when they are unpacked."""
    with zipfile.ZipFile(path) as archive:
        return sum(record.file_size for record in archive.infolist())


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor in nested dicts, lists and tuples."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping | list | tuple):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from tensors(part)
