"""The bundled models themselves, from the user's own cache."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lit_cory.policies import bundled
from lit_cory.policies.bundled import bundled_folder
from lit_cory.policies.loading import load_model, load_tokenizer

SMOLLM2 = "bundled:smollm2-135m"


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    """Fetched where it isn't in the cache yet."""
    return load_model(SMOLLM2, "float32"), load_tokenizer(SMOLLM2)


def test_smollm2_knows_something(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=1, do_sample=False)[0]
    assert tokenizer.decode(answer) == "The capital of France is Paris"
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert sum(parameter.numel() for parameter in model.parameters()) == 134515008


def test_smollm2_tokens(smollm2: tuple[Any, Any]) -> None:
    """Ids of the published tokenizer; blanks before a digit stay together, digits come one by one."""
    _, tokenizer = smollm2
    assert tokenizer("The capital of France is")["input_ids"] == [504, 3575, 282, 4649, 314]
    assert tokenizer.convert_ids_to_tokens(tokenizer("a  12")["input_ids"]) == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.convert_ids_to_tokens(tokenizer(":\n\n12")["input_ids"]) == [":", "ĊĊ", "1", "2"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_smollm2_can_be_saved(smollm2: tuple[Any, Any], tmp_path: Path) -> None:
    _, tokenizer = smollm2
    model: Any = load_model(SMOLLM2, "float32")
    model.model.layers = model.model.layers[:3]  # for the disk's sake
    model.config.num_hidden_layers, model.config.layer_types = 3, None
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ids = tokenizer("I watched it twice,  12 years apart", return_tensors="pt")["input_ids"]
    assert load_tokenizer(str(tmp_path))("I watched it twice,  12 years apart")["input_ids"] == ids[0].tolist()
    again: Any = load_model(str(tmp_path), "float32")
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_smollm2_is_there_without_an_index(smollm2: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bundled_folder(SMOLLM2)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    bundled._checked_folder.cache_clear()
    assert bundled_folder(SMOLLM2) == folder


def test_gemma3_knows_something() -> None:
    name = "bundled:gemma3-270m"
    if not (bundled.cache_folder() / "gemma3-270m").is_dir():
        pytest.skip(f"{name} isn't in the cache, and its 238 MB aren't fetched for a test")
    model: Any = load_model(name, "float32")
    tokenizer = load_tokenizer(name)
    prompt = tokenizer("One, two, three, four,", return_tensors="pt")
    assert prompt["input_ids"][0, 0] == tokenizer.bos_token_id == 2
    answer = model.generate(**prompt, max_new_tokens=2, do_sample=False)[0]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "One, two, three, four, five,"
