"""Whether the model hub can give something, asked once and quickly: its own client retries for most of a minute."""

import functools
from pathlib import Path

from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import RepositoryNotFoundError

from lit_cory.errors import UserError

TIMEOUT = 10.0
"""Seconds to wait for the hub's answer."""


def require_hub(kind: str, name: str, key: str, remedy: str) -> None:
    """Return if the hub has ``name``.

    Args:
        kind: "model" or "dataset".
        name: the repository.
        key: the configuration key that holds ``name``, for the message.
        remedy: what needs no hub, "a local folder" say.

    Raises:
        UserError: the hub is switched off, out of reach, or has no such repository.
    """
    if constants.is_offline_mode():
        raise UserError(
            f"{key}={name}: no such folder, and the hub is switched off (HF_HUB_OFFLINE); {remedy} needs no hub"
        )
    try:
        HfApi().repo_info(name, repo_type=kind, timeout=TIMEOUT)
    except (RepositoryNotFoundError, ValueError) as error:
        raise UserError(
            f"{key}={name}: no such folder, and no {kind} on the hub that you may read; check the spelling, log in to "
            f"the hub for a private one, or use {remedy}"
        ) from error
    except Exception as error:  # the errors of its HTTP client have no class that the hub's library exports
        raise UserError(
            f"{key}={name}: no such folder, and the hub is out of reach ({type(error).__name__}); {remedy} needs no hub"
        ) from error


@functools.cache
def hub_model(name: str, key: str, remedy: str) -> str:
    """A model's hub id as it is where the hub answers, else the folder of its files in the hub's cache.

    Asked once a process. Raises as :func:`require_hub` does, where the cache doesn't hold the model.
    """
    try:
        require_hub("model", name, key, remedy)
    except UserError:
        cached = try_to_load_from_cache(name, "config.json")
        if not isinstance(cached, str):
            raise
        return str(Path(cached).parent)
    return name
