"""How a run ends where it doesn't end well: by one line for the user, or by a signal."""

import signal


class UserError(Exception):
    """Something the user gave can't be used.

    The message is one line that names the key, file or row and the remedy. The command line prints it as it is, without
    a traceback, and exits with status 2.
    """


class Interrupted(SystemExit):
    """A signal ended the run.

    Args:
        number: of the signal; ``code``, the exit status, is 128 more, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name
