"""The configurations of the points that have the same axes, resolved without Hydra's composition.

Most parts of a configuration are the same for all points: those that no axis is in and that refer to nothing. They are
resolved once, and the points share them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import name_of, stored_config
from dpsweep.accounting.names.typed_names import typed_key
from dpsweep.sweeper.trial.base_weights import with_base_weights
from dpsweep.sweeper.trial.spec import SAME_BOUND

BY_GRID = "by_grid"
"""The trainer that stands for the methods of the grid."""

IDENTITY = (
    "dataset",
    "model",
    "loss",
    "trainer",
    "schedule",
    "bounds",
    "sampler",
    "subsample",
    "score",
    "engine",
    "steps",
    "checkpoint",
    "privacy",
    "seed",
)
"""The stored keys that identify a trial; devices, paths and budgets are not among them."""

WHERE_GIVEN = ("ema", "augmentation", "features", "adapter")
"""Further keys that identify a trial; they are not stored if they are null or empty."""

UNLESS_SAID = (
    ("dataset", "public", False),
    ("score", "every", None),
    ("score", "metric", "accuracy"),
    ("score", "positive", 1),
    ("score", "bins", 20),
)
"""Group, key and default of keys that are not stored at their default: a user's own class need not know them."""

_NO_UNITS: Mapping[str, Any] = dict.fromkeys(("unit_column", "units", "contribution_cap"))

SINCE: Mapping[str, Mapping[str, Any]] = {
    "table": {"categories": None, "test_file": None, "test_records": 0},
    "npz": _NO_UNITS,
    "torch_dataset": _NO_UNITS,
}
"""Keys that a data set of ours has had since after 0.1.0; they are not stored at their default either."""

HYPERPARAMETERS = "hyperparameters"
"""The key below a trainer whose fields are the user's."""

NAMING_WEIGHTS = ("dataset", "model")
"""The parts that name pretrained folders."""

REFERENCE = "${"
"""How a reference to another part of the configuration begins."""


class Resolver:
    """The identity parts of the points of one method, whose configuration has been composed.

    `config` is updated for every point, and `axes` are the keys that differ between points. With the same axes, the
    parts of two points are the same objects where no axis changes them: nobody may write to them.
    """

    def __init__(self, config: DictConfig, axes: Collection[str], trainer: str) -> None:
        self._config = config
        self._trainer = trainer
        self._by_grid = choice_of(config, "trainer") == BY_GRID
        roots = {axis.partition(".")[0] for axis in axes}
        names = (*IDENTITY, *WHERE_GIVEN)
        differing = {name for name in names if typed_key(name) in roots or _refers(config, typed_key(name))}
        if differing.intersection(NAMING_WEIGHTS):
            differing |= {*NAMING_WEIGHTS}
        self._order = names
        self._differing = [name for name in names if name in differing]
        self._alike = [name for name in names if name not in differing]
        self._shared: dict[str, Any] | None = None

    def point(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The identity part of the configuration with these values of the axes."""
        config = self._config
        if OmegaConf.is_dict(own := config.trainer.get(HYPERPARAMETERS)):
            OmegaConf.set_struct(own, False)  # a script's hyperparameters have names of its own
        for key, value in values.items():
            try:
                OmegaConf.update(config, key, value)
            except OmegaConfBaseException:
                raise BadInput(
                    f"Expected {key} to be a field of trainer={self._trainer}; {_fields(config, key)}."
                ) from None
        if self._shared is None:
            self._shared = self._resolved(self._alike)
        parts = self._shared | self._resolved(self._differing)
        return {name: parts[name] for name in self._order if name in parts}

    def _resolved(self, names: Iterable[str]) -> dict[str, Any]:
        """These parts as they are stored; without those that are not stored at their default."""
        config = self._config
        resolved: dict[str, Any] = {}
        for name in names:
            if name in WHERE_GIVEN and config[name] in (None, {}):
                continue
            node = config[typed_key(name)]
            resolved[name] = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        if "trainer" in resolved and self._by_grid:  # a user's class gets no unset keys
            resolved["trainer"] = {key: value for key, value in resolved["trainer"].items() if value is not None}
        resolved = stored_config(resolved)
        if resolved.keys() >= {*NAMING_WEIGHTS}:
            resolved = with_base_weights(resolved)
        return _without_defaults(resolved)


def choice_of(config: DictConfig, group: str) -> str:
    """The option that a composed configuration uses for a config group."""
    return str(OmegaConf.select(config, f"hydra.runtime.choices.{group}"))


def _without_defaults(parts: dict[str, Any]) -> dict[str, Any]:
    since = SINCE.get(name_of(parts["dataset"]), {}) if "dataset" in parts else {}
    for group, key, value in (*UNLESS_SAID, *(("dataset", key, value) for key, value in since.items())):
        if group in parts and parts[group].get(key, value) == value:
            parts[group].pop(key, None)
    if parts.get("bounds") == SAME_BOUND:
        del parts["bounds"]
    return parts


def _refers(config: DictConfig, name: str) -> bool:
    """Whether a part of a configuration refers to another part."""
    node = config._get_node(name)
    return REFERENCE in str(node if not OmegaConf.is_config(node) else OmegaConf.to_container(node, resolve=False))


def _fields(config: DictConfig, key: str) -> str:
    """The fields that the group of a wrong key has."""
    group = key.partition(".")[0]
    node = config.get(group)
    known = sorted(str(name) for name in node if name != "_target_") if OmegaConf.is_dict(node) else []
    return f"{group} has {', '.join(known)}" if known else f"there is no {group}"
