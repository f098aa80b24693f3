"""The pretrained folder and the adapter in a trial's configuration: what a page says, and what is released of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dpsweep.accounting.names.stored_classes import class_name, fields_of, name_of

FOLDER_MODELS = frozenset({"hf", "hf_causal"})
"""Tags of models that start from a folder whose facts planning wrote into the plan."""


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """The settings of a pretrained folder in a stored configuration; nothing of it is built or read."""

    node: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> BaseModel | None:
        """The base of a trial's model; None if the model does not start from a folder."""
        node = config.get("model", {})
        return cls(node=node) if name_of(node) in FOLDER_MODELS else None

    @property
    def name(self) -> str:
        """The name of the base model."""
        return str(self.node["name"])

    @property
    def licence(self) -> str:
        """The licence that its model card states."""
        return str(self.node["licence"])

    @property
    def sha256(self) -> str:
        """The checksum of its files of weights."""
        return str(self.node["sha256"])

    @property
    def released(self) -> dict[str, Any]:
        """The settings as they are released: of the folder only its name, and no path."""
        return {**self.node, "path": PurePath(str(self.node["path"])).name}

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that build the same model from a file of all its weights."""
        needed = ("architecture", "padding", "pooling", "trained")
        return {key: value for key, value in fields_of(self.node).items() if key in needed}


def adapter_in_words(config: Mapping[str, Any]) -> str | None:
    """The adapter of a trial's configuration with its rank and layers; None without one."""
    node = config.get("adapter")
    if not node:
        return None
    return f"{class_name(node)} of rank {node['rank']} on the layers named {', '.join(map(str, node['targets']))}"
