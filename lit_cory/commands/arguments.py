"""What is typed, made complete before it is parsed."""

from itertools import pairwise
from pathlib import Path

from lit_cory.commands.load import run_folder_of
from lit_cory.errors import UserError

OF_A_CHECKPOINT = ("validate", "test", "export", "generate")

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
    if args[0] in OF_A_CHECKPOINT:
        given = given or saved_config(typed)
        # The folder that training wrote to stays as it is; an evaluation's files go elsewhere.
        given += ["--run_folder=null"] if given else []
    return [args[0], *given, *typed]


def config_options(options: list[str]) -> set[int]:
    """The places of ``--config FILE`` and ``--config=FILE``."""
    places = {i for i, option in enumerate(options) if option.startswith(("--config=", "-c="))}
    for i, option in enumerate(options[:-1]):
        if option in ("--config", "-c"):
            places |= {i, i + 1}
    return places


def saved_config(options: list[str]) -> list[str]:
    """Options that read the configuration of the run whose checkpoint is named.

    Raises:
        UserError: if the checkpoint is there and its run folder holds no configuration.
    """
    named = [value for option, value in pairwise(options) if option == "--ckpt_path"]
    named += [option.partition("=")[2] for option in options if option.startswith("--ckpt_path=")]
    if not named or not Path(named[-1]).is_file():  # a checkpoint that isn't there is refused by name later
        return []
    config = run_folder_of(named[-1]) / "config.yaml"
    if not config.is_file():
        raise UserError(f"ckpt_path={named[-1]}: there is no {config}; give the configuration of the run with --config")
    return ["--config", str(config)]
