"""How a test asks for a refusal."""

from collections.abc import Callable

import pytest

from lit_cory.errors import UserError


def refusal(call: Callable[[], object]) -> str:
    """The one line that a call is refused with."""
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message
