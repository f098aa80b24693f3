"""Durable names: the tag of every class of ours that is stored or hashed, and where that class lives today.

A module may move and a class may be renamed; a ledger and a sweep folder must stay readable, and a command that is
given again must find the plan that it was charged for. So what is stored names a class of ours by its tag
(`accounting/stored.py`). What always holds:

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
from accounting.former_names import FORMER_NAMES

_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "policy": {
        "addition": "accounting.policy.Addition",
        "renyi_filter": "accounting.policy.RenyiFilter",
    },
    "rule": {
        "composition": "accounting.composition.Composition",
        "final": "accounting.final.Final",
        "noisy_max": "accounting.noisy_max.NoisyMax",
        "poisson_selection": "accounting.private_selection.PoissonSelection",
        "private_selection": "accounting.private_selection.PrivateSelection",
        "public": "accounting.public.Public",
        "random_stopping": "accounting.random_stopping.RandomStopping",
        "subsampled": "accounting.subsampled.Subsampled",
        "threshold": "accounting.threshold.Threshold",
    },
    "accountant": {
        "classical": "accounting.classical.Classical",
        "panel": "accounting.price.Panel",
        "pld": "accounting.pld.Pld",
        "prv": "accounting.prv.Prv",
        "rdp": "accounting.rdp.Rdp",
    },
    "search": {
        "linear_scaling": "sweeper.linear_scaling.LinearScaling",
    },
    "trainer": {
        "adadp": "trainers.adadp.Adadp",
        "adam": "trainers.plain_adam.PlainAdam",
        "clipped_sgd": "trainers.clipped_sgd.ClippedSgd",
        "dp_adam": "trainers.dpadam.DpAdam",
        "dp_adam_wosm": "trainers.dpadamwosm.DpAdamWosm",
        "dp_momentum": "trainers.dpmomentum.DpMomentum",
        "dp_nadam": "trainers.dpnadam.DpNadam",
        "dp_nsgd": "trainers.dpnsgd.DpNsgd",
        "dp_sgd": "trainers.dpsgd.DpSgd",
        "normalized_sgd": "trainers.normalized_sgd.NormalizedSgd",
        "output_perturbation": "trainers.output_perturbation.OutputPerturbation",
        "projected_dp_sgd": "trainers.projected_dpsgd.ProjectedDpSgd",
        "sgd": "trainers.plain_sgd.PlainSgd",
    },
    "sampler": {
        "fixed_size": "trainers.sampling.FixedSize",
        "poisson": "trainers.sampling.Poisson",
        "shuffle": "trainers.sampling.Shuffle",
    },
    "schedule": {
        "constant_lr": "trainers.schedules.Constant",
        "cosine_lr": "trainers.schedules.Cosine",
        "cyclic_lr": "trainers.schedules.Cyclic",
        "step_decay_lr": "trainers.schedules.StepDecay",
        "warm_up_lr": "trainers.schedules.WarmUp",
    },
    "bounds": {
        "constant_clip_norm": "trainers.bound_schedules.Constant",
        "geometric_clip_norm": "trainers.bound_schedules.Geometric",
        "linear_clip_norm": "trainers.bound_schedules.Linear",
    },
    "score": {
        "private_holdout": "trainers.scores.PrivateHoldout",
        "public_test": "trainers.scores.PublicTest",
        "training_score": "trainers.scores.OnTraining",
    },
    "metric": {
        "auroc": "trainers.metrics.Auroc",
        "balanced_accuracy": "trainers.metrics.BalancedAccuracy",
        "f1": "trainers.metrics.F1",
        "sensitivity": "trainers.metrics.Sensitivity",
        "specificity": "trainers.metrics.Specificity",
    },
    "loss": {
        "cross_entropy": "trainers.losses.CrossEntropy",
        "squared_error": "trainers.losses.SquaredError",
    },
    "augmentation": {
        "shift_flip": "trainers.augmentation.ShiftFlip",
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
        "adult": "trainers.data.adult.Adult",
        "cifar10": "trainers.data.cifar10.Cifar10",
        "covertype": "trainers.data.covertype.Covertype",
        "embedded_images": "trainers.data.embedded.EmbeddedImages",
        "enron": "trainers.data.enron.Enron",
        "enron_mail": "trainers.data.enron_mail.EnronMail",
        "gisette": "trainers.data.gisette.Gisette",
        "idx_images": "trainers.data.idx.IdxImages",
        "linear_regression": "trainers.data.synthetic.LinearRegression",
        "npz": "trainers.data.npz.Npz",
        "sst2": "trainers.data.sst2.Sst2",
        "sst2_tokens": "trainers.data.sst2.Sst2Tokens",
        "table": "trainers.data.table.Table",
        "torch_dataset": "trainers.data.torch_dataset.TorchDataset",
    },
    "files": {
        "official_files": "trainers.data.official.Official",
    },
    "vocabulary": {
        "byte_pairs": "trainers.data.byte_pairs.BytePairs",
        "word_piece": "trainers.data.wordpiece.WordPiece",
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
        raise BadInput(f"Expected {path} to be a class with a tag in accounting/tags.py: it cannot be stored.")
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
