"""What a plan states of pretrained folders: planning writes it into each point's configuration where it is null.

The checksum makes the weights part of a plan's identity; the architecture is what a job builds; name and licence are
shown on the page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dpsweep.accounting.stored_names.stored_classes import name_of
from dpsweep.trainers.data.published_files import PretrainedFolder, require_extra, words_of

PATH, CLASSES = "path", "classes"

Facts = Callable[[PretrainedFolder], Mapping[str, Callable[[], object]]]


def with_base_weights(config: Mapping[str, Any]) -> dict[str, Any]:
    """A point's configuration with the facts of the folders that its model and its vocabulary name.

    A data set's number of classes that is null becomes the number of words of its model, or of its vocabulary.

    Raises `BadInput` with one sentence if a folder lacks a file, or the package that reads it is missing.
    """
    completed = dict(config)
    completed["model"] = _add_facts_to_part(config["model"])
    dataset = config["dataset"]
    if isinstance(dataset.get("vocabulary"), Mapping):
        completed["dataset"] = {**dataset, "vocabulary": _add_facts_to_part(dataset["vocabulary"])}
    if dataset.get(CLASSES, 0) is None:
        completed["dataset"] = {**completed["dataset"], CLASSES: _words(completed["model"], completed["dataset"])}
    return completed


def _words(model: Mapping[str, Any], dataset: Mapping[str, Any]) -> object:
    """The number of words whose logits a language model gives: its architecture's, else the vocabulary's."""
    words = model.get("architecture", {}).get("vocab_size")
    return dataset.get("vocabulary", {}).get("words") if words is None else words


def _add_facts_to_part(node: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = FACTS.get(name_of(node))
    if facts is None:
        return node
    require_extra("transformers")
    known = facts(PretrainedFolder(path=node.get(PATH, "")))
    return {**node, **{key: fact() for key, fact in known.items() if node.get(key) is None}}


def _of_model(folder: PretrainedFolder) -> Mapping[str, Callable[[], object]]:
    return {
        "sha256": folder.checksum,
        "architecture": lambda: folder.architecture,
        "padding": lambda: folder.padding,
        "name": lambda: folder.name,
        "licence": lambda: folder.licence,
    }


def _of_tokenizer(folder: PretrainedFolder) -> Mapping[str, Callable[[], object]]:
    return {
        "sha256": lambda: hashlib.sha256(folder.tokenizer()).hexdigest(),
        "words": lambda: words_of(folder.tokenizer(), folder.path),
        "padding": lambda: folder.padding,
    }


FACTS: Mapping[str, Facts] = MappingProxyType(
    {"hf": _of_model, "hf_causal": _of_model, "folder_tokenizer": _of_tokenizer}
)
"""By the tag of a part that names a folder in `path`: how to compute each of its keys."""
