"""What is typed, made complete before it is parsed."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lit_cory.commands.load import run_folder_of
from lit_cory.errors import UserError

OF_A_CHECKPOINT = ("validate", "test", "export", "generate", "front")

FLAGS = ("--merge", "--greedy")


def complete(args: list[str]) -> list[str]:
    """The arguments as the parser wants them: files first, so that what is typed wins wherever it stands.

    Subcommands that are about a checkpoint get the configuration of its run where no other is named. Flags that stand
    alone become ``true``.

    Raises:
        UserError: if that configuration isn't there.
    """
    if not args or args[0].startswith("-"):
        return args
    alone = [this in FLAGS and after.startswith("-") for this, after in pairwise([*args, "-"])]
    options = [f"{arg}=true" if flag else arg for arg, flag in zip(args, alone, strict=True)][1:]
    files = config_options(options)
    typed = [option for i, option in enumerate(options) if i not in files]
    given = [options[i] for i in sorted(files)]
    if args[0] == "fit":
        given, typed = resumed(given, typed)
    if args[0] in OF_A_CHECKPOINT:
        given = of_run(given, typed)
    return [args[0], *given, *typed]


def config_options(options: list[str]) -> set[int]:
    """The places of ``--config FILE`` and ``--config=FILE``."""
    places = {i for i, option in enumerate(options) if option.startswith(("--config=", "-c="))}
    for i, option in enumerate(options[:-1]):
        if option in ("--config", "-c"):
            places |= {i, i + 1}
    return places


def of_run(given: list[str], typed: list[str]) -> list[str]:
    """The options that read configurations: where none is given, that of the run whose checkpoint is named.

    Raises:
        UserError: if the checkpoint is there and its run folder holds no configuration.
    """
    named = [value for option, value in pairwise(typed) if option == "--ckpt_path"]
    named += [option.partition("=")[2] for option in typed if option.startswith("--ckpt_path=")]
    if not named or not Path(named[-1]).is_file():  # a checkpoint that isn't there is refused by name later
        return given
    run = run_folder_of(named[-1])
    config = last_config(run)
    if not given and config is None:
        raise UserError(
            f"ckpt_path={named[-1]}: there is no {run / 'config.yaml'}; give the configuration of the run with --config"
        )
    given = given or ["--config", str(config)]
    # The folder that training wrote to, named in its configuration, stays as it is: an evaluation's files go elsewhere.
    own = Path(given[-1].partition("=")[2] or given[-1]).absolute().parent == run
    return [*given, "--run_folder=null"] if own else given


def resumed(given: list[str], typed: list[str]) -> tuple[list[str], list[str]]:
    """Replace ``--resume RUN`` by the options that go on with that run, in its own folder; what is typed wins.

    Raises:
        UserError: if that folder holds no run that can be resumed.
    """
    places = [i for i, option in enumerate(typed) if option == "--resume" or option.startswith("--resume=")]
    if not places:
        return given, typed
    at = places[-1]
    alone = typed[at] == "--resume"
    run = Path(typed[at + 1] if alone and at + 1 < len(typed) else typed[at].partition("=")[2])
    checkpoint, config = run / "checkpoints" / "last.ckpt", last_config(run)
    if not checkpoint.is_file() or config is None:
        raise UserError(f"resume={run}: there is no {checkpoint} with a config.yaml; name the folder of a run")
    rest = typed[:at] + typed[at + 1 + alone :]
    return ["--config", str(config), *given, f"--ckpt_path={checkpoint}", f"--run_folder={run}"], rest


def last_config(run: Path) -> Path | None:
    """The configuration that a run, resumed or not, had last."""
    return max(run.glob("config*.yaml"), key=lambda path: path.stat().st_mtime, default=None)


def changes(checkpoint: str, now: dict[str, Any]) -> list[str]:
    """``KEY: BEFORE -> NOW`` for each key in which a configuration differs from that of a checkpoint's run."""
    config = last_config(run_folder_of(checkpoint))
    before = {} if config is None else flat(yaml.safe_load(config.read_text(encoding="utf-8")))
    after = flat(now)
    keys = (key for key in before if key in after and before[key] != after[key])
    return [f"{key}: {before[key]} -> {after[key]}" for key in keys if key not in ("ckpt_path", "run_folder", "config")]


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A nested dict as one, its keys joined by dots."""
    if not isinstance(tree, dict) or not tree:
        return {prefix: tree}
    parts = (flat(part, f"{prefix}.{name}" if prefix else str(name)) for name, part in tree.items())
    return {key: value for part in parts for key, value in part.items()}
