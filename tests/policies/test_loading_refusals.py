"""Bases that can't be used: each is refused with one line that names the key and the remedy."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, BertConfig, DistilBertConfig, LlamaForSequenceClassification

from lit_cory.hub import hub_model
from lit_cory.policies.loading import hidden_size, load_config, load_model, load_tokenizer, resolve_base
from tests.policies.refusal import refusal
from tests.tiny import make_base, make_config

# Names that can't be used


def test_folder_without_a_model(tmp_path: Path) -> None:
    assert "no config.json; name a folder with a model" in refusal(lambda: resolve_base(str(tmp_path)))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "holds an adapter; name the model that it was trained on" in refusal(lambda: resolve_base(str(tmp_path)))


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "~/no/where", "../nowhere", "a/b/c", "C:\\models\\x", ""])
def test_path_that_is_not_there(name: str) -> None:
    message = refusal(lambda: resolve_base(name))
    assert message.startswith(f"model.base={name}: no such folder; ")
    assert "bundled:smollm2-135m" in message


def test_home_folder_is_expanded(gpt2_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gpt2_base.parent))
    assert resolve_base(f"~/{gpt2_base.name}") == str(gpt2_base)


def test_hub_id_is_passed_on() -> None:
    assert resolve_base("openai-community/gpt2-large") == "openai-community/gpt2-large"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    """A hub on this machine that knows no model."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def test_model_that_the_hub_does_not_know(hub: HTTPServer) -> None:
    message = refusal(lambda: load_config("someone/gpt-9"))
    assert message.startswith("model.base=someone/gpt-9: no such folder, and no model on the hub that you may read")


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once: the hub's own client would go on for most of a minute, waiting in between."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits to try again"))
    message = refusal(lambda: load_config("someone/gpt-9"))
    assert message.startswith("model.base=someone/gpt-9: no such folder, and the hub is out of reach (ConnectError)")
    assert "a local folder or bundled:smollm2-135m, bundled:gemma3-270m needs no hub" in message


def test_hub_switched_off() -> None:
    message = refusal(lambda: load_model("someone/gpt-9"))
    assert message.startswith("model.base=someone/gpt-9: no such folder, and the hub is switched off (HF_HUB_OFFLINE)")


@pytest.fixture
def hub_cache(gpt2_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub's cache on this disk, holding someone/cached."""
    repo = tmp_path / "models--someone--cached"
    commit = "0" * 40
    shutil.copytree(gpt2_base, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    yield
    hub_model.cache_clear()


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("offline", [True, False])
def test_model_in_the_hub_cache_needs_no_hub(offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits to try again"))
    assert load_tokenizer("someone/cached").pad_token_id == 0
    model: Any = load_model("someone/cached", "float32")
    assert (hidden_size(model), model.name_or_path) == (32, "someone/cached")


# Files that can't be used


@pytest.fixture
def folder(gpt2_base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(gpt2_base, tmp_path / "base"))


def test_weights_that_cannot_be_read(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    assert f"model.base={folder}: it can't be loaded" in refusal(lambda: load_model(str(folder)))
    file.unlink()
    assert "model.safetensors" in refusal(lambda: load_model(str(folder)))


def test_pickled_weights_are_refused(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    load_model(str(folder))  # harmless beside safetensors, which are read in its place
    (folder / "model.safetensors").unlink()
    message = refusal(lambda: load_model(str(folder)))
    assert "pytorch_model.bin is a pickle file, which may run code when it is read; save the model as safe" in message


def test_weights_that_are_not_all_there(llama_base: Path, tmp_path: Path) -> None:
    """A classifier has no output matrix: transformers would make up a random one."""
    shutil.copytree(llama_base, tmp_path / "base")
    classifier: Any = LlamaForSequenceClassification(make_config("llama", 385))  # type: ignore[no-untyped-call]
    classifier.save_pretrained(tmp_path / "base")
    assert "its weights lack lm_head.weight (1 missing" in refusal(lambda: load_model(str(tmp_path / "base")))


def test_weights_of_another_width(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_embd": 16}))
    assert "it can't be loaded" in refusal(lambda: load_model(str(folder)))


@pytest.mark.parametrize("config", [BertConfig(), DistilBertConfig()])
def test_model_that_does_not_write_text(config: BertConfig, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    message = refusal(lambda: load_config(str(tmp_path)))
    assert f"a model of type {config.model_type} is no causal language model" in message


def test_configuration_that_cannot_be_read(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert f"model.base={folder}: it can't be loaded" in refusal(lambda: load_config(str(folder)))
    (folder / "config.json").write_text('{"model_type": "no_such_type"}')
    assert "no_such_type" in refusal(lambda: load_config(str(folder)))


def test_code_in_the_folder_is_not_run(folder: Path) -> None:
    (folder / "code.py").write_text("open('ran', 'w')\nraise SystemExit('code of the folder ran')\n")
    entries = {"model_type": "of_its_own", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.LM"}}
    (folder / "config.json").write_text(json.dumps(entries))
    assert "it can't be loaded" in refusal(lambda: load_model(str(folder)))


def test_tokenizer_that_is_missing(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert f"model.base={folder}: there is no tokenizer" in refusal(lambda: load_tokenizer(str(folder)))


def test_model_without_an_end_token(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "gpt2", bos=True)
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        entries = json.loads((base / file).read_text())
        (base / file).write_text(json.dumps(entries | {"eos_token_id": None, "eos_token": None}))
    assert "no token ends an answer" in refusal(lambda: load_model(str(base)))
