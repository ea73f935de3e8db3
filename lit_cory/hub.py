"""Whether the model hub can give something, asked quickly: its own client retries for half a minute."""

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RepositoryNotFoundError

from lit_cory.errors import UserError

TIMEOUT = 10.0
"""Seconds to wait for the hub's answer."""


def require_hub(kind: str, name: str, key: str, local: str) -> None:
    """Return if the hub has ``name``, or if its client is set to offline and will look in its cache alone.

    Args:
        kind: "model" or "dataset".
        name: the repository.
        key: the configuration key that holds ``name``, for the message.
        local: what the user may name in its place, "a classifier's folder", say.

    Raises:
        UserError: the hub is out of reach, or has no such repository.
    """
    if constants.is_offline_mode():
        return
    try:
        HfApi().repo_info(name, repo_type=kind, timeout=TIMEOUT)
    except (RepositoryNotFoundError, ValueError) as error:
        raise UserError(f"{key}={name}: nothing here, and no {kind} on the hub; name another, or {local}") from error
    except Exception as error:  # its HTTP client's errors have no class that the hub's library exports
        raise UserError(
            f"{key}={name}: nothing here, and the hub is out of reach; name {local},"
            " or set HF_HUB_OFFLINE=1 to use what was fetched before"
        ) from error
