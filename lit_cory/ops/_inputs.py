"""What every op does with its inputs before its equation."""

import torch
from torch import Tensor


def promote(x: Tensor) -> Tensor:
    """float32 and float64 as they are, every other dtype as float32."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def same_shape(**tensors: Tensor) -> None:
    """Raise a ValueError that names the tensors and their shapes unless all shapes are equal."""
    if len({x.shape for x in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"shapes must be equal, got {shapes}")


def real_places(mask: Tensor, **tensors: Tensor) -> list[Tensor]:
    """The tensors, promoted, with 0 in masked places.

    Filling comes before any arithmetic, since a NaN times 0 is NaN in the result and in the gradient.

    Raises:
        TypeError: the mask is not bool.
        ValueError: a tensor is not of the mask's shape.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, True = a real token, got {mask.dtype}")
    same_shape(**tensors, mask=mask)
    return [promote(x).masked_fill(~mask, 0) for x in tensors.values()]
