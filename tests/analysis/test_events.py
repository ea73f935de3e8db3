"""Event files as tables, on files that TensorBoard's own writer wrote."""

import struct
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from lit_cory.analysis import read_run, read_scalars
from lit_cory.errors import UserError

Scalar = tuple[str, float, int]


def write(folder: Path, scalars: Iterable[Scalar]) -> Path:
    """One event file with these (tag, value, step), written as a trainer does."""
    with SummaryWriter(str(folder)) as writer:
        for tag, value, step in scalars:
            writer.add_scalar(tag, value, step)
        writer.add_text("samples", "| query | response |", 1)
    return next(folder.glob("events.out.tfevents.*"))


def rows(run: Path) -> list[Scalar]:
    frame = read_scalars(run)
    return list(zip(frame["tag"], frame["value"], frame["step"], strict=True))


def test_scalars_of_all_files_below_the_folder(tmp_path: Path) -> None:
    before = time.time()
    write(tmp_path / "version_0", [("train/agent_0/score", 0.1, 1), ("train/agent_0/score", 0.25, 2), ("lr", 1e-5, 1)])
    write(tmp_path / "deep" / "er", [("lr", 0.5, 7)])

    frame = read_scalars(tmp_path)

    assert list(frame.columns) == ["run", "tag", "step", "time", "value"]
    low, deep = str(tmp_path / "version_0"), str(tmp_path / "deep" / "er")
    assert list(zip(frame["run"], frame["tag"], frame["step"], frame["value"], strict=True)) == [
        (deep, "lr", 7, 0.5),
        (low, "lr", 1, float(np.float32(1e-5))),
        (low, "train/agent_0/score", 1, float(np.float32(0.1))),
        (low, "train/agent_0/score", 2, 0.25),
    ]
    assert frame["time"].between(before, time.time()).all()
    assert frame["step"].dtype == np.int64
    assert frame["value"].dtype == np.float64


def test_a_long_run_is_not_thinned_out(tmp_path: Path) -> None:
    count = 10_500  # the reader's own default keeps 10,000, chosen at random
    write(tmp_path, (("score", step % 8, step) for step in range(count)))
    assert rows(tmp_path) == [("score", step % 8, step) for step in range(count)]


def test_what_a_resumed_run_logs_replaces_what_the_killed_one_did(tmp_path: Path) -> None:
    killed = [("score", 0.0, step) for step in range(1, 7)] + [("lr", 0.0, 1)]
    write(tmp_path, killed)
    write(tmp_path, [("score", 1.0, 4), ("score", 1.0, 5)])  # from the checkpoint of rollout 3
    write(tmp_path, [("score", 2.0, 5)])  # and once more, from that of rollout 4
    # step 6 belongs to the branch that was given up; the tag that wasn't logged again stays
    assert rows(tmp_path) == [("lr", 0.0, 1)] + [
        ("score", value, step) for step, value in enumerate([0.0, 0.0, 0.0, 1.0, 2.0], start=1)
    ]


def test_other_runs_steps_replace_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a", [("score", 0.0, 1), ("score", 0.0, 2)])
    write(tmp_path / "b", [("score", 1.0, 1)])
    assert rows(tmp_path) == [("score", 0.0, 1), ("score", 0.0, 2), ("score", 1.0, 1)]


def test_a_clock_set_back_drops_nothing(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step, wall_time in enumerate([1000.0, 1010.0, 500.0, 510.0]):
            writer.add_scalar("score", step, step, walltime=wall_time)
    frame = read_scalars(tmp_path)
    assert list(frame["value"]) == [0, 1, 2, 3]
    assert list(frame["time"]) == [1000.0, 1010.0, 500.0, 510.0]


def record_ends(data: bytes) -> list[int]:
    """Where each record ends: 8 bytes of length n, 4 of checksum, n of event, 4 of checksum."""
    ends, at = [], 0
    while at < len(data):
        at += 8 + 4 + struct.unpack_from("<Q", data, at)[0] + 4
        ends.append(at)
    return ends


def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path: Path) -> None:
    steps = range(1, 4)
    whole = write(tmp_path / "whole", [("score", step / 8, step) for step in steps]).read_bytes()
    ends = record_ends(whole)
    assert len(ends) == 5  # the file's version, three scalars, one text
    cut = tmp_path / "cut"
    cut.mkdir()
    for size in range(len(whole)):
        (cut / "events.out.tfevents.1.host.1.0").write_bytes(whole[:size])
        left = sum(end <= size for end in ends[1:4])
        assert rows(cut) == [("score", step / 8, step) for step in steps[:left]], size


def test_a_run_killed_before_its_first_scalar(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host.1.0").touch()
    frame = read_scalars(tmp_path)
    assert frame.empty
    assert list(frame.columns) == ["run", "tag", "step", "time", "value"]
    with pytest.raises(UserError, match="no agent's scalars"):
        read_run(tmp_path)


def test_curves_of_each_agent(tmp_path: Path) -> None:
    logged = [
        ("train/agent_0/score", 0.25, 1),
        ("train/agent_10/role", 1.0, 1),
        ("val/agent_1/ref_kl", 4.5, 0),
        ("val/agent_1/ref_kl", 5.5, 2),
        ("train/pioneer/score", 0.25, 1),
        ("test/agent_0/score", 0.25, 1),
        ("train/agent_x/score", 0.25, 1),
        ("old/train/agent_0/score", 0.25, 1),
        ("epoch", 0.0, 1),
    ]
    write(tmp_path, logged)
    frame = read_run(tmp_path)
    assert list(frame.columns) == ["step", "agent", "split", "metric", "value"]
    assert list(frame.itertuples(index=True, name=None)) == [
        (0, 1, "agent_0", "train", "score", 0.25),
        (1, 1, "agent_10", "train", "role", 1.0),
        (2, 0, "agent_1", "val", "ref_kl", 4.5),
        (3, 2, "agent_1", "val", "ref_kl", 5.5),
    ]


def test_a_folder_of_several_runs_is_refused(tmp_path: Path) -> None:
    for name in ("cory", "ppo"):
        write(tmp_path / name, [("val/agent_0/score", 0.5, 0)])
    with pytest.raises(UserError, match=r"holds 2 runs, .*cory and .*ppo among them; give one of them$"):
        read_run(tmp_path)
    write(tmp_path / "cory" / "hparams", [("final/score", 0.5, 0)])  # no curve of an agent: the run is still one
    assert len(read_run(tmp_path / "cory")) == 1


@pytest.mark.parametrize("read", [read_scalars, read_run])
def test_a_folder_without_a_run_is_named_in_one_line(tmp_path: Path, read: object) -> None:
    assert callable(read)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, reason in (("missing", "no such folder"), ("file", "no such folder"), ("empty", "no event file")):
        with pytest.raises(UserError) as error:
            read(tmp_path / name)
        message = str(error.value)
        assert message.startswith(f"{tmp_path / name}: {reason}")
        assert "\n" not in message
