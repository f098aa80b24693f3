"""What a plan states of pretrained folders and extractors: planning writes it where a point's configuration has null.

The checksum makes the weights part of a plan's identity; the architecture is what a job builds; name and licence are
shown on the page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form, tag_or_path_of_class
from dpsweep.trainers.data.published_files import (
    PretrainedFolder,
    number_of_tokenizer_entries,
    require_installed_package,
)
from dpsweep.trainers.features.interface import ExtractorWithFacts

PATH, CLASSES, FEATURES = "path", "classes", "features"

Facts = Callable[[PretrainedFolder], Mapping[str, Callable[[], object]]]


def config_with_base_weight_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """A point's configuration with the facts of the folders that its model and vocabulary name, and of its extractor.

    A data set's number of classes that is null becomes the number of words of its model, or of its vocabulary.

    Raises `BadInput` with one sentence if a folder lacks a file, or the package that reads it is missing.
    """
    completed = dict(config)
    completed["model"] = _add_facts_to_part(config["model"])
    dataset = config["dataset"]
    if isinstance(dataset.get("vocabulary"), Mapping):
        completed["dataset"] = {**dataset, "vocabulary": _add_facts_to_part(dataset["vocabulary"])}
    if config.get(FEATURES):
        completed[FEATURES] = _add_extractor_settings(config[FEATURES], dataset)
    if dataset.get(CLASSES, 0) is None:
        completed["dataset"] = {
            **completed["dataset"],
            CLASSES: _vocabulary_size(completed["model"], completed["dataset"]),
        }
    return completed


def _vocabulary_size(model: Mapping[str, Any], dataset: Mapping[str, Any]) -> object:
    """The number of words whose logits a language model gives: its architecture's, else the vocabulary's."""
    words = model.get("architecture", {}).get("vocab_size")
    return dataset.get("vocabulary", {}).get("words") if words is None else words


def _add_extractor_settings(node: Mapping[str, Any], dataset: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        extractor = build_from_stored_form(node, FEATURES, lambda node, family: None)
        if not isinstance(extractor, ExtractorWithFacts):
            return node
        known = extractor.settings_from_shape(tuple(dataset.get("shape") or ()))
    except (ValueError, TypeError) as cause:
        raise BadInput(str(cause)) from cause
    return {**node, **{key: value for key, value in known.items() if node.get(key) is None}}


def _add_facts_to_part(node: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = FACTS.get(tag_or_path_of_class(node))
    if facts is None:
        return node
    require_installed_package("transformers")
    known = facts(PretrainedFolder(path=node.get(PATH, "")))
    return {**node, **{key: fact() for key, fact in known.items() if node.get(key) is None}}


def _model_folder_facts(folder: PretrainedFolder) -> Mapping[str, Callable[[], object]]:
    return {
        "sha256": folder.checksum_of_weights,
        "architecture": lambda: folder.architecture_settings,
        "padding": lambda: folder.padding_token_number,
        "name": lambda: folder.name,
        "licence": lambda: folder.licence,
    }


def _tokenizer_folder_facts(folder: PretrainedFolder) -> Mapping[str, Callable[[], object]]:
    return {
        "sha256": lambda: hashlib.sha256(folder.tokenizer_file_bytes()).hexdigest(),
        "words": lambda: number_of_tokenizer_entries(folder.tokenizer_file_bytes(), folder.path),
        "padding": lambda: folder.padding_token_number,
    }


FACTS: Mapping[str, Facts] = MappingProxyType(
    {"hf": _model_folder_facts, "hf_causal": _model_folder_facts, "folder_tokenizer": _tokenizer_folder_facts}
)
"""By the tag of a part that names a folder in `path`: how to compute each of its keys."""
