"""``python -m lit_cory``."""

import sys
from argparse import ArgumentError


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what a user can mend is told in one line. Returns the exit status."""
    from lit_cory.cli import CoryCLI
    from lit_cory.errors import UserError

    try:
        CoryCLI(argv)
    except (UserError, ArgumentError) as error:
        print(f"lit_cory: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
