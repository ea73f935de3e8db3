"""Where queries come from: one LightningDataModule a file."""

from lit_cory.data.base import PermutationStream, QueryDataModule
from lit_cory.data.imdb import ImdbDataModule

__all__ = ["ImdbDataModule", "PermutationStream", "QueryDataModule"]
