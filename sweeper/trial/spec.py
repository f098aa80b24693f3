"""A trial's declaration, built from its resolved configuration: all its settings before it runs.

Building validates: a wrong type, a negative value or an unknown field is refused here, before any charge.
Declarations do not import torch. A class of the user's is imported by its path (`trainers/user_modules.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.codec import fraction
from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent, with_rounded_counts, with_rounded_noise
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import FINAL
from dpsweep.accounting.stored_names.stored_classes import (
    KIND,
    TARGET,
    build_from_stored_form,
    check_no_unknown_fields,
    stored_form_of_config_part,
    tag_or_path_of_class,
    with_current_paths_of_our_classes,
)
from dpsweep.accounting.stored_names.tags import class_of_tag
from dpsweep.trainers.data.interface import DataSet, check_adjacency_suits_dataset, check_dataset_declaration
from dpsweep.trainers.declarations.batch_sampling import (
    Poisson,
    check_steps_are_whole_periods,
    privacy_event_counts_of_run,
)
from dpsweep.trainers.declarations.clip_schedules import step_counts_by_noise_factor
from dpsweep.trainers.declarations.correlated_noise import (
    check_coefficients_belong_to_run,
    check_noise_suits_sampler,
)
from dpsweep.trainers.declarations.losses import Loss, check_labels_fit_loss
from dpsweep.trainers.declarations.scores import Score, check_metric_fits_classes, number_of_noisy_counts
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.output_perturbation import CONVEX, Everyone, OutputPerturbation
from dpsweep.trainers.methods.updates import HalfSteps
from dpsweep.trainers.training.run_records import CUTS, RunRecords
from dpsweep.trainers.user_modules import import_named_object

if TYPE_CHECKING:
    from dpsweep.trainers.declarations.adapters import Lora
    from dpsweep.trainers.declarations.augmentation import Augmentation
    from dpsweep.trainers.declarations.batch_sampling import Sampler
    from dpsweep.trainers.declarations.clip_schedules import BoundSchedule
    from dpsweep.trainers.declarations.correlated_noise import CorrelatedNoise
    from dpsweep.trainers.declarations.lr_schedules import LearningRate


FEATURES, ADAPTER, CORRELATED, INITIAL_WEIGHTS = "features", "adapter", "noise", "initial_weights"
CROSS_ENTROPY = "cross_entropy"
COEFFICIENTS = "coefficients"
WEIGHTS = "weights"
"""The key of the number of weights that a run trains, which planning writes (`sweeper/planning/trained_weights.py`)."""
FUSED = "fused"
"""The only engine that requires units of one example each. Its name is written here, since its module imports torch."""
CONSTANT_CLIP_NORM = "constant_clip_norm"
_BASES: Mapping[str, type] = {"dataset": DataSet, "loss": Loss, "score": Score, "trainer": Trainer}
"""The classes that name all members of a part with their defaults: a class of the user's inherits from them."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The number of steps between checkpoints, and how often a trial may lose this many steps and resume."""

    every: int | None
    resumes: int

    def __post_init__(self) -> None:
        if self.every is not None and (not _is_integer(self.every) or self.every < 1):
            raise BadInput(f"Expected checkpoint.every={self.every!r} to be null or an integer >= 1.")
        if not _is_integer(self.resumes) or self.resumes < 0:
            raise BadInput(f"Expected checkpoint.resumes={self.resumes!r} to be an integer >= 0.")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The declaration of one trial without its noise multiplier, which a plan may still have to calibrate.

    `weights` is the number of weights that it trains, 0 for a script, whose noise is not ours.
    """

    records: RunRecords
    loss: Loss
    trainer: Trainer
    sampler: Sampler
    lr_schedule: LearningRate
    clip_schedule: BoundSchedule
    steps: int
    checkpoints: Checkpoints
    ema: float | None = None
    augmentation: Augmentation | None = None
    adapter: Lora | None = None
    noise: CorrelatedNoise | None = None
    weights: int = 0

    def __post_init__(self) -> None:
        if not _is_integer(self.weights) or self.weights < 0:
            raise BadInput(f"Expected {WEIGHTS}={self.weights!r} to be an integer >= 0.")
        if not _is_integer(self.steps):
            raise BadInput(f"Expected steps={self.steps!r} to be an integer.")
        if self.steps < 1:
            raise BadInput(f"Expected steps={self.steps} >= 1.")
        check_adjacency_suits_dataset(self.dataset, self.adjacency)
        if (
            self.steps_between_checkpoints is not None
            and len(step_counts_by_noise_factor(self.clip_schedule, self.steps)) > 1
        ):
            raise BadInput(
                f"Expected checkpoint.every={self.checkpoints.every} to be null with "
                f"clip_schedule.noise={self.clip_schedule.noise}: the price of repeated steps would depend on which "
                "steps were lost."
            )
        held_out = self.records.nominal_private_units - self.nominal_training_units
        is_drawn = not isinstance(self.sampler, Everyone)
        if is_drawn and held_out > 0 and self.sampler.batch_size > self.nominal_training_units:
            raise BadInput(
                f"Expected sampler.batch_size={self.sampler.batch_size} <= records={self.nominal_training_units}, "
                f"those that are trained on: {held_out} of {self.records.nominal_private_units} are held out for "
                "scores (score.fraction)."
            )
        if self.records.is_number_of_units_secret and not isinstance(self.sampler, Poisson):
            raise BadInput(
                "Expected sampler=poisson with a secret part of the records: nobody knows how many records are in it, "
                "and the other samplers need their number."
            )
        if self.noise is not None and isinstance(self.trainer.update, HalfSteps):
            raise BadInput("Expected noise=independent with trainer=adadp, which compares noisy gradients in pairs.")
        if self.trainer.noiseless and not self.dataset.public:
            raise BadInput(
                f"Expected dataset.public=true with {self.trainer.label}, which adds no noise and protects nobody: "
                "declare this only if the records are public."
            )

    @property
    def dataset(self) -> DataSet:
        """The data set."""
        return self.records.dataset

    @property
    def score(self) -> Score:
        """The score."""
        return self.records.score

    @property
    def adjacency(self) -> Adjacency:
        """What neighbouring data sets differ in."""
        return self.records.adjacency

    def check_score(self) -> None:
        """Raises TypeError or ValueError unless the data set has what the score asks for."""
        self.score.check(self.dataset.test_records, public=self.dataset.public)

    @property
    def counts_whole_units(self) -> bool:
        """Whether a unit adds 1 to one of a score's counts; otherwise it adds fractions that sum to 1."""
        return self.dataset.unit_column is None and (self.score.measured is not None or self.loss.has_binary_quality)

    @property
    def nominal_training_units(self) -> int:
        """The declared nominal number of training units: the public constant in the sample rate."""
        return self.records.nominal_training_units

    @property
    def steps_between_checkpoints(self) -> int | None:
        """The steps between two checkpoints, None if there is no checkpoint before the end."""
        every = self.checkpoints.every
        return None if every is None or every >= self.steps else every

    @property
    def priced_steps_including_repeats(self) -> int:
        """All steps of the run, plus the steps that a resumed trial repeats after a kill."""
        return self.steps + self.checkpoints.resumes * (self.steps_between_checkpoints or 0)

    def training_dp_event(self, noise_multiplier: float) -> DpEvent:
        """The event of training: an upper limit on its accesses to the training records."""
        return _dp_event_of_all_training_steps(
            self.sampler,
            self.nominal_training_units,
            self.clip_schedule,
            self.steps,
            self.priced_steps_including_repeats,
            noise_multiplier,
            self.weights,
            public=self.dataset.public,
        )

    @property
    def noisy_counts_of_score(self) -> int:
        """The number of noisy counts that a score of private records releases."""
        return number_of_noisy_counts(self.score, self.dataset.classes)

    def training_and_scoring_dp_event(self, noise_multiplier: float) -> PlanEvent:
        """The events of training and of scoring, which read disjoint records."""
        return PlanEvent(training=self.training_dp_event(noise_multiplier), validation=self.scoring_dp_event)

    @property
    def scoring_dp_event(self) -> DpEvent | None:
        """The event of a score; None if no private record is read."""
        event = self.score.event(self.adjacency)
        return None if event is None else with_rounded_counts(event, self.noisy_counts_of_score)


