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


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what a user can mend is told in one line. Returns the exit status."""
    # The line of code that warned says nothing to a user.
    warnings.formatwarning = lambda message, *_, **__: f"lit_cory: warning: {message}\n"
    for message in QUIET:
        warnings.filterwarnings("ignore", message=message)
    from lit_cory.cli import CoryCLI
    from lit_cory.errors import UserError
    from lit_cory.reward_model.cli import train_reward_model

    for name in ("lightning.pytorch", "lightning.fabric"):  # which set their own level when they are imported
        logging.getLogger(name).setLevel(logging.WARNING)
    args = sys.argv[1:] if argv is None else argv
    try:
        if args[:1] == ["reward"]:
            train_reward_model(args[1:])
        else:
            CoryCLI(argv)
    except (UserError, ArgumentError) as error:
        print(f"lit_cory: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
