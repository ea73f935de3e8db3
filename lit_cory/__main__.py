"""``python -m lit_cory``."""

import logging
import sys
import warnings
from argparse import ArgumentError

# What libraries say about themselves and users can do nothing about; all other warnings pass.
QUIET = (
    ".*is_gradient_checkpointing.* is deprecated",  # peft asks transformers
    ".*set_vital.* is deprecated",  # torchdata asks torch
    ".*isinstance\\(treespec, LeafSpec\\).* is deprecated",  # lightning asks torch
    "Found .* module\\(s\\) in eval mode",  # on purpose: see policies.Policy
    "The '(train|val)_dataloader' does not have many workers",  # a batch is a few strings
)


HELP = """usage: lit-cory COMMAND [options]       (or: python -m lit_cory COMMAND ...)

  fit        train agents: --config FILE, or --resume RUN to go on with a run
  validate   evaluate the agents of a checkpoint on the held-out queries of training: --ckpt_path FILE
  test       the same on all that are held out
  generate   let the agents of a checkpoint answer
  export     write an agent as a folder that transformers and peft load
  bench      seconds per rollout by phase, and peak memory; --compare A.yaml B.yaml, --over KEY=[...]

lit-cory COMMAND --help shows the options of one, --print_config all keys with their values."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what a user can mend is told in one line. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):  # at once, without torch
        print(HELP)
        return 0
    # The line of code that warned says nothing to a user.
    warnings.formatwarning = lambda message, *_, **__: f"lit_cory: warning: {message}\n"
    for message in QUIET:
        warnings.filterwarnings("ignore", message=message)
    from lit_cory.commands import variants
    from lit_cory.errors import UserError

    try:
        if variants.wanted(arguments):
            variants.run(arguments)
        else:
            train_or_use(argv)
    except (UserError, ArgumentError) as error:
        print(f"lit_cory: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def train_or_use(argv: list[str] | None) -> None:
    """All that needs a model."""
    from lit_cory.cli import CoryCLI

    for name in ("lightning.pytorch", "lightning.fabric"):  # which set their own level when they are imported
        logging.getLogger(name).setLevel(logging.WARNING)
    # The only word on a process that was ended because another one of its run died.
    logging.getLogger("lightning.fabric.strategies.launchers.subprocess_script").setLevel(logging.INFO)
    CoryCLI(argv)


if __name__ == "__main__":
    sys.exit(main())
