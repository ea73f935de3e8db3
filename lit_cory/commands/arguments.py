"""What is typed, made complete before it is parsed."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from lit_cory.commands.load import run_folder_of
from lit_cory.errors import UserError
from lit_cory.run_folder import last_config

OF_A_CHECKPOINT = ("validate", "test", "export", "generate", "front")

MOST_BYTES, MOST_DEEP, MOST_ALIASES = 2**20, 50, 10
"""Of a configuration. So few aliases make it at most some forty times as large."""

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
    for file in (options[i].removeprefix("--config=").removeprefix("-c=") for i in files):
        check_config(Path(file))
    given = [options[i] for i in sorted(files)]
    if args[0] == "fit":
        typed = last_of_run(given, typed)
        given, typed = resumed(given, typed)
    if args[0] in OF_A_CHECKPOINT:
        given = of_run(given, typed)
    return [args[0], *given, *typed]


def check_config(file: Path) -> None:
    """Refuse a configuration that would take gigabytes or hours to read; what else is wrong shows when it is parsed.

    Raises:
        UserError: for more than ``MOST_BYTES``, deep nesting, or many aliases (``*name``), which multiply.
    """
    if not file.is_file():
        return
    if file.stat().st_size > MOST_BYTES:
        raise UserError(f"config={file}: holds more than {MOST_BYTES} bytes; give a configuration")
    depth = aliases = 0
    try:
        for event in yaml.parse(file.read_bytes()):
            aliases += isinstance(event, yaml.AliasEvent)
            if aliases > MOST_ALIASES:
                raise UserError(f"config={file}: more than {MOST_ALIASES} aliases (*name); write those parts out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEEP:
                raise UserError(f"config={file}: nested more than {MOST_DEEP} deep; give a configuration")
    except (yaml.YAMLError, ValueError):
        return  # the parser tells of it


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
    checkpoint = value_of("ckpt_path", typed)
    if checkpoint is None or not Path(checkpoint).is_file():  # one that isn't there is refused by name later
        return given
    run = run_folder_of(checkpoint)
    config = last_config(run)
    if not given and config is None:
        raise UserError(
            f"ckpt_path={checkpoint}: there is no {run / 'config.yaml'}; "
            "give the configuration of the run with --config"
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
    named = value_of("resume", [*typed, ""])
    if named is None:
        return given, typed
    run = Path(named)
    checkpoint, config = run / "checkpoints" / "last.ckpt", last_config(run)
    if not checkpoint.is_file() or config is None:
        raise UserError(f"resume={run}: there is no {checkpoint} with a config.yaml; name the folder of a run")
    return ["--config", str(config), *given, f"--ckpt_path={checkpoint}", f"--run_folder={run}"], without(
        "resume", typed
    )


def last_of_run(given: list[str], typed: list[str]) -> list[str]:
    """Replace ``--ckpt_path last`` by ``--resume RUN``: of the run folder that is named, or of a configuration's run.

    Raises:
        UserError: where neither says which run.
    """
    if value_of("ckpt_path", typed) != "last":
        return typed
    rest = without("ckpt_path", typed)
    if value_of("resume", typed) is not None:
        return rest
    run = value_of("run_folder", typed)
    if run is None and given:
        file = Path(given[-1].partition("=")[2] or given[-1])
        run = str(file.parent) if re.fullmatch(r"config(-\d+)?\.yaml", file.name) else None
    if run is None:
        raise UserError("ckpt_path=last: the last of which run? Give --resume RUN_FOLDER instead")
    return [*without("run_folder", rest), f"--resume={run}"]


def value_of(key: str, typed: list[str]) -> str | None:
    """The value of ``--key VALUE`` or ``--key=VALUE``, the last where there are several."""
    found = [value for option, value in pairwise(typed) if option == f"--{key}"]
    found += [option.partition("=")[2] for option in typed if option.startswith(f"--{key}=")]
    return found[-1] if found else None


def without(key: str, typed: list[str]) -> list[str]:
    """What was typed, less every ``--key VALUE`` and ``--key=VALUE``."""
    alone = {i for i, option in enumerate(typed) if option == f"--{key}"}
    return [
        option for i, option in enumerate(typed) if not (i in alone or i - 1 in alone or option.startswith(f"--{key}="))
    ]


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
