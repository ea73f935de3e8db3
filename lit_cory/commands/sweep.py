"""``python -m lit_cory sweep``: runs over a grid and seeds, each a process, folder and row of its own; resumable."""

import fcntl
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lit_cory.analysis.runs import (
    IDENTITY,
    config_hash,
    grid_columns,
    put,
    read_config,
    read_summary,
    read_table,
    run_row,
    value_at,
    write_table,
)
from lit_cory.commands.cells import Cell, make_cells, read_grid
from lit_cory.commands.options import Options
from lit_cory.errors import UserError

PATIENCE = 60
"""Seconds that a run which was told to stop may take."""


def main(args: Sequence[str]) -> int:
    """Run a sweep as the arguments say; returns the exit status, 1 where a run failed.

    Raises:
        UserError: for arguments that can't be used, before any run.
    """
    options = Options(prog="lit-cory sweep", description=str(__doc__).partition(": ")[2])
    options.add_argument("--config", action="append", required=True, help="of fit; several are read in order")
    options.add_argument(
        "--grid", action="extend", nargs="+", default=[], metavar="KEY=[VALUE,...]", help="values of a key of fit"
    )
    options.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the runs (0)")
    options.add_argument("--jobs", type=int, default=1, help="runs at once (1); OMP_NUM_THREADS shares the cores")
    options.add_argument(
        "--out", type=Path, required=True, help="folder of results.csv and the runs; may hold earlier ones"
    )
    given = options.parse_args(args)
    if given.jobs < 1:
        raise UserError(f"jobs={given.jobs}: must be at least 1")
    grid = read_grid(given.grid)
    cells = make_cells(given.config, grid, given.seeds, given.out)
    sweep = Sweep(given.out, list(grid))
    note_command(given.out, ["sweep", *args])
    try:
        return 1 if sweep.run(cells, given.jobs) else 0
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on from the last checkpoints below {given.out}", file=sys.stderr)
        return 130


def note_command(out: Path, args: Sequence[str]) -> None:
    """Keep the command in ``commands.txt``, for the page that the results end on."""
    path, line = out / "commands.txt", f"python -m lit_cory {shlex.join(args)}"
    known = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    if line not in known:
        path.write_text("\n".join([*known, line, ""]), encoding="utf-8")


class Sweep:
    """The runs below one folder, and their table.

    Args:
        out: the folder, made where it is missing.
        grid: keys that the table shows; those that it shows already stay.

    Raises:
        UserError: if the folder can't be made, or holds a ``results.csv`` of something else.
    """

    def __init__(self, out: Path, grid: Sequence[str]) -> None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"out={out}: can't be made ({error.strerror}); name another folder") from error
        self.out, self.table = out, out / "results.csv"
        self.rows = read_table(self.table) if self.table.is_file() else pd.DataFrame()
        self.grid = sorted({*grid, *grid_columns(self.rows)})
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False

    def fill_keys(self, cells: Sequence[Cell]) -> None:
        """Fill keys that older rows lack, from their runs' folders or a cell of the same configuration."""
        configs = {cell.hash: cell.config for cell in cells}
        filled = []
        for row in self.rows.to_dict("records"):
            folder = self.out / row["name"] / f"{row['hash']}-{row['seed']}"
            config = configs.get(row["hash"]) or (read_config(folder) if folder.is_dir() else {})
            filled.append(row | {key: value_at(config, key) for key in self.grid if pd.isna(row.get(key))})
        if filled:
            self.rows = put(pd.DataFrame(), filled)
            write_table(self.rows, self.table)

    def run(self, cells: Sequence[Cell], jobs: int) -> dict[Path, str]:
        """Run all cells that aren't done; returns the error of each that failed, by its folder."""
        self.fill_keys(cells)
        failed: dict[Path, str] = {}
        with terminated_as_interrupted(), bar() as progress, ThreadPoolExecutor(jobs) as pool:
            task = progress.add_task("runs", total=len(cells))
            futures = {pool.submit(self.attempt, cell): cell for cell in cells}
            try:
                for future in as_completed(futures):
                    cell, error = futures[future], future.result()
                    error = error or self.keep(cell)
                    if error is not None:
                        failed[cell.folder] = error
                    progress.console.print(f"{cell.folder}: {error or 'done'}", markup=False, soft_wrap=True)
                    progress.advance(task)
            except KeyboardInterrupt:
                self.stop()
                raise
        print(f"{len(cells) - len(failed)} of {len(cells)} runs done, {len(failed)} failed: {self.table}")
        return failed

    def attempt(self, cell: Cell) -> str | None:
        """Run one cell where it isn't done; returns its error, None where it is done."""
        if self.stopped or self.known(cell) or self.complete(cell):
            return None
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        log = cell.folder.with_name(f"{cell.folder.name}.log")
        # The run holds the lock as long as it lives, even where the sweep that began it doesn't.
        with log.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return "is being run by another process; wait for it, or end it"
            start, status = file.tell(), self.fit(cell, file)
        if status != 0:
            return last_error(log, start, status)
        return None if self.complete(cell) else "failed: its folder holds another run; name another --out"

    def fit(self, cell: Cell, log: TextIO) -> int:
        """Begin or resume a run; returns its exit status."""
        if (cell.folder / "checkpoints" / "last.ckpt").is_file():
            how = [f"--resume={cell.folder}"]
        else:
            shutil.rmtree(cell.folder, ignore_errors=True)  # it has come to no checkpoint
            how = [*cell.options, f"--run_folder={cell.folder}"]
        # In a session of its own, so that an interrupt reaches it through the sweep alone.
        process = subprocess.Popen(
            [sys.executable, "-m", "lit_cory", "fit", *how],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.running.add(process)
        if self.stopped:  # between the question whether it is and here
            process.terminate()
        status = process.wait()
        self.running.discard(process)
        return status

    def stop(self) -> None:
        """End the runs under way; they resume from their last checkpoints."""
        self.stopped = True
        for process in list(self.running):
            process.terminate()
        for process in list(self.running):
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def known(self, cell: Cell) -> bool:
        """Whether the table has the cell's row."""
        wanted = pd.Series(dict(zip(IDENTITY, (cell.name, cell.hash, cell.seed), strict=True)))
        return len(self.rows) > 0 and bool((self.rows[IDENTITY] == wanted).all(axis=1).any())

    def complete(self, cell: Cell) -> bool:
        """Whether the cell's folder holds a run to the end, of the cell's configuration."""
        summary = read_summary(cell.folder)
        if summary is None or summary["rollouts"] != cell.config["model"]["rollouts"]:
            return False
        return config_hash(read_config(cell.folder)) == cell.hash

    def keep(self, cell: Cell) -> str | None:
        """Write a done cell's row into the table; returns what is wrong with it."""
        if self.known(cell):
            return None
        try:
            row = run_row(cell.folder, self.grid)
        except UserError as error:
            return f"failed: {error}"
        # Another sweep may have written rows of its own since.
        self.rows = put(read_table(self.table) if self.table.is_file() else self.rows, [row])
        write_table(self.rows, self.table)
        return None


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt inside the block as Ctrl-C does, so that no run is left behind."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def bar() -> Progress:
    """Runs done, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console()
    return Progress(*columns, console=terminal, disable=not terminal.is_terminal)


def last_error(log: Path, start: int, status: int) -> str:
    """The line of a failed run's log that says why, from the place where its attempt begins."""
    with log.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode("utf-8", errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("lit_cory: error:")] or lines or [f"ended with status {status}"]
    return f"failed: {told[-1].removeprefix('lit_cory: error: ')} (see {log})"
