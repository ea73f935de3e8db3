"""From a base's name to its configuration, tokenizer and frozen model."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Gemma3Config,
    GPT2Config,
    PreTrainedTokenizerFast,
)

from lit_cory.policies.loading import (
    auto_dtype,
    hidden_size,
    load_config,
    load_model,
    load_tokenizer,
    lora_targets,
    max_positions,
)
from lit_cory.policies.quirks import contiguous_input, give_pad_token
from tests.policies.refusal import refusal
from tests.tiny import FAMILIES, make_base, make_config, make_tokenizer

PROMPTS = ["The", "Question: Sam has 12 apples and buys 30 more."]

LLAMA_LIKE = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
LINEAR = {family: {"c_attn", "c_proj", "c_fc"} if family == "gpt2" else LLAMA_LIKE for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_frozen_in_evaluation_mode(family: str, tiny_base: Callable[[str], Path]) -> None:
    folder = tiny_base(family)
    model: Any = load_model(str(folder), "float32")
    assert not model.training
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    ids = torch.tensor([[5, 6, 7]])
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.set_attn_implementation(plain.config._attn_implementation)  # our own is rounded otherwise
    assert torch.equal(model(ids).logits, plain(ids).logits)
    assert load_config(str(folder)).model_type == family
    assert max_positions(load_config(str(folder))) == 128
    assert hidden_size(model) == 32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype_is_the_one_asked_for(dtype: str, llama_base: Path) -> None:
    model: Any = load_model(str(llama_base), dtype, torch.device("cpu"))
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_dtype_auto_follows_the_instructions_of_the_machine(gpt2_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's own list of the processor's instructions is the oracle."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").is_file() else []
    if not flags:
        pytest.skip("no /proc/cpuinfo to compare with")
    native = any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    expected = torch.bfloat16 if native else torch.float32
    assert auto_dtype("cpu") == auto_dtype(torch.device("cpu")) == expected
    assert load_model(str(gpt2_base), "auto").dtype == expected
    assert auto_dtype("meta") == torch.float32
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": True})
    assert auto_dtype("cpu") == torch.bfloat16


def test_unknown_dtype(gpt2_base: Path) -> None:
    message = refusal(lambda: load_model(str(gpt2_base), "float8"))
    assert message == "model.dtype=float8: must be auto, float32, bfloat16, float16"


def test_generation_settings_of_the_folder_do_not_reach_the_rollout(tmp_path: Path) -> None:
    """The distribution that ``generate`` draws from is that of the forward pass, and both end tokens count."""
    base = make_base(
        tmp_path / "base",
        "llama",
        second_eos=True,
        generation={
            "repetition_penalty": 1.3,
            "top_p": 0.8,
            "temperature": 0.7,
            "do_sample": True,
            "min_new_tokens": 4,
        },
    )
    model: Any = load_model(str(base), "float32")
    tokenizer = load_tokenizer(str(base))
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    torch.manual_seed(0)
    drawn = model.generate(
        **batch, max_new_tokens=8, return_dict_in_generate=True, output_scores=True, output_logits=True
    )
    for processed, raw in zip(drawn.scores, drawn.logits, strict=True):
        assert torch.equal(processed, raw)
    assert model.generation_config.eos_token_id == [0, 1]
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id == 0
    torch.manual_seed(0)
    again = model.generate(**batch, max_new_tokens=8)
    assert torch.equal(drawn.sequences, again)  # sampling, and not greedy, is the default ...
    torch.manual_seed(1)
    assert not torch.equal(again, model.generate(**batch, max_new_tokens=8))


def test_end_token_of_the_tokenizer_counts_where_the_model_names_none(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "gpt2")
    for file in ("config.json", "generation_config.json"):
        entries = json.loads((base / file).read_text())
        (base / file).write_text(json.dumps(entries | {"eos_token_id": None}))
    assert load_model(str(base), "float32").generation_config.eos_token_id == 0


def test_output_matrix_reads_contiguous_hidden_states(llama_base: Path) -> None:
    model: Any = load_model(str(llama_base), "float32")
    model.set_attn_implementation("sdpa")
    head = model.get_output_embeddings()
    assert contiguous_input in head._forward_pre_hooks.values()
    seen = []
    head.register_forward_hook(lambda module, args, output: seen.append(args[0].is_contiguous()))
    plain = AutoModelForCausalLM.from_pretrained(llama_base, dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    for keep in (0, 2):  # with 2 the model slices its hidden states, which leaves gaps between rows
        torch.testing.assert_close(
            model(ids, logits_to_keep=keep).logits, plain(ids, logits_to_keep=keep).logits, rtol=0, atol=1e-6
        )
    assert seen == [True, True]


@pytest.mark.parametrize("pad", [None, "eos", "own"])
@pytest.mark.parametrize("bos", [False, True])
def test_tokenizer_pads_on_the_left_without_growing(pad: Any, bos: bool, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "gpt2", pad=pad, bos=bos)
    settings = json.loads((base / "tokenizer_config.json").read_text())
    tidy = "clean_up_tokenization_spaces"
    settings |= {tidy: True, f"{tidy}_for_bpe_even_though_it_will_corrupt_output": True}
    (base / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(str(base))
    model: Any = load_model(str(base), "float32")
    assert len(tokenizer) == len(model.get_input_embeddings().weight) == len(make_tokenizer(pad=pad, bos=bos))
    assert tokenizer.pad_token == ("<|pad|>" if pad == "own" else "<|end|>")
    batch = tokenizer(PROMPTS, padding=True)
    alone = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    gap = len(alone[1]) - len(alone[0])
    assert batch["input_ids"] == [[tokenizer.pad_token_id] * gap + alone[0], alone[1]]
    assert batch["attention_mask"][0] == [0] * gap + [1] * len(alone[0])
    assert tokenizer.decode(tokenizer("It is , well .")["input_ids"]) == "It is , well ."  # blanks aren't tidied up


def test_pad_token_beyond_the_vocabulary_is_not_used(tiny_base: Callable[[str], Path]) -> None:
    """transformers gives tokenizers of the Qwen2 family a pad token of its own when their folder has none."""
    tokenizer = load_tokenizer(str(tiny_base("qwen2")))
    assert tokenizer.pad_token_id == 0
    assert max(tokenizer(PROMPTS, padding=True)["input_ids"][0]) < load_config(str(tiny_base("qwen2"))).vocab_size


def test_pad_token_falls_back_to_the_begin_token_and_then_gives_up() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "<b>": 1}, unk_token="a"))
    with_bos = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<b>")  # type: ignore[no-untyped-call]
    give_pad_token(with_bos, 2)
    assert with_bos.pad_token_id == 1
    bare = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    assert "eos_token" in refusal(lambda: give_pad_token(bare, 2))


def test_padding_side_gives_the_same_continuation_alone_and_in_a_batch(gpt2_base: Path) -> None:
    model: Any = load_model(str(gpt2_base), "float32")
    tokenizer = load_tokenizer(str(gpt2_base))
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    together = model.generate(**batch, max_new_tokens=6, do_sample=False)[:, batch["input_ids"].shape[1] :]
    for row, prompt in enumerate(PROMPTS):
        alone = tokenizer(prompt, return_tensors="pt")
        answer = model.generate(**alone, max_new_tokens=6, do_sample=False)[0, alone["input_ids"].shape[1] :]
        assert together[row, : len(answer)].tolist() == answer.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_all_linear_layers_of_the_blocks_are_adapted(family: str, tiny_base: Callable[[str], Path]) -> None:
    """What peft makes of the default: every linear layer of both blocks, and no output matrix."""
    model: Any = load_model(str(tiny_base(family)), "float32")
    config = LoraConfig(target_modules=lora_targets(str(tiny_base(family))), fan_in_fan_out=family == "gpt2")
    adapted = [
        name.removeprefix("base_model.model.")
        for name, module in get_peft_model(model, config).named_modules()
        if isinstance(module, LoraLayer)
    ]
    per_block = 4 if family == "gpt2" else 7  # c_proj is there twice in a block of GPT-2
    assert len(adapted) == 2 * per_block
    assert {name.rpartition(".")[2] for name in adapted} == LINEAR[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_target_that_is_not_there_lists_those_that_are(family: str) -> None:
    config = make_config(family, 300)
    right = sorted(LINEAR[family])
    assert lora_targets(config, right) == right
    message = refusal(lambda: lora_targets(config, [right[0], "no_such_layer"]))
    assert message.startswith("model.lora.target_modules=")
    assert f"no linear layer is named no_such_layer; a {family} model has {', '.join(right)} (null" in message


@pytest.mark.parametrize("wrong", ["lm_head", "wte", "proj", "attn", ""])
def test_lora_targets_are_linear_layers_of_the_blocks(wrong: str) -> None:
    refusal(lambda: lora_targets(make_config("gpt2", 300), [wrong]))


def test_lora_targets_may_be_longer_ends_and_may_not_be_empty() -> None:
    assert lora_targets(make_config("gpt2", 300), ["attn.c_proj"]) == ["attn.c_proj"]
    assert "no layer is named" in refusal(lambda: lora_targets(make_config("gpt2", 300), []))


def test_lora_targets_read_no_weights(gpt2_base: Path, tmp_path: Path) -> None:
    shutil.copy(gpt2_base / "config.json", tmp_path)
    assert lora_targets(str(tmp_path), ["c_attn"]) == ["c_attn"]


def test_max_positions_of_nested_and_open_configurations() -> None:
    assert max_positions(GPT2Config(n_positions=77)) == 77
    nested = Gemma3Config(text_config={"max_position_embeddings": 55}, vision_config={})
    assert max_positions(nested) == 55
    assert max_positions(DistilBertConfig(max_position_embeddings=44)) == 44
    assert max_positions(BloomConfig()) is None  # its attention fades with distance and has no limit


def test_hidden_size_needs_an_output_matrix() -> None:
    classifier = DistilBertForSequenceClassification(DistilBertConfig(n_layers=1, dim=16, n_heads=2, hidden_dim=16))
    assert "no output matrix" in refusal(lambda: hidden_size(classifier))


def test_copies_of_the_model_keep_the_hook(llama_base: Path) -> None:
    model: Any = copy.deepcopy(load_model(str(llama_base), "float32"))
    assert contiguous_input in model.get_output_embeddings()._forward_pre_hooks.values()
