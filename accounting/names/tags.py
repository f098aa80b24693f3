"""Durable names: the tag of every class of ours that is stored or hashed, and where that class lives today.

A module may move and a class may be renamed; a ledger and a sweep folder must stay readable, and a command that is
given again must find the plan that it was charged for. So what is stored names a class of ours by its tag
(`accounting/names/stored_classes.py`). What always holds:

* A tag means one class for ever. Whoever moves or renames the class changes its line here and nothing else.
* In an identity a class of 0.1.0 stands under the path that it had in 0.1.0, which `former_names` keeps, and a newer
  one under its tag. So no identity depends on where a class lives today.
* A class is imported by its tag only where its family is expected: a rule for a rule, a policy for a policy.

To add a class: give it a tag here, in its family. A class below our packages without a tag is refused at planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from accounting.errors import BadInput
from accounting.names.former_names import FORMER_NAMES

_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "policy": {
        "addition": "accounting.ledger.composition_policy.Addition",
        "renyi_filter": "accounting.ledger.composition_policy.RenyiFilter",
    },
    "rule": {
        "composition": "accounting.selection.composition.Composition",
        "final": "accounting.selection.final_run.Final",
        "noisy_max": "accounting.selection.noisy_max.NoisyMax",
        "poisson_selection": "accounting.selection.private_selection.PoissonSelection",
        "private_selection": "accounting.selection.private_selection.PrivateSelection",
        "public": "accounting.selection.public_data.Public",
        "random_stopping": "accounting.selection.random_stopping.RandomStopping",
        "subsampled": "accounting.selection.subsampled.Subsampled",
        "threshold": "accounting.selection.threshold.Threshold",
    },
    "accountant": {
        "classical": "accounting.accountants.classical.Classical",
        "panel": "accounting.pricing.panel.Panel",
        "pld": "accounting.accountants.pld.Pld",
        "prv": "accounting.accountants.prv.Prv",
        "rdp": "accounting.accountants.rdp.Rdp",
    },
    "search": {
        "linear_scaling": "sweeper.planning.linear_scaling.LinearScaling",
    },
    "trainer": {
        "adadp": "trainers.methods.adadp.Adadp",
        "adam": "trainers.methods.without_noise.plain_adam.PlainAdam",
        "clipped_sgd": "trainers.methods.without_noise.clipped_sgd.ClippedSgd",
        "dp_adam": "trainers.methods.dpadam.DpAdam",
        "dp_adam_wosm": "trainers.methods.dpadamwosm.DpAdamWosm",
        "dp_momentum": "trainers.methods.dpmomentum.DpMomentum",
        "dp_nadam": "trainers.methods.dpnadam.DpNadam",
        "dp_nsgd": "trainers.methods.dpnsgd.DpNsgd",
        "dp_sgd": "trainers.methods.dpsgd.DpSgd",
        "normalized_sgd": "trainers.methods.without_noise.normalized_sgd.NormalizedSgd",
        "output_perturbation": "trainers.methods.output_perturbation.OutputPerturbation",
        "projected_dp_sgd": "trainers.methods.projected_dpsgd.ProjectedDpSgd",
        "sgd": "trainers.methods.without_noise.plain_sgd.PlainSgd",
    },
    "sampler": {
        "fixed_size": "trainers.declarations.batch_sampling.FixedSize",
        "poisson": "trainers.declarations.batch_sampling.Poisson",
        "shuffle": "trainers.declarations.batch_sampling.Shuffle",
    },
    "schedule": {
        "constant_lr": "trainers.declarations.lr_schedules.Constant",
        "cosine_lr": "trainers.declarations.lr_schedules.Cosine",
        "cyclic_lr": "trainers.declarations.lr_schedules.Cyclic",
        "step_decay_lr": "trainers.declarations.lr_schedules.StepDecay",
        "warm_up_lr": "trainers.declarations.lr_schedules.WarmUp",
    },
    "bounds": {
        "constant_clip_norm": "trainers.declarations.clip_schedules.Constant",
        "geometric_clip_norm": "trainers.declarations.clip_schedules.Geometric",
        "linear_clip_norm": "trainers.declarations.clip_schedules.Linear",
    },
    "score": {
        "private_holdout": "trainers.declarations.scores.PrivateHoldout",
        "public_test": "trainers.declarations.scores.PublicTest",
        "training_score": "trainers.declarations.scores.OnTraining",
    },
    "metric": {
        "auroc": "trainers.declarations.metrics.Auroc",
        "balanced_accuracy": "trainers.declarations.metrics.BalancedAccuracy",
        "f1": "trainers.declarations.metrics.F1",
        "sensitivity": "trainers.declarations.metrics.Sensitivity",
        "specificity": "trainers.declarations.metrics.Specificity",
    },
    "loss": {
        "cross_entropy": "trainers.declarations.losses.CrossEntropy",
        "squared_error": "trainers.declarations.losses.SquaredError",
    },
    "augmentation": {
        "shift_flip": "trainers.declarations.augmentation.ShiftFlip",
    },
    "engine": {
        "auto_engine": "trainers.engines.auto.Auto",
        "fused": "trainers.engines.fused.Fused",
        "opacus": "trainers.engines.opacus.Opacus",
        "vmap": "trainers.engines.vmap.Vmap",
    },
    "model": {
        "bert": "trainers.models.bert.bert",
        "cnn": "trainers.models.cnn.cnn",
        "linear": "trainers.models.linear.linear",
        "logistic": "trainers.models.logistic.logistic",
        "mlp": "trainers.models.mlp.mlp",
        "one_hidden": "trainers.models.one_hidden.one_hidden",
        "resnet20": "trainers.models.resnet20.resnet20",
        "wide_resnet": "trainers.models.wide_resnet.wide_resnet",
    },
    "dataset": {
        "adult": "trainers.data.sets.adult.Adult",
        "cifar10": "trainers.data.sets.cifar10.Cifar10",
        "covertype": "trainers.data.sets.covertype.Covertype",
        "embedded_images": "trainers.data.sets.embedded.EmbeddedImages",
        "enron": "trainers.data.sets.enron.Enron",
        "enron_mail": "trainers.data.sets.enron_mail.EnronMail",
        "gisette": "trainers.data.sets.gisette.Gisette",
        "idx_images": "trainers.data.files.idx.IdxImages",
        "linear_regression": "trainers.data.sets.synthetic.LinearRegression",
        "npz": "trainers.data.own.npz.Npz",
        "sst2": "trainers.data.sets.sst2.Sst2",
        "sst2_tokens": "trainers.data.sets.sst2.Sst2Tokens",
        "table": "trainers.data.own.table.Table",
        "torch_dataset": "trainers.data.own.torch_dataset.TorchDataset",
    },
    "files": {
        "official_files": "trainers.data.files.official.Official",
    },
    "vocabulary": {
        "byte_pairs": "trainers.data.text.byte_pairs.BytePairs",
        "word_piece": "trainers.data.text.wordpiece.WordPiece",
    },
    "source": {},
}
"""The tags of each family, with the path of each class. A part of a configuration has the name of its family."""

HOMES: dict[str, str] = {tag: home for family in _FAMILIES.values() for tag, home in family.items()}
"""The path of the class, or for a model of the function that makes it, that each tag stands for."""

FAMILY_OF: dict[str, str] = {tag: name for name, family in _FAMILIES.items() for tag in family}
"""What each tag is one of."""

PARTS = frozenset(_FAMILIES)
"""The families, which are also what the parts of a configuration are called."""

_FORMER_TAGS = {path: tag for tag, path in FORMER_NAMES.items()}
_OWN_PACKAGES = frozenset(home.partition(".")[0] for home in HOMES.values())


@lru_cache(maxsize=1024)
def tag_of(path: str) -> str | None:
    """The tag of the class that has this path now, had it in 0.1.0, or has it as its tag; None where it is none."""
    if path in HOMES:
        return path
    return next((tag for tag, home in HOMES.items() if home == path), _FORMER_TAGS.get(path))


def tag_of_class(kind: type) -> str:
    """The tag of a class of ours; raises `BadInput` where it has none."""
    path = f"{kind.__module__}.{kind.__qualname__}"
    if (tag := tag_of(path)) is None:
        raise BadInput(f"Expected {path} to be a class with a tag in accounting/names/tags.py: it cannot be stored.")
    return tag


def identity_name(tag: str) -> str:
    """What stands for a tag in an identity: the path that the class had in 0.1.0, or the tag of a newer class."""
    return FORMER_NAMES.get(tag, tag)


def own_class(tag: str, family: str) -> Any:
    """The class of ours of this tag and family, imported; raises `BadInput` where there is none."""
    require_family(tag, family)
    module, _, name = HOMES[tag].rpartition(".")
    return getattr(import_module(module), name)


def require_family(tag: str, family: str) -> None:
    """Raises `BadInput` unless the tag is one of this family."""
    if FAMILY_OF.get(tag) != family:
        known = tags_of(family)
        raise BadInput(f"Expected {family}={tag} to be {f'one of {known}' if known else 'a class of your own'}.")


def tags_of(family: str) -> str:
    """The tags of a family, for a sentence."""
    return ", ".join(sorted(tag for tag, own in FAMILY_OF.items() if own == family))


def is_below_ours(path: str) -> bool:
    """Whether a path leads into our packages."""
    return path.partition(".")[0] in _OWN_PACKAGES
