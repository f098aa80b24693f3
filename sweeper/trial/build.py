"""Construction of a trial's model, random streams and records from its configuration."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.card import SEALED
from dpsweep.accounting.records.plan import Trial
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
    FEATURES,
    Declaration,
    build_object_of_config_part,
    class_of_config_part,
    dataset_from_config,
    part_of_records_from_config,
    sealed_parts_from_config,
)
from dpsweep.trainers.data.split import number_of_sealed_part
from dpsweep.trainers.features.extracted import Extracted

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

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.features.cache import FeatureCache
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
    """The identity that determines the initial weights: public for a point, secret for a try.

    Theorems on hidden losers assume that all tries are the same mechanism; initial weights that a reader can compute
    from a try's place in the draw would make each try a different mechanism.
    """
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
    factory, name, seed = (
        class_of_config_part(config["model"], "model"),
        tag_or_path_of_class(config["model"]),
        public_seed_of_initial_weights(identity),
    )
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
    from dpsweep.trainers.training.run import Run

    return Run(
        trainer=declaration.trainer,
        sampler=declaration.sampler,
        schedule=declaration.lr_schedule,
        bounds=declaration.clip_schedule,
        noise_multiplier=config["privacy"]["noise_multiplier"],
        steps=declaration.steps,
        train_records=declaration.nominal_training_units,
        ema=declaration.ema,
        public=declaration.is_data_declared_public,
        noise=declaration.noise,
        adjacency=declaration.adjacency,
    )


def load_split_records(
    config: Mapping[str, Any],
    adjacency: Adjacency,
    folder: Path | None,
    coins: str = "",
    features: FeatureCache | None = None,
    cache: Path | None = None,
) -> Split:
    """The records of a trial, split as its score requires; cached for the next trial with the same data and score.

    `coins` is `Session.secret_part_coin_bits_hex`; `features` has the frozen features of the records, None if the trial
    has none; `cache` is `PrivateStore.record_hashes_folder`, None if records on disk are to be passed again.
    """
    request = {name: config[name] for name in ("dataset", "score")} | {"adjacency": adjacency}
    request |= {name: config[name] for name in ("part", FEATURES, SEALED) if name in config}
    return _load_split_records_cached(json.dumps(request, sort_keys=True), folder, coins, features, cache)


@lru_cache(maxsize=1)
def _load_split_records_cached(
    request: str, folder: Path | None, coins: str, features: FeatureCache | None, cache: Path | None
) -> Split:
    config = json.loads(request)
    adjacency = Adjacency(config["adjacency"])
    private, test = _load_records_of_part(config, adjacency, folder, features, cache, 0)
    if (part := part_of_records_from_config(config)) is not None:
        private = part.records_in_part(private, adjacency, bytes.fromhex(coins))
    split: Split = build_object_of_config_part(config["score"], "score").split(private, test, adjacency)
    return split


def load_sealed_part(
    config: Mapping[str, Any],
    adjacency: Adjacency,
    folder: Path | None,
    number: int,
    features: FeatureCache | None,
    cache: Path | None = None,
) -> Records:
    """The records of the sealed part with this number, which counts from 1; raises `BadInput` if there is none."""
    sealed = sealed_parts_from_config(config)
    if sealed is None or not 1 <= number <= sealed.parts:
        raise BadInput(f"Expected sealed part {number} to be one of those of {config['dataset']['name']}.")
    private, test = _load_records_of_part(config, adjacency, folder, features, cache, number)
    if not sealed.public:
        return private
    assert test is not None
    return test


def _load_records_of_part(
    config: Mapping[str, Any],
    adjacency: Adjacency,
    folder: Path | None,
    features: FeatureCache | None,
    cache: Path | None,
    number: int,
) -> tuple[Records, Records | None]:
    """The private records and the public test records; of those that have sealed parts, the ones in this part.

    `number` 0 stands for the records in no sealed part. The parts are cut by the records as they were loaded, so that
    they are the same with frozen features and without.
    """
    dataset = dataset_from_config(config)
    private, test = dataset.load_with_cache(folder, cache)
    if (private.units is None) != (dataset.unit_column is None):
        raise ContractBroken(f"Expected the records of {dataset.name} to be grouped by {dataset.unit}, as charged.")
    sealed = sealed_parts_from_config(config)
    cut = None if sealed is None else test if sealed.public else private
    place = None if sealed is None or cut is None else number_of_sealed_part(cut, sealed, adjacency)
    if isinstance(dataset, Extracted):
        if features is None:
            raise ContractBroken(f"Expected frozen features for {dataset.name}, as declared.")
        private, test = (
            dataset.replace_inputs_by_features(private, features),
            None if test is None else dataset.replace_inputs_by_features(test, features),
        )
    if place is None:
        return private, test
    if sealed is not None and sealed.public:
        return private, None if test is None else test.select(place == number)
    return private.select(place == number), test


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
