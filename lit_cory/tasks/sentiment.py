"""Writing film reviews that sound kind: the score is how positive a sentiment model finds the text."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lit_cory.errors import UserError
from lit_cory.hub import hub_model
from lit_cory.tasks.base import Task
from lit_cory.types import Prompt, Query

VADER = "vader"


class SentimentTask(Task):
    """Go on with a review; be paid for how positive the whole text, query and answer, reads.

    Args:
        reward: ``vader``, a word-list model that needs nothing fetched and scores from -1 to 1 (its compound value); or
            a sequence classifier by hub id or folder.
        output: what of a classifier is the score: ``logit``, the raw logit of the positive class, or ``probability``.
            VADER has one score and doesn't read this.
        positive_label: name of the positive class in the classifier's label map. Needed only where not exactly one name
            there holds "pos"; a classifier with a single logit has no classes, and that logit is the score.
        batch_size: texts that the classifier reads at a time.

    Raises:
        UserError: ``batch_size`` below 1, or a folder that doesn't exist; in ``prepare``, a classifier that can't be
            loaded or whose positive class isn't known.
    """

    def __init__(
        self,
        reward: str = "lvwerra/distilbert-imdb",
        output: Literal["logit", "probability"] = "logit",
        positive_label: str | None = None,
        batch_size: int = 64,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"model.task.batch_size={batch_size}: must be at least 1")
        is_path = reward.startswith((".", "/", "~")) or reward.count("/") > 1
        if is_path and not Path(reward).expanduser().is_dir():
            raise UserError(
                f"model.task.reward={reward}: there is no such folder; name a classifier's folder, a hub id or {VADER}"
            )
        self.reward, self.output, self.positive_label, self.batch_size = reward, output, positive_label, batch_size
        self._scores: Callable[[list[str]], list[float]] | None = None

    def prepare(self, device: torch.device) -> None:
        """Load the sentiment model, a classifier onto ``device`` in fp32."""
        if self.reward == VADER:
            from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

            vader = SentimentIntensityAnalyzer()
            self._scores = lambda texts: [float(vader.polarity_scores(text)["compound"]) for text in texts]
        else:
            self._scores = Classifier(self.reward, self.output, self.positive_label, self.batch_size, device)

    def prompt(self, query: Query, answers: Sequence[str]) -> Prompt:
        """The pioneer goes on with the query; later agents read each review so far, then the query again.

        For answers a1, a2 to a query q::

            Review: q a1
            Review: q a2
            A kinder review: q

        White space inside an answer becomes single spaces, so that a review never spans two lines.
        """
        if not answers:
            return query.text
        reviews = "".join(f"Review: {_one_line(query.text + answer)}\n" for answer in answers)
        return f"{reviews}A kinder review: {query.text}"

    def score(self, queries: Sequence[Query], responses: Sequence[str]) -> list[float]:
        """How positive each review, query and answer together, reads: finite, whatever the text."""
        if self._scores is None:
            raise RuntimeError("SentimentTask.score was called before prepare")
        return self._scores([query.text + response for query, response in zip(queries, responses, strict=True)])


class Classifier:
    """A sequence classifier's score of texts.

    Texts beyond the model's length lose their end, as in its own pipeline; an empty text is read as one pad token.

    Args:
        name: hub id or folder.
        output: ``logit`` or ``probability`` of the positive class (sigmoid for a single logit, else softmax).
        positive_label: name of the positive class, None to find it in the label map.
        batch_size: texts a forward pass.
        device: where the model runs.

    Raises:
        UserError: it can't be loaded, or its positive class isn't known.
    """

    def __init__(
        self, name: str, output: str, positive_label: str | None, batch_size: int, device: torch.device
    ) -> None:
        self._model, self._tokenizer = _load(name)
        self._model.to(device).eval().requires_grad_(False)
        self._positive = positive_class(name, self._model.config.id2label, positive_label)
        self._max_length = _max_length(self._model, self._tokenizer)
        self._probability, self._batch_size, self._device = output == "probability", batch_size, device

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """One score a text."""
        return [score for logits in self._logits(texts) for score in self._select(logits.float()).tolist()]

    def _select(self, logits: Tensor) -> Tensor:
        """[B, classes] -> [B]."""
        if self._probability:
            logits = logits.sigmoid() if logits.shape[1] == 1 else logits.softmax(dim=1)
        return logits[:, self._positive]

    @torch.no_grad()
    def _logits(self, texts: Sequence[str]) -> Iterator[Tensor]:
        texts = [text or self._tokenizer.pad_token for text in texts]
        for start in range(0, len(texts), self._batch_size):
            inputs = self._tokenizer(
                texts[start : start + self._batch_size],
                padding=True,
                truncation=True,
                max_length=self._max_length,
                return_tensors="pt",
            )
            yield self._model(**inputs.to(self._device)).logits


def positive_class(name: str, labels: dict[int, str], wanted: str | None) -> int:
    """Index of the positive class in a classifier's label map.

    Raises:
        UserError: ``wanted`` isn't there, or nothing is wanted and not exactly one name holds "pos".
    """
    if len(labels) == 1 and wanted is None:
        return 0
    if wanted is None:
        found = [index for index, label in labels.items() if "pos" in label.lower()]
    else:
        found = [index for index, label in labels.items() if label.lower() == wanted.lower()]
    if len(found) != 1:
        fault = "name no single positive class" if wanted is None else f"don't hold {wanted!r}"
        names = ", ".join(labels.values())
        raise UserError(f"model.task.reward={name}: its labels ({names}) {fault}; set model.task.positive_label to one")
    return found[0]


def _load(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = Path(name).expanduser()
    local = f"a classifier's folder or {VADER}"
    path = str(folder) if folder.is_dir() else hub_model(name, "model.task.reward", local)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.task.reward={name}: it can't be loaded ({reason}); name {local}") from error
    if info["missing_keys"]:  # they would be random, and with them the score
        lacking = ", ".join(sorted(info["missing_keys"]))
        raise UserError(f"model.task.reward={name}: no sequence classifier, it lacks {lacking}; name {local}")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise UserError(f"model.task.reward={name}: its tokenizer has no pad, end or unknown token; add one")
    tokenizer.padding_side = "right"
    model.config.pad_token_id = tokenizer.pad_token_id  # decoder classifiers read the last token that isn't this one
    return model, tokenizer


def _max_length(model: Any, tokenizer: Any) -> int:
    """Tokens the classifier can read: the least of what its tokenizer, configuration and position table say."""
    length = min(int(tokenizer.model_max_length), getattr(model.config, "max_position_embeddings", None) or 512)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "wpe")):
            # RoBERTa's kind counts positions from the pad's index + 1.
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            length = min(length, module.num_embeddings - first)
    return length


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
