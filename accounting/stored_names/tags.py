"""Durable names: the tag of every class of ours that is stored or hashed, and the current path of that class.

A module may move and a class may be renamed; a ledger and a sweep folder must stay readable, and a repeated command
must find the plan that it was charged for. So stored forms name a class of ours by its tag
(`accounting/stored_names/stored_classes.py`). Invariants:

* A tag means one class for ever. Moving or renaming the class changes its line here and nothing else: no stored form
  and no identity depends on the current path of a class.
* A class is imported by its tag only if its family is expected: a rule for a rule, a policy for a policy.
* The tags of frozen extractors and loggers are names that distributions register, ours and others'
  (`accounting/stored_names/entry_points.py`). A form with such a name can be read where the distribution is missing.

To add a class: give it a tag here, in its family. A class below our packages without a tag is refused at planning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.entry_points import (
    EXTRACTORS,
    LOGGERS,
    import_path_of_registered_part,
    load_registered_part,
    registered_part_names,
)

_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "policy": {
        "addition": "dpsweep.accounting.ledger.composition_policy.Addition",
        "renyi_filter": "dpsweep.accounting.ledger.composition_policy.RenyiFilter",
    },
    "rule": {
        "best_of_grid": "dpsweep.accounting.selection.best_of_grid.BestOfGrid",
        "composition": "dpsweep.accounting.selection.composition.Composition",
        "disjoint_parts": "dpsweep.accounting.selection.disjoint_parts.DisjointParts",
        "final": "dpsweep.accounting.selection.final_run.Final",
        "median_of_repeats": "dpsweep.accounting.selection.median_of_repeats.MedianOfRepeats",
        "noisy_max": "dpsweep.accounting.selection.noisy_max.NoisyMax",
        "poisson_selection": "dpsweep.accounting.selection.private_selection.PoissonSelection",
        "private_selection": "dpsweep.accounting.selection.private_selection.PrivateSelection",
        "public": "dpsweep.accounting.selection.public_data.Public",
        "random_stopping": "dpsweep.accounting.selection.random_stopping.RandomStopping",
        "subsampled": "dpsweep.accounting.selection.subsampled.Subsampled",
        "threshold": "dpsweep.accounting.selection.threshold.Threshold",
    },
    "accountant": {
        "classical": "dpsweep.accounting.accountants.classical.Classical",
        "panel": "dpsweep.accounting.pricing.panel.Panel",
        "pld": "dpsweep.accounting.accountants.pld.Pld",
        "prv": "dpsweep.accounting.accountants.prv.Prv",
        "rdp": "dpsweep.accounting.accountants.rdp.Rdp",
    },
    "search": {
        "linear_scaling": "dpsweep.sweeper.planning.linear_scaling.LinearScaling",
    },
    "trainer": {
        "adadp": "dpsweep.trainers.methods.named_methods.Adadp",
        "adam": "dpsweep.trainers.methods.named_methods.PlainAdam",
        "clipped_sgd": "dpsweep.trainers.methods.named_methods.ClippedSgd",
        "dp_adam": "dpsweep.trainers.methods.named_methods.DpAdam",
        "dp_adam_bc": "dpsweep.trainers.methods.named_methods.DpAdamBc",
        "dp_adam_wosm": "dpsweep.trainers.methods.named_methods.DpAdamWosm",
        "dp_momentum": "dpsweep.trainers.methods.named_methods.DpMomentum",
        "dp_nadam": "dpsweep.trainers.methods.named_methods.DpNadam",
        "dp_nsgd": "dpsweep.trainers.methods.named_methods.DpNsgd",
        "dp_sgd": "dpsweep.trainers.methods.named_methods.DpSgd",
        "normalized_sgd": "dpsweep.trainers.methods.named_methods.NormalizedSgd",
        "method": "dpsweep.trainers.methods.method.Method",
        "output_perturbation": "dpsweep.trainers.methods.output_perturbation.OutputPerturbation",
        "projected_dp_sgd": "dpsweep.trainers.methods.named_methods.ProjectedDpSgd",
        "script": "dpsweep.trainers.methods.script.Script",
        "sgd": "dpsweep.trainers.methods.named_methods.PlainSgd",
    },
    "transform": {
        "clip": "dpsweep.trainers.methods.transforms.Clip",
        "normalize": "dpsweep.trainers.methods.transforms.Normalize",
        "unbounded": "dpsweep.trainers.methods.transforms.Unbounded",
    },
    "update": {
        "adam_update": "dpsweep.trainers.methods.updates.Adam",
        "adam_bc_update": "dpsweep.trainers.methods.updates.AdamWithoutNoiseBias",
        "adam_wosm_update": "dpsweep.trainers.methods.updates.AdamWithoutSecondMoments",
        "half_steps_update": "dpsweep.trainers.methods.updates.HalfSteps",
        "momentum_update": "dpsweep.trainers.methods.updates.Momentum",
        "sgd_update": "dpsweep.trainers.methods.updates.Sgd",
    },
    "sampler": {
        "cyclic_poisson": "dpsweep.trainers.declarations.batch_sampling.CyclicPoisson",
        "fixed_size": "dpsweep.trainers.declarations.batch_sampling.FixedSize",
        "poisson": "dpsweep.trainers.declarations.batch_sampling.Poisson",
        "random_allocation": "dpsweep.trainers.declarations.batch_sampling.RandomAllocation",
        "shuffle": "dpsweep.trainers.declarations.batch_sampling.Shuffle",
    },
    "noise": {
        "band_mf": "dpsweep.trainers.declarations.correlated_noise.BandedFactorization",
        "bsr": "dpsweep.trainers.declarations.correlated_noise.BandedSquareRoot",
    },
    "lr_schedule": {
        "constant_lr": "dpsweep.trainers.declarations.lr_schedules.Constant",
        "cosine_lr": "dpsweep.trainers.declarations.lr_schedules.Cosine",
        "cyclic_lr": "dpsweep.trainers.declarations.lr_schedules.Cyclic",
        "power_decay_lr": "dpsweep.trainers.declarations.lr_schedules.PowerDecay",
        "step_decay_lr": "dpsweep.trainers.declarations.lr_schedules.StepDecay",
        "warm_up_lr": "dpsweep.trainers.declarations.lr_schedules.WarmUp",
    },
    "clip_schedule": {
        "constant_clip_norm": "dpsweep.trainers.declarations.clip_schedules.Constant",
        "geometric_clip_norm": "dpsweep.trainers.declarations.clip_schedules.Geometric",
        "linear_clip_norm": "dpsweep.trainers.declarations.clip_schedules.Linear",
    },
    "score": {
        "private_holdout": "dpsweep.trainers.declarations.scores.PrivateHoldout",
        "unscored": "dpsweep.trainers.declarations.scores.Unscored",
        "public_test": "dpsweep.trainers.declarations.scores.PublicTest",
        "training_score": "dpsweep.trainers.declarations.scores.OnTraining",
    },
    "metric": {
        "auroc": "dpsweep.trainers.declarations.metrics.Auroc",
        "balanced_accuracy": "dpsweep.trainers.declarations.metrics.BalancedAccuracy",
        "f1": "dpsweep.trainers.declarations.metrics.F1",
        "sensitivity": "dpsweep.trainers.declarations.metrics.Sensitivity",
        "specificity": "dpsweep.trainers.declarations.metrics.Specificity",
    },
    "loss": {
        "absolute_error": "dpsweep.trainers.declarations.losses.AbsoluteError",
        "binary_cross_entropy": "dpsweep.trainers.declarations.losses.BinaryCrossEntropy",
        "cross_entropy": "dpsweep.trainers.declarations.losses.CrossEntropy",
        "huber": "dpsweep.trainers.declarations.losses.Huber",
        "next_token": "dpsweep.trainers.declarations.losses.NextToken",
        "squared_error": "dpsweep.trainers.declarations.losses.SquaredError",
    },
    "features": {},
    "augmentation": {
        "shift_flip": "dpsweep.trainers.declarations.augmentation.ShiftFlip",
    },
    "engine": {
        "auto_engine": "dpsweep.trainers.engines.auto.Auto",
        "fused": "dpsweep.trainers.engines.fused.Fused",
        "opacus": "dpsweep.trainers.engines.opacus.Opacus",
        "vmap": "dpsweep.trainers.engines.vmap.Vmap",
    },
    "adapter": {
        "lora": "dpsweep.trainers.declarations.adapters.Lora",
    },
    "model": {
        "bert": "dpsweep.trainers.models.bert.bert",
        "cnn": "dpsweep.trainers.models.convolutional.cnn",
        "hf": "dpsweep.trainers.models.hugging_face.hf",
        "hf_causal": "dpsweep.trainers.models.hugging_face.hf_causal",
        "linear": "dpsweep.trainers.models.fully_connected.linear",
        "logistic": "dpsweep.trainers.models.fully_connected.logistic",
        "mlp": "dpsweep.trainers.models.fully_connected.mlp",
        "one_hidden": "dpsweep.trainers.models.fully_connected.one_hidden",
        "resnet20": "dpsweep.trainers.models.convolutional.resnet20",
        "strided_cnn": "dpsweep.trainers.models.convolutional.strided_cnn",
        "vgg": "dpsweep.trainers.models.convolutional.vgg",
        "wide_resnet": "dpsweep.trainers.models.convolutional.wide_resnet",
    },
    "dataset": {
        "adult": "dpsweep.trainers.data.sets.adult.Adult",
        "arrays": "dpsweep.trainers.data.sets.own_arrays.Arrays",
        "cifar10": "dpsweep.trainers.data.sets.images.Cifar10",
        "covertype": "dpsweep.trainers.data.sets.number_tables.Covertype",
        "embedded_images": "dpsweep.trainers.data.sets.images.EmbeddedImages",
        "enron": "dpsweep.trainers.data.sets.number_tables.Enron",
        "enron_mail": "dpsweep.trainers.data.sets.texts.EnronMail",
        "generated": "dpsweep.trainers.data.sets.generated.Generated",
        "gisette": "dpsweep.trainers.data.sets.number_tables.Gisette",
        "hugging_face": "dpsweep.trainers.data.sets.own_saved_sets.HuggingFace",
        "idx_images": "dpsweep.trainers.data.sets.images.IdxImages",
        "idx_subset": "dpsweep.trainers.data.sets.images.IdxSubset",
        "image_folder": "dpsweep.trainers.data.sets.own_pictures.ImageFolder",
        "linear_regression": "dpsweep.trainers.data.sets.generated.LinearRegression",
        "npz": "dpsweep.trainers.data.sets.own_arrays.Npz",
        "sst2": "dpsweep.trainers.data.sets.texts.Sst2",
        "sst2_tokens": "dpsweep.trainers.data.sets.texts.Sst2Tokens",
        "table": "dpsweep.trainers.data.sets.own_tables.Table",
        "text_sequences": "dpsweep.trainers.data.sets.own_tables.TextSequences",
        "text_table": "dpsweep.trainers.data.sets.own_tables.TextTable",
        "torch_dataset": "dpsweep.trainers.data.sets.own_arrays.TorchDataset",
    },
    "files": {
        "official_files": "dpsweep.trainers.data.official_files.Official",
    },
    "vocabulary": {
        "byte_pairs": "dpsweep.trainers.data.vocabularies.BytePairs",
        "folder_tokenizer": "dpsweep.trainers.data.vocabularies.FolderTokenizer",
        "word_piece": "dpsweep.trainers.data.vocabularies.WordPiece",
    },
    "source": {},
    "logger": {},
}
"""The tags of each family, with the path of each class. A part of a configuration has the name of its family."""

REGISTERED: Mapping[str, str] = {"features": EXTRACTORS, "logger": LOGGERS}
"""The families whose tags are names that distributions register, ours too, and the group that they register them in."""

HOMES: dict[str, str] = {tag: home for family in _FAMILIES.values() for tag, home in family.items()}
"""The current path of each tag's class, or, for a model, of the function that makes it."""

