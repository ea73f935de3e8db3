"""Tiny labelled reviews in the words that the tiny encoder knows."""

import random
from pathlib import Path

import pandas as pd

GOOD, BAD = ("good", "great"), ("bad", "dull")


def write_reviews(folder: Path, train: int = 160, test: int = 60) -> Path:
    """``train.parquet`` and ``test.parquet`` with whole numbers as labels, as IMDB has them; positives come last."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in {"train": train, "test": test}.items():
        draw = random.Random(part)
        labels = [int(i >= count // 2) for i in range(count)]
        texts = [f"the film was {draw.choice(GOOD if label else BAD)} and long" for label in labels]
        pd.DataFrame({"text": texts, "label": labels}).to_parquet(folder / f"{part}.parquet")
    return folder
