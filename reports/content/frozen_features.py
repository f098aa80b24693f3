"""The frozen features of a trial's configuration: their extractor, its public training data and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dpsweep.accounting.names.stored_classes import class_name, fields_of, name_of
from dpsweep.accounting.numbers import whole


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures:
    """The settings of an extractor in a stored configuration; nothing of it is built or imported."""

    node: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> FrozenFeatures | None:
        """The features of a trial's configuration; None if its inputs are the data set's own."""
        node = config.get("features")
        return cls(node=node) if node else None

    @property
    def extractor(self) -> str:
        """The class of the extractor."""
        return class_name(self.node)

    @property
    def trained_on(self) -> str:
        """The data that the weights were trained on, declared public."""
        return str(self.node["trained_on"])

    @property
    def sha256(self) -> str:
        """The checksum of the weights."""
        weights = self.node["weights"]
        return str(weights["sha256"] if isinstance(weights, Mapping) else self.node["sha256"])

    @property
    def size(self) -> int:
        """The number of features of a record."""
        return whole("features.size", self.node["size"])

    @property
    def norm(self) -> float:
        """The norm of each row of features."""
        return float(self.node["norm"])

    @property
    def package(self) -> str | None:
        """The package with the weights; None if they are a file of the curator's, which no reader has."""
        weights = self.node["weights"]
        return weights.get("package") if isinstance(weights, Mapping) else None

    @property
    def released(self) -> dict[str, Any]:
        """The settings as they are released: of a file or a class of the user's only the name, and no path."""
        settings = {key: value for key, value in fields_of(self.node).items() if key != "source"}
        weights = settings["weights"]
        if not isinstance(weights, Mapping):
            settings["weights"] = PurePath(str(weights)).name
        elif self.package is None:
            settings["weights"] = {**weights, "file": PurePath(str(weights["file"])).name}
        return {"kind": name_of(self.node), "settings": settings}
