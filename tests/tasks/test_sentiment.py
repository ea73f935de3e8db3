import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    GPT2Config,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from lit_cory.errors import UserError
from lit_cory.tasks import SentimentTask
from lit_cory.types import Query
from tests.tasks.tiny_classifier import NAMES, SHAPE, make_classifier, save, word_tokenizer
from tests.tiny import make_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_classifier(tmp_path_factory.mktemp("bert"))


def reordered(classifier: Path, folder: Path) -> Path:
    """The same classifier with its classes in the other order."""
    shutil.copytree(classifier, folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.weight.copy_(model.classifier.weight.flip(0))
        model.classifier.bias.copy_(model.classifier.bias.flip(0))
    model.config.id2label = {0: "POSITIVE", 1: "NEGATIVE"}
    model.save_pretrained(folder)
    return folder


def relabelled(classifier: Path, folder: Path, labels: dict[int, str]) -> Path:
    shutil.copytree(classifier, folder)
    config = BertConfig.from_pretrained(folder)
    config.id2label = labels
    config.save_pretrained(folder)
    return folder


def scores(reward: Path | str, responses: list[str], query: str = "the film", **kwargs: Any) -> list[float]:
    task = SentimentTask(str(reward), **kwargs)
    task.prepare(CPU)
    return task.score([Query(query, row) for row in range(len(responses))], responses)


def logits(folder: Path, text: str) -> torch.Tensor:
    """One text alone, straight through the model."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits[0]  # type: ignore[no-any-return]


def refusal(reward: Path | str, **kwargs: Any) -> str:
    with pytest.raises(UserError) as error:
        SentimentTask(str(reward), **kwargs).prepare(CPU)
    message = str(error.value)
    assert "\n" not in message
    return message


RESPONSES = [" was good", " was bad and dull and long", "", " was not great", "'s"]


def test_vader_scores_query_and_answer() -> None:
    # VADER's rule by hand: valence s gives s / sqrt(s^2 + 15); "good" has 1.9, "great" 3.1, "bad" -2.5 in its list.
    found = scores("vader", [" was good", " was great", " was bad", ""])
    assert found == [pytest.approx(s / math.sqrt(s * s + 15), abs=1e-4) for s in (1.9, 3.1, -2.5, 0.0)]
    assert scores("vader", [" was long"], query="the good film") == [
        pytest.approx(1.9 / math.sqrt(1.9**2 + 15), abs=1e-4)
    ]


def test_classifier_gives_the_raw_logit_or_the_probability_of_the_positive_class(classifier: Path) -> None:
    expected = [logits(classifier, "the film" + response) for response in RESPONSES]
    assert scores(classifier, RESPONSES) == pytest.approx([float(row[1]) for row in expected], abs=1e-5)
    probability = [1 / (1 + math.exp(float(row[0] - row[1]))) for row in expected]
    assert scores(classifier, RESPONSES, output="probability") == pytest.approx(probability, abs=1e-5)
    assert max(probability) - min(probability) > 0.01  # the random model does tell texts apart


def test_order_of_the_classes_changes_nothing(classifier: Path, tmp_path: Path) -> None:
    other = reordered(classifier, tmp_path / "other")
    assert scores(other, RESPONSES) == pytest.approx(scores(classifier, RESPONSES), abs=1e-6)


def test_labels_without_names_need_the_key(classifier: Path, tmp_path: Path) -> None:
    folder = relabelled(classifier, tmp_path / "plain", {0: "LABEL_0", 1: "LABEL_1"})
    message = refusal(folder)
    assert "(LABEL_0, LABEL_1) name no single positive class; set model.task.positive_label to one" in message
    assert scores(folder, RESPONSES, positive_label="LABEL_1") == scores(classifier, RESPONSES)
    negative = [float(logits(classifier, "the film" + response)[0]) for response in RESPONSES]
    assert scores(folder, RESPONSES, positive_label="label_0") == pytest.approx(negative, abs=1e-5)
    assert "don't hold 'POSITIVE'" in refusal(folder, positive_label="POSITIVE")


def test_several_positive_labels_need_the_key(classifier: Path, tmp_path: Path) -> None:
    folder = relabelled(classifier, tmp_path / "two", {0: "positive", 1: "very positive"})
    assert "positive_label" in refusal(folder)
    assert scores(folder, RESPONSES, positive_label="very positive") == scores(classifier, RESPONSES)


def test_single_logit(tmp_path: Path) -> None:
    folder = save(tmp_path / "one", BertConfig(id2label={0: "LABEL_0"}, **SHAPE))
    raw = [float(logits(folder, "the film" + response)[0]) for response in RESPONSES]
    assert scores(folder, RESPONSES) == pytest.approx(raw, abs=1e-5)
    probability = [1 / (1 + math.exp(-value)) for value in raw]
    assert scores(folder, RESPONSES, output="probability") == pytest.approx(probability, abs=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_batches_and_padding_change_nothing(classifier: Path, batch_size: int) -> None:
    expected = [float(logits(classifier, "the film" + response)[1]) for response in RESPONSES]
    assert scores(classifier, RESPONSES, batch_size=batch_size) == pytest.approx(expected, abs=1e-5)
    assert scores(classifier, []) == []


ODD = ["", " ", "\n\n", "\x00\ufffd", "\U0001f3ac" * 9, "good " * 600, "</s><pad>[PAD]", "\ud7ff"]


def test_any_text_has_a_finite_score(classifier: Path) -> None:
    for reward in (classifier, "vader"):
        for query in ("", "the film"):
            assert all(map(math.isfinite, scores(reward, ODD, query=query)))


@pytest.mark.parametrize("limit", [None, 30])
def test_long_text_is_cut_at_its_end(classifier: Path, tmp_path: Path, limit: int | None) -> None:
    folder = tmp_path / "limited"
    shutil.copytree(classifier, folder)
    word_tokenizer(**{} if limit is None else {"model_max_length": limit}).save_pretrained(folder)
    kept = (limit or 40) - 2 - 2  # without [CLS] and [SEP], and the query's two words
    expected = float(logits(folder, "the film" + " good" * kept)[1])
    (score,) = scores(folder, [" good" * kept + " bad" * 600])
    assert score == pytest.approx(expected, abs=1e-5)
    assert score != pytest.approx(float(logits(folder, "the film" + " good" * (kept - 1))[1]), abs=1e-5)


def test_long_text_for_positions_counted_from_the_pad(tmp_path: Path) -> None:
    # RoBERTa's first position is pad_token_id + 1 = 2, so 42 positions hold 40 tokens.
    config = RobertaConfig(
        id2label=NAMES, **(SHAPE | {"max_position_embeddings": 42, "pad_token_id": 1, "vocab_size": 400})
    )
    folder = save(tmp_path / "roberta", config, make_tokenizer(pad="own"))
    assert all(map(math.isfinite, scores(folder, ["x" * 600, ""])))


def test_decoder_classifier_without_pad_token(tmp_path: Path) -> None:
    config = GPT2Config(
        vocab_size=400, n_embd=16, n_layer=2, n_head=2, n_positions=40, id2label=NAMES, pad_token_id=None
    )
    folder = save(tmp_path / "gpt2", config, make_tokenizer())
    expected = [float(logits(folder, "the film" + response)[1]) for response in RESPONSES]
    assert scores(folder, RESPONSES) == pytest.approx(expected, abs=1e-5)
    for batch_size in (1, 2):  # alone, an empty text has no tokens here
        assert all(map(math.isfinite, scores(folder, ["", "x" * 600], query="", batch_size=batch_size)))


def test_scoring_is_without_dropout_and_gradients(classifier: Path) -> None:
    assert BertConfig.from_pretrained(classifier).hidden_dropout_prob > 0
    assert scores(classifier, RESPONSES) == scores(classifier, RESPONSES)


def test_what_cannot_be_loaded(tmp_path: Path, gpt2_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^model\.task\.reward=\./none: there is no such folder; name .* or vader$"):
        SentimentTask("./none")  # before anything is loaded
    assert "it can't be loaded" in refusal(tmp_path)
    assert "it lacks score.weight" in refusal(
        gpt2_base, positive_label="LABEL_1"
    )  # a language model's head is no class
    with pytest.raises(UserError, match=r"^model\.task\.batch_size=0: must be at least 1$"):
        SentimentTask("vader", batch_size=0)
    assert "model.task.reward=someone/unknown: no such folder, and the hub is switched off" in refusal(
        "someone/unknown"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    assert "the hub is out of reach (ConnectError); a classifier's folder or vader needs no hub" in refusal(
        "someone/unknown"
    )


def test_score_needs_prepare() -> None:
    with pytest.raises(RuntimeError, match="before prepare"):
        SentimentTask("vader").score([Query("q", 0)], ["r"])


def test_prompts() -> None:
    task, query = SentimentTask("vader"), Query("The film is", 0)
    assert task.prompt(query, []) == "The film is"
    assert task.prompt(query, [" dull."]) == "Review: The film is dull.\nA kinder review: The film is"
    assert task.prompt(query, [" dull.", "n't bad"]) == (
        "Review: The film is dull.\nReview: The film isn't bad\nA kinder review: The film is"
    )


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("", "Review: The film is"),
        (" ", "Review: The film is"),
        ("\n\nA kinder review:\tno", "Review: The film is A kinder review: no"),
        ("\r\n a\u2028b\x85c \x0b d\n", "Review: The film is a b c d"),
    ],
)
def test_an_answer_cannot_break_the_pattern(answer: str, line: str) -> None:
    prompt = SentimentTask("vader").prompt(Query("The film is", 0), [answer])
    assert prompt == f"{line}\nA kinder review: The film is"


def test_code_in_a_classifiers_folder_is_not_run(classifier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reward"
    shutil.copytree(classifier, folder)
    (folder / "code.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit('code of the folder ran')\n"
    )
    auto = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "of_its_own", "auto_map": auto}))
    assert "it can't be loaded" in refusal(folder)
    assert not (tmp_path / "ran").exists()
