"""``python -m lit_cory``."""

import errno
import importlib
import logging
import sys
import warnings
from argparse import ArgumentError
from typing import Any

# What libraries say about themselves and users can do nothing about; all other warnings pass.
QUIET = (
    ".*is_gradient_checkpointing.* is deprecated",  # peft asks transformers
    ".*set_vital.* is deprecated",  # torchdata asks torch
    ".*isinstance\\(treespec, LeafSpec\\).* is deprecated",  # lightning asks torch
    "Found .* module\\(s\\) in eval mode",  # on purpose: see policies.Policy
    "The '(train|val)_dataloader' does not have many workers",  # a batch is a few strings
    "Be aware that when using `ckpt_path`, callbacks used",  # lightning of an evaluation, which needs none
)

# Commands that need no model, each the ``main`` of a module: what the others import takes seconds.
WITHOUT_MODEL = {"sweep": "lit_cory.commands.sweep", "report": "lit_cory.commands.report"}


HELP = """usage: lit-cory COMMAND [options]       (or: python -m lit_cory COMMAND ...)

  fit        train agents: --config FILE, or --resume RUN to go on with a run
  validate   evaluate the agents of a checkpoint on the held-out queries of training: --ckpt_path FILE
  test       the same on all that are held out
  generate   let the agents of a checkpoint answer
  front      evaluate agents, and their mean, at several scales of what they learnt: --ckpt_path FILE
  export     write an agent as a folder that transformers and peft load
  reward     train a sentiment classifier to be paid by
  sweep      runs over a grid of keys and seeds, a folder and a row each
  report     tables, curves and fronts of runs and sweeps
  bench      seconds per rollout by phase, and peak memory; --compare A.yaml B.yaml, --over KEY=[...]

lit-cory COMMAND --help shows the options of one, --print_config all keys with their values."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what a user can mend is told in one line. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):  # at once, without torch
        print(HELP)
        return 0
    from lit_cory.errors import Interrupted, UserError
    from lit_cory.interruption import signals_end_at_once

    warnings.formatwarning = warning_line
    for message in QUIET:
        warnings.filterwarnings("ignore", message=message)
    # On some CPUs it asks for a package of faster kernels, for layers that are never used here.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        if arguments[0] in WITHOUT_MODEL:
            return int(importlib.import_module(WITHOUT_MODEL[arguments[0]]).main(arguments[1:]))
        with signals_end_at_once():
            run(arguments)
    except (UserError, ArgumentError) as error:
        print(f"lit_cory: error: {shown(error)}", file=sys.stderr)
        return 2
    except Interrupted as signal:
        print(f"lit_cory: ended by {signal.name}", file=sys.stderr)
        return int(str(signal.code))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"lit_cory: error: no space left on the disk ({shown(error)})", file=sys.stderr)
        return 2
    return 0


def run(arguments: list[str]) -> None:
    """Import what takes its seconds, and do what the command line says."""
    from lit_cory.commands import variants

    if variants.wanted(arguments):
        variants.run(arguments)
        return
    from lit_cory.cli import CoryCLI
    from lit_cory.reward_model.cli import train_reward_model

    for name in ("lightning.pytorch", "lightning.fabric"):  # which set their own level when they are imported
        logging.getLogger(name).setLevel(logging.WARNING)
    # The only word on a process that was ended because another one of its run died.
    logging.getLogger("lightning.fabric.strategies.launchers.subprocess_script").setLevel(logging.INFO)
    if arguments[0] == "reward":
        train_reward_model(arguments[1:])
    else:
        CoryCLI(None if arguments == sys.argv[1:] else arguments)  # lightning warns of both


def shown(error: BaseException) -> str:
    """What an error says, in one line that no terminal acts on."""
    from lit_cory.types import one_line

    return one_line(" ".join(str(error).split()))


def warning_line(message: Warning | str, *args: Any, **kwargs: Any) -> str:
    """The line of code that warned says nothing to a user; what a warning quotes may come from anywhere."""
    from lit_cory.types import one_line

    del args, kwargs
    return f"lit_cory: warning: {one_line(str(message))}\n"


if __name__ == "__main__":
    sys.exit(main())