def declaration_from_config(config: Mapping[str, Any]) -> Declaration:
    """The declaration of a resolved configuration; raises `BadInput` with one sentence for a mistake."""
    privacy = config["privacy"]
    if privacy["adjacency"] not in list(Adjacency):
        raise BadInput(f"Expected privacy.adjacency={privacy['adjacency']!r} to be one of {', '.join(Adjacency)}.")
    seed = config["seed"]
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadInput(f"Expected seed={seed!r} to be null or an integer.")
    if config.get(INITIAL_WEIGHTS) not in (None, "by_repetition"):
        raise BadInput(f"Expected initial_weights={config[INITIAL_WEIGHTS]!r} to be null or by_repetition.")
    names = ["loss", "trainer", "sampler", "lr_schedule", "clip_schedule"]
    names += [name for name in ("augmentation", ADAPTER, CORRELATED) if config.get(name)]
    parts = {name: _cached_object_of_config_part(json.dumps(config[name], sort_keys=True), name) for name in names}
    records = records_from_config(config)
    if isinstance(parts["trainer"], OutputPerturbation):
        parts["sampler"] = _sampler_for_output_perturbation(config, records)
    declaration = Declaration(
        steps=config["steps"],
        checkpoints=_checkpoints_from_config(config["checkpoint"]),
        records=records,
        ema=config.get("ema"),
        weights=config.get(WEIGHTS, 0),
        **parts,
    )
    _check_engine_for_multi_example_units(declaration, config["engine"])
    if not declaration.score.is_measured and not config.get(FINAL):
        raise BadInput("Expected a score that is measured: only a final run that a card tells of goes without one.")
    try:
        declaration.loss.check(declaration.dataset.classes)
        check_labels_fit_loss(declaration.loss, declaration.dataset)
        declaration.check_score()
        check_metric_fits_classes(declaration.score, declaration.dataset.classes, declaration.loss)
        declaration.trainer.check(declaration.steps, declaration.lr_schedule)
        declaration.trainer.check_settings(config)
        if declaration.noise is not None:
            check_noise_suits_sampler(declaration.noise, declaration.sampler, declaration.clip_schedule)
            check_coefficients_belong_to_run(declaration.noise, declaration.lr_schedule, declaration.steps)
        if declaration.augmentation is not None:
            declaration.augmentation.check_shape(declaration.dataset.shape)
        if declaration.ema is not None:
            fraction("ema", declaration.ema)
        looks = {"score.every": declaration.score.every, "checkpoint.every": declaration.steps_between_checkpoints}
        check_steps_are_whole_periods(
            declaration.sampler, declaration.nominal_training_units, steps=declaration.steps, **looks
        )
        if tag_or_path_of_class(config["clip_schedule"]) != CONSTANT_CLIP_NORM:
            declaration.trainer.transform.with_smaller_bound(0.5)
        steps = events.number_of_steps(declaration.training_dp_event(noise_multiplier=1.0))
    except (TypeError, ValueError) as cause:
        raise BadInput(str(cause)) from cause
    if steps != declaration.priced_steps_including_repeats:
        raise BadInput(
            f"Expected sampler={tag_or_path_of_class(config['sampler'])} to access the records once a step or epoch."
        )
    return declaration


