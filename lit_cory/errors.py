"""The one exception that is shown to users as a single line."""


class UserError(Exception):
    """Something the user gave can't be used.

    The message is one line that names the key, file or row and the remedy. The command line prints it as it is, without
    a traceback, and exits with status 2.
    """
