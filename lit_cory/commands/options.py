"""Options of the commands that need no model."""

from argparse import ArgumentParser
from typing import NoReturn

from lit_cory.errors import UserError


class Options(ArgumentParser):
    """A parser that tells what can't be used in one line, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong."""
        raise UserError(f"{message}; see {self.prog} --help")
