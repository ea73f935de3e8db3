"""Where queries come from: one LightningDataModule a file."""

from lit_cory.data.arithmetic import ArithmeticDataModule
from lit_cory.data.base import PermutationStream, QueryDataModule
from lit_cory.data.gsm8k import Gsm8kDataModule
from lit_cory.data.imdb import ImdbDataModule

__all__ = ["ArithmeticDataModule", "Gsm8kDataModule", "ImdbDataModule", "PermutationStream", "QueryDataModule"]
