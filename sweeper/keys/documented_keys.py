"""Every configuration key of conf/, with its meaning and its value in each choice of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from dpsweep.sweeper.keys.yaml_comments import GLOBAL, CommentedKey, commented_keys

CONF = Path(__file__).resolve().parents[2] / "conf"

ROOT = "config"
"""The file of keys that belong to no group."""

NOT_EXPLAINED = ("experiment",)
"""Groups whose files set keys of other groups only."""

INNER = (
    *(
        "dataset.files",
        "dataset.bounds.",
        "dataset.vocabulary.",
        "dataset.distribution",
        "dataset.file.",
        "dataset.md5",
    ),
    *("dataset.pool", "dataset.parts", "dataset.folders", "accountant.", "features.weights.", "model.weights."),
    *("features.heads", "features.first_place", "features.eps", "model.heads", "model.first_place", "model.eps"),
    *("grid.axes.", "lr_schedule.then", "tuning.rule", "trainer.sha256", "model.sha256", "policy."),
)
"""Beginnings of keys that describe a published file or model, or that the program fills in."""


@dataclass(frozen=True, kw_only=True)
class DocumentedKey:
    """A configuration key.

    `values` has the value as written by where it stands: `group=choice`, or the empty text for conf/config.yaml.
    `comments` has the comments that explain it, by where they stand.
    """

    name: str
    values: Mapping[str, str]
    comments: Mapping[str, str]

    @property
    def meaning(self) -> str:
        """What the key means in most places that explain it; empty where none does."""
        return max(self.comments.values(), key=list(self.comments.values()).count, default="")

    @property
    def is_number(self) -> bool:
        """Whether any of its values is a number."""
        return any(_is_number(value) for value in self.values.values())


@cache
def documented_keys(conf: Path = CONF) -> Mapping[str, DocumentedKey]:
    """The keys of a configuration folder by name, those of no group first."""
    values: dict[str, dict[str, str]] = {}
    comments: dict[str, dict[str, str]] = {}
    for place, key in _all_keys(conf):
        values.setdefault(key.name, {})[place] = key.value
        if key.comment and _explains(place, key.name):
            comments.setdefault(key.name, {})[place] = key.comment
    return {
        name: DocumentedKey(name=name, values=found, comments=comments.get(name, {})) for name, found in values.items()
    }


@cache
def choices(conf: Path = CONF) -> Mapping[str, tuple[str, ...]]:
    """The options of every group, without those in folders below."""
    groups = sorted(path for path in conf.iterdir() if path.is_dir())
    return {group.name: tuple(sorted(file.stem for file in group.glob("*.yaml"))) for group in groups}


@cache
def default_choices(conf: Path = CONF) -> Mapping[str, str]:
    """The choice that conf/config.yaml makes in each group, where it makes one."""
    defaults = yaml.safe_load((conf / f"{ROOT}.yaml").read_text(encoding="utf-8"))["defaults"]
    return {group: str(choice) for item in defaults if isinstance(item, dict) for group, choice in item.items()}


def file_of(group: str, choice: str, conf: Path = CONF) -> Path:
    """The YAML of a choice."""
    return conf / group / f"{choice}.yaml"


def is_known(key: str) -> bool:
    """Whether the first part of a key is a group, or a key, of conf/ or of Hydra's."""
    root = key.partition(".")[0].partition("/")[0]
    return root == "hydra" or root in choices() or any(name.partition(".")[0] == root for name in documented_keys())


def is_inner(name: str) -> bool:
    """Whether a key describes a published file, or is filled in by the program, so that nobody gives it."""
    return name.startswith(INNER)


def _all_keys(conf: Path) -> Iterator[tuple[str, CommentedKey]]:
    for key in commented_keys(conf / f"{ROOT}.yaml"):
        yield "", key
    for group, options in choices(conf).items():
        if group in NOT_EXPLAINED:
            continue
        for choice in options:
            path = file_of(group, choice, conf)
            prefix = "" if path.read_text(encoding="utf-8").startswith(GLOBAL) else f"{group}."
            for key in commented_keys(path):
                yield f"{group}={choice}", CommentedKey(name=prefix + key.name, value=key.value, comment=key.comment)


def _explains(place: str, name: str) -> bool:
    """Whether a comment there says what a key means; in a file of another group it says why that value was chosen."""
    return not place or place.partition("=")[0] == name.partition(".")[0]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
