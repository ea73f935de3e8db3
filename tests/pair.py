"""Two real processes that are connected over gloo on the loopback interface, for the tests."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Worker = Callable[[int, Path], None]


def serve(rank: int, meeting: Path, jobs: Connection) -> None:
    """Run the workers that come through ``jobs``, until it closes; answer each with what went wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    while True:
        try:
            worker, folder = jobs.recv()
        except EOFError:
            return
        try:
            worker(rank, folder)
            jobs.send("")
        except BaseException:
            jobs.send(traceback.format_exc())


class Pair:
    """Two processes; those of a session, as each takes seconds to start."""

    def __init__(self, connections: list[Connection]) -> None:
        self.connections = connections

    def run(self, worker: Worker, folder: Path) -> None:
        """Run ``worker(rank, folder)`` in both; what fails in one fails here."""
        for connection in self.connections:
            connection.send((worker, folder))
        for connection in self.connections:
            assert connection.poll(300), "no answer"
            failure = connection.recv()
            assert not failure, failure


@contextmanager
def two_processes(folder: Path) -> Iterator[Pair]:
    """Start them, and end them after the block; ``folder`` is where they meet."""
    context = mp.get_context("spawn")
    ends = [context.Pipe() for _ in range(2)]
    processes = [
        context.Process(target=serve, args=(rank, folder / "meeting", theirs), daemon=True)
        for rank, (_, theirs) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    for _, theirs in ends:
        theirs.close()
    try:
        yield Pair([ours for ours, _ in ends])
    finally:
        for ours, _ in ends:
            ours.close()
        for process in processes:
            process.join(10)
            process.kill()