FAMILY_OF: dict[str, str] = {tag: name for name, family in _FAMILIES.items() for tag in family}
"""The family of each tag."""

PARTS = frozenset(_FAMILIES)
"""The families, which are also the names of the parts of a configuration."""

_REGISTERED_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAGS: Mapping[str, str] = {home: tag for tag, home in HOMES.items()}
_OWN_PACKAGES = frozenset(home.partition(".")[0] for home in HOMES.values())


def tag_of_path(path: str) -> str | None:
    """The tag with this path or name; None if there is none."""
    return path if path in HOMES else _TAGS.get(path)


def tag_of_class(kind: type) -> str:
    """The tag of a class of ours; raises `BadInput` if it has none."""
    path = f"{kind.__module__}.{kind.__qualname__}"
    if (tag := tag_of_path(path)) is None:
        raise BadInput(
            f"Expected {path} to be a class with a tag in accounting/stored_names/tags.py: it cannot be stored."
        )
    return tag


def class_of_tag(tag: str, family: str) -> Any:
    """The class with this tag and family, imported; raises `BadInput` if there is none, or if it cannot be imported."""
    require_tag_of_family(tag, family)
    if family in REGISTERED:
        return load_registered_part(REGISTERED[family], tag, f"{family}={tag}")
    module, _, name = HOMES[tag].rpartition(".")
    return getattr(import_module(module), name)


def require_tag_of_family(tag: str, family: str) -> None:
    """Raises `BadInput` unless the tag is one of this family, or could be a name that a distribution registers."""
    if family in REGISTERED and _REGISTERED_NAME.fullmatch(tag) and tag not in HOMES:
        return  # a name that is a tag elsewhere would pass for a class of ours
    if FAMILY_OF.get(tag) != family:
        known = tags_of_family_text(family)
        allowed = f"one of {known}" if known else "a class of your own"
        raise BadInput(f"Expected {family}={tag} to be {allowed}.")


def tags_of_family_text(family: str) -> str:
    """The tags of a family, as text for a message."""
    if family in REGISTERED:
        return ", ".join(registered_part_names(REGISTERED[family]))
    return ", ".join(sorted(tag for tag, own in FAMILY_OF.items() if own == family))


def current_path_of_tag(tag: str) -> str:
    """The path of the class with this tag, which is not imported; the tag itself where nobody here knows it."""
    registered = (path for group in REGISTERED.values() if (path := import_path_of_registered_part(group, tag)))
    return HOMES.get(tag) or next(registered, tag)


def is_path_in_our_packages(path: str) -> bool:
    """Whether a path leads into our packages."""
    return path.partition(".")[0] in _OWN_PACKAGES