def config_with_noise_coefficients(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the coefficients of its correlated noise where they are null."""
    form, steps = config.get(CORRELATED), config["steps"]
    if not form or form.get(COEFFICIENTS) is not None:
        return dict(config)
    if not _is_integer(steps) or steps < 1:
        raise BadInput(f"Expected steps={steps!r} to be an integer >= 1 with noise={tag_or_path_of_class(form)}.")
    noise, schedule = (
        _cached_object_of_config_part(json.dumps(config[name], sort_keys=True), name)
        for name in (CORRELATED, "lr_schedule")
    )
    return {**config, CORRELATED: {**form, COEFFICIENTS: [*noise.coefficients_for_run(schedule, steps)]}}


def dataset_from_config(config: Mapping[str, Any]) -> DataSet:
    """The data set of a configuration, with frozen features as inputs if it names an extractor."""
    dataset: DataSet = _cached_object_of_config_part(json.dumps(config["dataset"], sort_keys=True), "dataset")
    if not config.get(FEATURES):
        return dataset
    extractor = _cached_object_of_config_part(json.dumps(config[FEATURES], sort_keys=True), FEATURES)
    try:
        return Extracted(of=dataset, extractor=extractor)
    except (TypeError, ValueError) as cause:
        raise BadInput(str(cause)) from cause


def records_from_config(config: Mapping[str, Any]) -> RunRecords:
    """The records that a run reads, of a configuration whose other parts are not checked; one object for equal ones."""
    form = {name: config.get(name) for name in ("dataset", "score", FEATURES, *CUTS)}
    return _cached_records(json.dumps(form, sort_keys=True), Adjacency(config["privacy"]["adjacency"]))


@lru_cache(maxsize=4096)
def _cached_records(form: str, adjacency: Adjacency) -> RunRecords:
    config = json.loads(form)
    score = _cached_object_of_config_part(json.dumps(config["score"], sort_keys=True), "score")
    return RunRecords.with_cuts_of_config(config, dataset=dataset_from_config(config), score=score, adjacency=adjacency)


def _sampler_for_output_perturbation(config: Mapping[str, Any], records: RunRecords) -> Everyone:
    """The sampler of output perturbation, after a check that the other settings are compatible with the method."""
    settings = (
        *(config.get("ema"), config.get("augmentation"), config.get(ADAPTER), config.get(CORRELATED)),
        *(config["checkpoint"]["every"], config["score"].get("every")),
    )
    if any(settings) or tag_or_path_of_class(config["clip_schedule"]) != CONSTANT_CLIP_NORM:
        raise BadInput(
            "Expected ema, augmentation, adapter, noise, checkpoint.every and score.every to be null, and "
            "clip_schedule=constant: output perturbation has no steps."
        )
    if tag_or_path_of_class(config["model"]) != CONVEX or tag_or_path_of_class(config["loss"]) != CROSS_ENTROPY:
        raise BadInput(
            "Expected model=logistic and loss=cross_entropy with trainer=output_perturbation: it needs a convex "
            "problem with bounded gradients."
        )
    if config["loss"].get("class_weights") is not None:
        raise BadInput(
            "Expected loss.class_weights to be null with trainer=output_perturbation: its price is for weights of 1."
        )
    if config["loss"].get("label_smoothing"):
        raise BadInput(
            "Expected loss.label_smoothing to be 0 with trainer=output_perturbation: what it fits has whole targets."
        )
    if records.dataset.unit_column is not None:
        raise BadInput("Expected dataset.unit_column to be null with trainer=output_perturbation.")
    return Everyone(batch_size=records.nominal_private_units, adjacency=records.adjacency)


def _check_engine_for_multi_example_units(declaration: Declaration, engine: Mapping[str, Any]) -> None:
    """Raises BadInput if the configured engine does not support units with several examples."""
    copies = 1 if declaration.augmentation is None else declaration.augmentation.multiplicity
    if tag_or_path_of_class(engine) == FUSED and (copies > 1 or declaration.dataset.unit_column is not None):
        raise BadInput("Expected engine=fused to be auto or opacus if a unit has several examples.")


def _checkpoints_from_config(config: Any) -> Checkpoints:
    try:
        return Checkpoints(**config)
    except TypeError:
        raise BadInput(f"Expected checkpoint={config!r} to have every and resumes, and nothing else.") from None


@lru_cache(maxsize=256)
def _dp_event_of_all_training_steps(
    sampler: Sampler,
    records: int,
    bounds: BoundSchedule,
    steps: int,
    priced: int,
    noise_multiplier: float,
    weights: int,
    *,
    public: bool,
) -> DpEvent:
    """The event of all steps on so many weights, each at its noise.

    The priced steps beyond `steps` are repeated ones, all equal.
    """
    factors = step_counts_by_noise_factor(bounds, steps)
    steps_by_factor = factors if len(factors) > 1 else dict.fromkeys(factors, priced)
    counts = privacy_event_counts_of_run(
        sampler, steps_by_factor, records=records, noise_multiplier=noise_multiplier, public=public
    )
    repeated = [events.repeat(event, count) for event, count in counts.items()]
    steps_alone = repeated[0] if len(repeated) == 1 else events.compose(repeated)
    return with_rounded_noise(steps_alone, weights) if weights else steps_alone


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def _cached_object_of_config_part(config: str, name: str) -> Any:
    """One part of a declaration, cached: the points of a grid share most parts, and every part is frozen."""
    part = build_object_of_config_part(json.loads(config), name)
    _require_class_inherits_from_base(type(part), name)
    if isinstance(part, DataSet):
        try:
            check_dataset_declaration(part)  # a class of the user's has not
        except (ValueError, TypeError) as mistake:
            raise BadInput(f"{mistake}") from mistake
    return part


def _require_class_inherits_from_base(kind: type, name: str) -> None:
    base = _BASES.get(name)
    if base is not None and not issubclass(kind, base):
        raise BadInput(
            f"Expected {name}={kind.__name__} to inherit from {base.__module__}.{base.__name__}, which names all "
            "members that it has."
        )


def require_importable_class_of_part(path: str, name: str) -> None:
    """Raises `BadInput` if what a part names is not importable, or is a class of another kind."""
    kind = class_of_config_part({TARGET: path}, name)
    if isinstance(kind, type):  # a function may return anything
        _require_class_inherits_from_base(kind, name)


def build_object_of_config_part(config: Mapping[str, Any], name: str) -> Any:
    """The object that a part of a configuration describes; raises `BadInput` with one sentence for a mistake.

    It calls a class of the user only if the command names it (`trainers/user_modules.py`).
    """
    try:
        return build_from_stored_form(config, name, _instantiate_user_object)
    except DpsweepError:
        raise
    except (ImportError, ValueError, TypeError, KeyError, AttributeError) as cause:
        raise BadInput(f"{name}: {' '.join(str(cause).split())}") from cause


def class_of_config_part(config: Mapping[str, Any], name: str) -> Any:
    """The class that a part of a configuration names, dpsweep's or the user's, imported."""
    node = stored_form_of_config_part(config, name)
    try:
        return import_named_object(node[TARGET], name) if TARGET in node else class_of_tag(node[KIND], name)
    except ImportError as cause:
        raise BadInput(f"{name}: {' '.join(str(cause).split())}") from cause


def _instantiate_user_object(node: Mapping[str, Any], name: str) -> Any:
    """An object of a user's class with its nested objects, from keys as Hydra has them."""
    return _instantiate_nested_objects(with_current_paths_of_our_classes(node), name, place=name)


def _instantiate_nested_objects(value: Any, name: str, *, inner: bool = True, place: str = "") -> Any:
    if isinstance(value, list):
        return [_instantiate_nested_objects(one, name) for one in value] if inner else value
    if not isinstance(value, Mapping):
        return value
    if TARGET not in value:
        return {key: _instantiate_nested_objects(one, name) for key, one in value.items()} if inner else dict(value)
    kind = import_named_object(str(value[TARGET]), place)
    deeper = bool(value.get("_recursive_", True))
    arguments = {
        key: _instantiate_nested_objects(one, name, inner=deeper)
        for key, one in value.items()
        if key not in _HYDRA_KEYS
    }
    if is_dataclass(kind):
        check_no_unknown_fields(arguments, name, kind)
    positional = _instantiate_nested_objects(list(value.get("_args_", ())), name, inner=deeper)
    return partial(kind, *positional, **arguments) if value.get("_partial_", False) else kind(*positional, **arguments)


_HYDRA_KEYS = frozenset({TARGET, "_recursive_", "_convert_", "_partial_", "_args_"})
"""Keys that Hydra's `instantiate` reads and does not pass to the class."""
