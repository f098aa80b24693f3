"""Folders of pretrained models in Hugging Face's layout: what a plan declares of one, read without torch.

A folder has `config.json` (the architecture) and files of weights, `*.safetensors`; for texts also `tokenizer.json`.
Planning writes the architecture and the checksum of the weights into each trial's configuration, so a plan states the
weights that its sweep starts from, and a job that finds others refuses to train. Nothing is ever downloaded, and no
code of a folder is run. The account does not cover the data that the weights were trained on: they count as public.
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
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.pretrained_files import digest_of

CONFIG, TOKENIZER, CARD = "config.json", "tokenizer.json", "README.md"
WEIGHTS = "*.safetensors"
UNKNOWN = "not stated"
"""The licence of a folder whose model card states none."""

_LICENCE = re.compile(r"^license:\s*[\"']?([\w.\- ]+)", re.MULTILINE)
_HEADING = re.compile(r"^# (.{1,80})$", re.MULTILINE)
_CACHED = "models--"
"""How the cache of Hugging Face begins the name of a model's folder."""
_RUNTIME = ("transformers_version", "torch_dtype", "dtype", "_name_or_path", "auto_map", "use_cache")
"""Keys of `config.json` that do not describe the architecture."""


@dataclass(frozen=True, kw_only=True)
class PretrainedFolder:
    """A folder of a pretrained model; `path` is absolute, or begins with the user's home folder (~).

    Errors: `BadInput`, one sentence that names the folder and the missing file.
    """

    path: str

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self._folder.is_absolute():
            raise BadInput(f"Expected model.path={self.path} to be an absolute path of a folder.")

    @property
    def _folder(self) -> Path:
        return Path(self.path).expanduser()

    @property
    def name(self) -> str:
        """The model's name: the first heading of the model card, else that of the folder or of its cache entry."""
        _, _, body = self._card()
        if (heading := _HEADING.search(body)) is not None:
            return heading[1].strip()
        cached = self._folder.parents[1].name if len(self._folder.parents) > 1 else ""
        return cached.removeprefix(_CACHED).replace("--", "/") if cached.startswith(_CACHED) else self._folder.name

    @property
    def licence(self) -> str:
        """The licence that the model card states at its top, else `UNKNOWN`."""
        _, head, _ = self._card()
        match = _LICENCE.search(head)
        return match[1].strip() if match else UNKNOWN

    @property
    def architecture(self) -> dict[str, Any]:
        """The architecture in `config.json`, without what only describes how the file was made."""
        config = {key: value for key, value in self._config().items() if key not in _RUNTIME}
        if not isinstance(config.get("model_type"), str):
            raise BadInput(f"Expected {self._folder / CONFIG} to name a model_type.")
        return config

    @property
    def padding(self) -> int:
        """The token number after a text's last word: that of padding, else of the end of a text, else 0."""
        config = self._config()
        numbers = (config.get("pad_token_id"), config.get("eos_token_id"), 0)
        return next(number for number in numbers if isinstance(number, int))

    def checksum(self) -> str:
        """The SHA-256 of the names and SHA-256 of the files of weights, in order."""
        files = sorted(self._folder.glob(WEIGHTS)) if self._folder.is_dir() else []
        if not files:
            raise BadInput(
                f"Expected model.path={self.path} to be a folder with weights, {WEIGHTS}: nothing is downloaded."
            )
        lines = "".join(f"{digest_of(file)}  {file.name}\n" for file in files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def tokenizer(self) -> bytes:
        """The bytes of `tokenizer.json`."""
        return self._read(TOKENIZER)

    def _card(self) -> tuple[str, str, str]:
        """The model card as the text before, in and after its header of keys; empty texts where there is none."""
        card = self._folder / CARD
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        parts = text.split("---", 2)
        return (parts[0], parts[1], parts[2]) if text.startswith("---") and len(parts) == 3 else ("", "", text)

    def _config(self) -> Mapping[str, Any]:
        content = self._read(CONFIG)
        try:
            config = json.loads(content)
        except ValueError as cause:
            raise BadInput(f"Expected {self._folder / CONFIG} to be JSON: {cause}.") from cause
        if not isinstance(config, Mapping):
            raise BadInput(f"Expected {self._folder / CONFIG} to be a JSON object.")
        return config

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        try:
            return path.read_bytes()
        except OSError as cause:
            raise BadInput(
                f"Expected model.path={self.path} to be a folder with {name}: nothing is downloaded."
            ) from cause


@lru_cache(maxsize=4)
def words_of(tokenizer: bytes, path: str) -> int:
    """The number of entries in a `tokenizer.json`: the largest token number, plus 1."""
    try:
        content = json.loads(tokenizer)
        vocabulary = content["model"]["vocab"]
        numbers: Iterable[int] = vocabulary.values() if isinstance(vocabulary, Mapping) else range(len(vocabulary))
        added = [token["id"] for token in content.get("added_tokens", ())]
        return max((*map(int, numbers), *map(int, added))) + 1
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BadInput(f"Expected {TOKENIZER} in {path} to have a vocabulary: {cause!r}.") from cause


def require_extra(package: str) -> None:
    """Raises `BadInput` with the command that installs it unless the package is installed."""
    if find_spec(package) is None:
        raise BadInput(f"Expected {package} to be installed for a Hugging Face model: pip install 'dpsweep[hf]'.")
