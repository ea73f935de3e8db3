"""Event files of a run -> tables of scalars. Reads files alone, so it serves old runs and runs that are still going."""

from pathlib import Path

import pandas as pd
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lit_cory.errors import UserError

AGENT_TAG = r"^(?P<split>train|val)/(?P<agent>agent_\d+)/(?P<metric>.+)$"


def read_scalars(run: Path) -> pd.DataFrame:
    """All scalars of the TensorBoard event files in a folder and below it, none thinned out.

    A run that was killed and resumed from an earlier checkpoint has logged some steps twice. What was logged later
    counts: a row is dropped where the same tag of the same folder was written afterwards at the same step or an earlier
    one. That takes out the repeated steps, and what the killed run logged beyond the point its successor has reached.
    A file that was cut off in the middle is read up to the cut.

    Args:
        run: a run folder.

    Returns:
        One row a scalar, a folder's tags one after the other, each in the order of its steps: ``run`` (str, folder of
        the event file), ``tag`` (str), ``step`` (int64), ``time`` (float64, seconds since 1970), ``value`` (float64,
        which holds the float32 of the file).

    Raises:
        UserError: there is no such folder, or no event file in it.
    """
    folder = Path(run)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder of a run")
    files = [path for path in folder.rglob("events.out.tfevents.*") if path.is_file()]
    if not files:
        raise UserError(f"{folder}: no event file (events.out.tfevents.*) in it or below; give the folder of a run")
    # Files by age, then the order of writing: a clock that is set back during a run must not reorder its steps.
    pieces = sorted(filter(None, map(_read_file, files)), key=lambda rows: rows[0][3])
    scalars = pd.DataFrame(
        [row for rows in pieces for row in rows], columns=["run", "tag", "step", "time", "value"]
    ).astype({"run": str, "tag": str, "step": "int64", "time": "float64", "value": "float64"})
    return _drop_superseded(scalars).sort_values(["run", "tag", "step"], ignore_index=True)


def read_run(run: Path) -> pd.DataFrame:
    """The curves of each agent in one run.

    Args:
        run: folder of one run.

    Returns:
        One row a value, from tags such as ``train/agent_0/score``; what is logged by role or for other ends is left
        out: ``step`` (int64, rollouts), ``agent`` (``agent_0`` ...), ``split`` (``train``, or ``val`` for held-out
        queries), ``metric`` (``score``, ``ref_kl``, ``combined`` ...), ``value`` (float64).

    Raises:
        UserError: there is no such folder, no event file in it, no agent's scalars, or those of several runs.
    """
    scalars = read_scalars(run)
    parts = scalars["tag"].str.extract(AGENT_TAG)
    curves = pd.concat([scalars, parts], axis=1)[parts["agent"].notna()]
    folders = list(curves["run"].unique())
    if not folders:
        raise UserError(f"{run}: no agent's scalars (train/agent_0/score ...) in its event files; give another folder")
    if len(folders) > 1:
        raise UserError(f"{run}: holds {len(folders)} runs, {folders[0]} and {folders[1]} among them; give one of them")
    return curves[["step", "agent", "split", "metric", "value"]].reset_index(drop=True)


def _read_file(path: Path) -> list[tuple[str, str, int, float, float]]:
    """The scalars of one event file, each tag in the order of writing: folder, tag, step, time, value."""
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})  # 0 keeps all, where 10,000 is the default
    events.Reload()
    return [
        (str(path.parent), tag, event.step, event.wall_time, event.value)
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    ]


def _drop_superseded(scalars: pd.DataFrame) -> pd.DataFrame:
    """Without the rows whose tag comes again further down at the same step or an earlier one."""
    backwards = scalars[::-1]
    lowest_later_step = backwards.groupby(["run", "tag"])["step"].transform(lambda steps: steps.cummin().shift())
    return scalars[~(lowest_later_step[::-1] <= scalars["step"])]
