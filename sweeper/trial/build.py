"""Construction of a trial's model, random streams and training run from its configuration."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import REPEAT, Trial
from dpsweep.accounting.rehearsal import GENERATED, PREFIX
from dpsweep.accounting.searches.stored_draw import is_try_of_secret_draw
from dpsweep.accounting.stored_names.stored_classes import (
    KIND,
    fields_without_class_name,
    tag_or_path_of_class,
    with_current_paths_of_our_classes,
)
from dpsweep.accounting.stored_names.tags import tag_of_path
from dpsweep.sweeper.trial.spec import (
    ADAPTER,
    INITIAL_WEIGHTS,
    Declaration,
    build_object_of_config_part,
    class_of_config_part,
    dataset_from_config,
)

READS_WEIGHTS = frozenset({"hf", "hf_causal"})
"""Tags of models whose own constructor draws and reads weights, as a user's does."""

SHAPED_BY = ("name", "records", "shape", "classes", "unit")
TAKEN_OVER = (
    *("test_records", "public", "vocabulary", "unit_column", "units", "contribution_cap"),
    *("target", "target_unit"),
)
"""The keys of a data set that generated records have too: those that must be given, and those that may be."""

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.run import Run


def new_secret_streams() -> Streams:
    """Fresh secret streams, imported when they are needed."""
    from dpsweep.trainers.randomness import secret_streams

    return secret_streams()


def make_streams(trial: Trial, receipt: Receipt, secret: Callable[[], Streams] = new_secret_streams) -> Streams:
    """A session's random streams; with a seed, those of a first session depend on seed and trial alone.

    `secret` makes those of a trial without a seed. Sessions that one process runs may share them: the next numbers of
    one cipher stream are as independent as those of another stream.
    """
    from dpsweep.trainers.randomness import reproducible_streams

    seed = trial.config["seed"]
    if seed is None:
        return secret()
    session = f"{trial.id}, attempt {receipt.attempt}, resume {receipt.resume}" if receipt.resume else trial.id
    return reproducible_streams(seed, session)


def identity_for_initial_weights(trial: Trial) -> str:
    """The identity that determines the initial weights: public for a point or a repetition, else secret for a try.

    Theorems on hidden losers assume that all tries are the same mechanism; initial weights that a reader can compute
    from a try's place in the draw would make each try a different mechanism.
    """
    if trial.config.get(INITIAL_WEIGHTS):
        return f"repetition {trial.config.get(REPEAT, 1)}"
    return secrets.token_hex() if is_try_of_secret_draw(trial) and not trial.is_reproducible_from_seed else trial.id


def make_model(config: Mapping[str, Any], identity: str) -> nn.Module:
    """The model of a configuration, with initial weights that depend on the trial's identity alone.

    dpsweep draws the weights of its own models; a user's model has the weights that its constructor draws or loads.
    Raises ValueError if the model cannot read the inputs of the configuration's data set.
    """
    from dpsweep.trainers.models.checks import check_vocabulary_fits_model
    from dpsweep.trainers.models.weights import build_model_with_seeded_weights as build_model
    from dpsweep.trainers.models.weights import construct_user_model
    from dpsweep.trainers.randomness import public_seed_of_initial_weights

    parameters = with_current_paths_of_our_classes(fields_without_class_name(config["model"]))
    dataset = dataset_from_config(config)
    shape, classes = tuple(dataset.shape), dataset.classes
    factory = class_of_config_part(config["model"], "model")
    name = tag_or_path_of_class(config["model"])
    seed = public_seed_of_initial_weights(identity)
    make = partial(factory, shape, classes, **parameters)
    model = (
        construct_user_model(make, name, seed)
        if tag_of_path(name) in READS_WEIGHTS or not tag_of_path(name)
        else build_model(make, seed)
    )
    check_vocabulary_fits_model(model, dataset.vocabulary, shape)
    return model if not config.get(ADAPTER) else _add_adapters(model, config[ADAPTER], identity)


def _add_adapters(model: nn.Module, adapter: Mapping[str, Any], identity: str) -> nn.Module:
    """The model with adapters, whose initial weights depend on the trial's identity alone."""
    import torch

    from dpsweep.trainers.models.replaced_layers import attach_adapters
    from dpsweep.trainers.randomness import public_seed_of_initial_weights

    seed = public_seed_of_initial_weights(f"{identity}, {ADAPTER}")
    return attach_adapters(model, build_object_of_config_part(adapter, ADAPTER), torch.Generator().manual_seed(seed))


def make_training_run(config: Mapping[str, Any], declaration: Declaration) -> Run:
    """The declared training run of a configuration, at its noise."""
    from dpsweep.trainers.declarations.batch_sampling import number_of_parts
    from dpsweep.trainers.training.run import Run

    return Run(
        trainer=declaration.trainer,
        sampler=declaration.sampler,
        schedule=declaration.lr_schedule,
        bounds=declaration.clip_schedule,
        noise_multiplier=config["privacy"]["noise_multiplier"],
        steps=declaration.steps,
        train_records=declaration.nominal_training_units,
        most_records=declaration.records.most_training_units(number_of_parts(declaration.sampler)),
        ema=declaration.ema,
        public=declaration.dataset.public,
        noise=declaration.noise,
        adjacency=declaration.adjacency,
    )


def config_of_generated_records_like_dataset(dataset: Mapping[str, Any], loss: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of generated records in the shape of a data set; raises `BadInput` with the missing keys."""
    if missing := [f"dataset.{key}" for key in SHAPED_BY if dataset.get(key) is None]:
        raise BadInput(
            f"Expected {', '.join(missing)} in the configuration of this data set: a rehearsal generates its records "
            "from them alone, and opens no file."
        )
    given = {key: dataset[key] for key in (*SHAPED_BY, *TAKEN_OVER) if dataset.get(key) is not None}
    declared_loss = build_object_of_config_part(loss, "loss")
    sequences: dict[str, Any] = {"per_position": True} if declared_loss.per_position else {}
    if declared_loss.several_labels:
        sequences["label_names"] = [f"label {place}" for place in range(int(dataset["classes"]))]
    return {KIND: GENERATED, "test_records": 0, **given, **sequences, "name": f"{PREFIX}{dataset['name']}"}
