"""Features by a torch module of the user's own, with weights on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpsweep.accounting.codec import positive_int
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.accounting.stored_names.stored_classes import with_current_paths_of_our_classes
from dpsweep.trainers.data.published_files import sha256_of_file_or_folder
from dpsweep.trainers.features.interface import InputForm, check_extractor_settings
from dpsweep.trainers.user_modules import import_named_object

if TYPE_CHECKING:
    from torch import nn

TARGET = "_target_"


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A module from inputs [n, *shape] to features [n, size], made by the class or function `source._target_`.

    `weights` is the file, or the folder (as Hugging Face's), that the module reads; `source` has its arguments, the
    path among them. `sha256` is the checksum of the file, or of a folder as `sha256_of_file_or_folder` computes it.
    """

    source: Mapping[str, Any]
    weights: Place
    sha256: str
    size: int
    norm: float
    trained_on: str
    fallback: ClassVar[str] = "Without it: features=none."
    """What runs without the extractor."""

    def __post_init__(self) -> None:
        positive_int("features.size", self.size)
        check_extractor_settings(self)
        if not isinstance(self.source, Mapping) or "." not in str(self.source.get(TARGET)):
            raise ValueError(f"Expected features.source={self.source!r} to have {TARGET}, a class as module.Class.")
        if not Path(self.weights).expanduser().is_absolute():
            raise ValueError(f"Expected features.weights={self.weights} to be an absolute path.")

    def check(self, form: InputForm) -> None:
        """Take any inputs: the module itself is tried before the charge."""

    def locate(self) -> None:
        """Compare the weights with their checksum."""
        path = Path(self.weights).expanduser()
        if (digest := sha256_of_file_or_folder(path)) != self.sha256:
            raise ValueError(f"Expected features.weights={path} to have sha256={self.sha256}, got {digest}.")

    def module(self, form: InputForm) -> nn.Module:
        """The user's module."""
        import torch

        from dpsweep.trainers.features.scaled_rows import ScaledRows

        self.locate()
        target = str(self.source[TARGET])
        arguments = {
            key: value for key, value in with_current_paths_of_our_classes(self.source).items() if key != TARGET
        }
        try:
            with torch.random.fork_rng(devices=[]):
                module = import_named_object(target)(**arguments)
        except Exception as error:  # the user's own code may raise anything
            line = " ".join(str(error).split())
            raise ValueError(f"Expected features.source._target_={target} to make a module: {line}.") from error
        if not isinstance(module, torch.nn.Module):
            raise ValueError(f"Expected {target} to make a torch.nn.Module, got {type(module).__name__}.")
        return ScaledRows(module, self.norm)
