"""The lines of the privacy statement on what was trained elsewhere: initial weights, frozen features, base models."""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.names.stored_classes import class_name, name_of
from dpsweep.accounting.names.tags import tag_of
from dpsweep.accounting.notation import typed
from dpsweep.reports.content.base_model import BaseModel, adapter_in_words
from dpsweep.reports.content.formatting import listed
from dpsweep.reports.content.frozen_features import FrozenFeatures
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

PUBLISHED = "bert"
"""Our model that starts from published pretrained weights."""


def started_from(context: Context) -> tuple[str, ...]:
    """The models that start from pretrained weights, which are assumed to be public."""
    models = (trial.config.get("model", {}) for trial in context.sweep.plan.trials)
    pretrained = [
        class_name(model) for model in models if tag_of(name_of(model)) is None or name_of(model) == PUBLISHED
    ]
    if not any(pretrained):
        return ()
    return (
        f"The initial weights of {listed(list(dict.fromkeys(pretrained)))}, frozen ones included, are assumed to be "
        "public: no guarantee covers the data that they were trained on.",
    )


def frozen_features(context: Context) -> Iterator[Line]:
    """The line on frozen features: their extractor, its public training data and its checksum."""
    features = FrozenFeatures.of(context.sweep.plan.trials[0].config)
    if features is not None:
        yield Line(
            topic="Features",
            text=f"A model's inputs are frozen features by {features.extractor}, which was trained on "
            f"{features.trained_on}. These data are declared public: no guarantee covers them.",
            level=EvidenceLevel.ASSUMED,
            evidence=(
                f"The weights have sha256 {features.sha256}. The features of each record are computed from this record "
                f"alone and scaled to norm {typed(features.norm)}.",
            ),
        )


def base_models(context: Context) -> Iterator[Line]:
    """The lines on pretrained folders: their names, licences and checksums, and which weights training changes."""
    configs = [trial.config for trial in context.sweep.plan.trials]
    bases = {base.sha256: base for config in configs if (base := BaseModel.of(config)) is not None}
    for base in bases.values():
        yield Line(
            topic="Base model",
            text=f"The model starts from the weights of {base.name} (licence: {base.licence}). They are declared "
            "public: no guarantee covers the data that they were trained on.",
            level=EvidenceLevel.ASSUMED,
            evidence=(f"The files of weights have sha256 {base.sha256}.",),
        )
    adapters = dict.fromkeys(words for config in configs if (words := adapter_in_words(config)) is not None)
    for words in adapters:
        yield Line(
            topic="Adapter",
            text=f"Training changes {words}, and what the model declares trainable. "
            "All other weights stay as published.",
            level=EvidenceLevel.CHECKED,
            evidence=(
                "Each job compared all frozen weights, bit by bit, and the file of weights with what it trained.",
            ),
        )
