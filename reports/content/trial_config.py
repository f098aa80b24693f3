"""What a page reads from a trial's stored configuration: frozen features, base model, adapter, script, data set.

No file is opened, and no class of the user is imported. What is released of each part is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import (
    SCRIPT,
    build_from_stored_form,
    class_name_without_module,
    fields_without_class_name,
    tag_or_path_of_class,
)


def require_stored_integer(name: str, value: object, least: int = 0) -> int:
    """A stored value, if it is an integer of at least `least`; raises `ValueError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"Expected {name}={value!r} to be an integer >= {least}.")
    return value


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures:
    """The settings of an extractor in a stored configuration; nothing of it is built or imported."""

    node: Mapping[str, Any]

    @classmethod
    def from_trial_config(cls, config: Mapping[str, Any]) -> FrozenFeatures | None:
        """The features of a trial's configuration; None if its inputs are the data set's own."""
        node = config.get("features")
        return cls(node=node) if node else None

    @property
    def extractor_class(self) -> str:
        """The class of the extractor."""
        return class_name_without_module(self.node)

    @property
    def label(self) -> str:
        """The extractor as a page names it: its class, and the model's name where a folder gives one."""
        return f"{self.extractor_class} ({self.node['weights']})" if "path" in self.node else self.extractor_class

    @property
    def has_weights(self) -> bool:
        """Whether the extractor was trained; otherwise it is a formula."""
        return self.node.get("weights") is not None

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
    def can_be_rebuilt_by_readers(self) -> bool:
        """Whether the code of ours and a published package suffice to compute the features."""
        return not self.has_weights or self.weights_package is not None

    @property
    def feature_count(self) -> int:
        """The number of features of a record."""
        return require_stored_integer("features.size", self.node["size"])

    @property
    def row_norm(self) -> float:
        """The norm of each row of features."""
        return float(self.node["norm"])

    @property
    def weights_package(self) -> str | None:
        """The package with the weights; None if they are a file of the curator's, which no reader has."""
        weights = self.node.get("weights")
        return weights.get("package") if isinstance(weights, Mapping) else None

    @property
    def settings_for_release(self) -> dict[str, Any]:
        """The settings as they are released: of a file or a class of the user's only the name, and no path."""
        settings = {key: value for key, value in fields_without_class_name(self.node).items() if key != "source"}
        if "path" in settings:
            settings["path"] = PurePath(str(settings["path"])).name
        if not self.has_weights:
            return {"kind": tag_or_path_of_class(self.node), "settings": settings}
        weights = settings["weights"]
        if not isinstance(weights, Mapping):
            settings["weights"] = PurePath(str(weights)).name
        elif self.weights_package is None:
            settings["weights"] = {**weights, "file": PurePath(str(weights["file"])).name}
        return {"kind": tag_or_path_of_class(self.node), "settings": settings}


FOLDER_MODELS = frozenset({"hf", "hf_causal"})
"""Tags of models that start from a folder whose facts planning wrote into the plan."""


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """The settings of a pretrained folder in a stored configuration; nothing of it is built or read."""

    node: Mapping[str, Any]

    @classmethod
    def from_trial_config(cls, config: Mapping[str, Any]) -> BaseModel | None:
        """The base of a trial's model; None if the model does not start from a folder."""
        node = config.get("model", {})
        return cls(node=node) if tag_or_path_of_class(node) in FOLDER_MODELS else None

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
    def settings_for_release(self) -> dict[str, Any]:
        """The settings as they are released: of the folder only its name, and no path."""
        return {**self.node, "path": PurePath(str(self.node["path"])).name}

    @property
    def arguments_to_rebuild_model(self) -> dict[str, Any]:
        """The arguments that build the same model from a file of all its weights."""
        needed = ("architecture", "padding", "pooling", "trained")
        return {key: value for key, value in fields_without_class_name(self.node).items() if key in needed}


def adapter_in_words(config: Mapping[str, Any]) -> str | None:
    """The adapter of a trial's configuration with its rank and layers; None without one."""
    node = config.get("adapter")
    if not node:
        return None
    return (
        f"{class_name_without_module(node)} of rank {node['rank']} on the layers named "
        f"{', '.join(map(str, node['targets']))}"
    )


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """The file name of a script, without its folder, and the SHA-256 of its content."""

    name: str
    sha256: str

    @classmethod
    def from_trial_config(cls, config: Mapping[str, Any]) -> UserScript | None:
        """The script of a trial's configuration; None if dpsweep trained it."""
        trainer = config.get("trainer", {})
        if tag_or_path_of_class(trainer) != SCRIPT:
            return None
        return cls(name=PurePath(str(trainer.get(SCRIPT, ""))).name, sha256=str(trainer.get("sha256", "")))

    @property
    def label(self) -> str:
        """The script as a page names it."""
        return f"{self.name} (sha256 {self.sha256})"


def user_scripts_of_plan(plan: Plan) -> tuple[UserScript, ...]:
    """The scripts of a plan's points; empty if dpsweep trains all of them."""
    found = (UserScript.from_trial_config(trial.config) for trial in plan.trials)
    return tuple(dict.fromkeys(script for script in found if script is not None))


def trainer_settings_for_release(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """A trainer's settings as they are released: of a script only the file name, and no path."""
    script = UserScript.from_trial_config({"trainer": trainer})
    return dict(trainer) if script is None else {**trainer, SCRIPT: script.name}


def stored_dataset_attribute_or_none(dataset: Mapping[str, Any], name: str) -> Any:
    """A member of a data set: `preprocessing`, `caution`.

    None if the data set has none, if it is a class of the user, or if this version cannot read the declaration.
    """
    try:
        return getattr(build_from_stored_form(dataset, "dataset"), name)
    except (DpsweepError, ValueError, TypeError, KeyError, ImportError):
        return None
