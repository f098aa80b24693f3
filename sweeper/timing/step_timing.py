"""Timing of training steps as jobs take them, on random inputs: stacked where a job stacks, with noise and update.

No data are read. As a program it reads shapes as JSON on its standard input, and prints their costs.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.printing import print_error
from dpsweep.sweeper.timing.time_estimate import Cost, Shape, timing_process
from dpsweep.trainers.user_modules import set_folder_of_user_modules

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpsweep.sweeper.trial.spec import Declaration
    from dpsweep.trainers.training.gradient_sums import Sums

EXAMPLES = 64
LONG_ENOUGH = 0.2
"""Seconds; a shorter measurement is repeated with more examples, up to the whole batch."""


def measure_step_seconds_scaled_to_batch(step: Callable[[int], object], batch_size: int, device: str) -> float:
    """Seconds of `step(batch_size)`, scaled up from the fewest examples that take long enough; the faster of two."""
    step(2)
    examples = min(EXAMPLES, batch_size)
    while True:
        seconds = min(
            seconds_of_one_step_call(step, examples, device), seconds_of_one_step_call(step, examples, device)
        )
        if seconds > LONG_ENOUGH or examples == batch_size:
            return seconds * batch_size / examples
        examples = min(4 * examples, batch_size)


def seconds_of_one_step_call(step: Callable[[int], object], examples: int, device: str) -> float:
    """Seconds of `step(examples)`."""
    clock = process_time_or_wall_clock_for_device(device)
    started = clock()
    step(examples)
    return clock() - started


def process_time_or_wall_clock_for_device(device: str) -> Callable[[], float]:
    """A clock that other programs on the machine do not move, where one thread computes; else the wall clock."""
    import torch

    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


ENOUGH = 0.1
"""Seconds after which no further stacked step is timed."""

FEW_POINTS = 2
"""Points that are stacked to time a large step: its arithmetic takes as long for each point as in a larger stack."""

FEW_RECORDS = 2000
"""Records of a convex fit that is timed; a fit of more takes as much longer."""

_SCORED = 512


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The costs of some shapes, in their order, and the number of threads that steps were given."""

    costs: tuple[Cost, ...]
    threads: int


class _EnoughStepsTimed(Exception):
    """Enough steps were timed."""


def time_training_steps_of_shapes(
    shapes: Sequence[Shape], device: str, threads: int | None, most: int, known: Sequence[Cost | None] | None = None
) -> StepTimes:
    """Times a training step of each shape on random inputs; also refuses models that cannot be trained.

    `threads` is the number that the user gave; without one it is `most`, or 1 if all steps are small. A shape whose
    cost is `known` takes one step of few examples, which may fail, and keeps that cost.
    Raises ValueError if a model mixes examples or does not fit its data set's shape.
    """
    import torch

    from dpsweep.sweeper.job.machine import resolve_device_name
    from dpsweep.sweeper.trial.step_work import most_threads_for_large_steps_else_one
    from dpsweep.trainers.training.allocator import keep_freed_memory

    torch.set_num_threads(threads or 1)
    keep_freed_memory()
    device = resolve_device_name(device)
    probes = [_ShapeTimer.from_shape(shape, device) for shape in shapes]
    threads = (
        most_threads_for_large_steps_else_one([probe.floating_point_operations_per_step for probe in probes], most)
        if threads is None
        else threads
    )
    torch.set_num_threads(threads)
    costs = []
    for probe, cost in zip(probes, known or [None] * len(probes), strict=True):
        if cost is None:
            costs.append(probe.measure_step_and_other_run_seconds())
        else:
            replace(probe, patient=False).measure_step_and_other_run_seconds()
            costs.append(cost)
    return StepTimes(costs=tuple(costs), threads=threads)


def time_training_steps_in_new_process(
    shapes: Sequence[Shape],
    device: str,
    threads: int | None,
    most: int,
    known: Sequence[Cost | None],
    variables: Mapping[str, str],
) -> StepTimes:
    """Does what `time_training_steps_of_shapes` does in a process with these environment variables.

    So this process uses no GPU, and starts none of the threads by which torch computes gradients there: after either it
    could not fork jobs.
    """
    with timing_process(shapes, device, threads, most, known=known, variables=variables) as answer:
        times = answer()
    if "costs" not in times:
        raise ValueError(times.get("refusal", "the process that tried a step was ended."))
    return StepTimes(costs=tuple(Cost(**cost) for cost in times["costs"]), threads=times["threads"])


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShapeTimer:
    """A shape whose model was built and checked. One that is not `patient` tries a step, and its times mean nothing."""

    shape: Shape
    declared: Declaration
    model: nn.Module
    device: str
    patient: bool = True

    @classmethod
    def from_shape(cls, shape: Shape, device: str) -> _ShapeTimer:
        """The probe of a shape; raises ValueError if its model cannot be trained."""
        import torch

        from dpsweep.sweeper.trial.build import make_model
        from dpsweep.sweeper.trial.spec import declaration_from_config
        from dpsweep.trainers.declarations.losses import (
            CrossEntropy,
            label_shape,
            require_loss_of_each_example_alone,
            target_shape,
        )
        from dpsweep.trainers.declarations.scores import EXAMPLES_PER_PASS, records_per_forward_pass
        from dpsweep.trainers.engines.interface import (
            automatic_chunk_size,
            fused_chunk_size,
            trainable_parameters,
        )
        from dpsweep.trainers.methods.transforms import require_bounded_lengths
        from dpsweep.trainers.methods.updates import require_finite_direction_of_each_row_alone
        from dpsweep.trainers.models.checks import (
            are_outputs_probabilities,
            require_output_shape,
            require_separate_examples,
            require_separate_passes,
        )
        from dpsweep.trainers.models.weights import check_saved_weights_reload

        declared = declaration_from_config(shape.config)
        require_bounded_lengths(declared.trainer.transform)
        inputs = tuple(declared.dataset.shape)
        model = make_model(shape.config, "estimate")
        require_separate_examples(model, inputs)
        classes, positions, example = declared.dataset.classes, target_shape(declared.loss, inputs), torch.zeros(inputs)
        chunks = automatic_chunk_size(model, example), fused_chunk_size(model, 0, example)
        drawn = [_examples_per_step(declared, deviations) for deviations in (-2, 0, 2)]
        trained = {-(-examples // -(-examples // chunk)) for examples, chunk in product(drawn, chunks)}
        scored = records_per_forward_pass(
            model, inputs, label_shape(declared.loss, inputs, classes), "cpu", EXAMPLES_PER_PASS
        )
        require_separate_passes(model, inputs, {*trained, scored})
        require_output_shape(model, inputs, classes, positions)
        require_loss_of_each_example_alone(declared.loss, classes, *positions)
        check_saved_weights_reload(model)
        weights = sum(parameter.numel() for parameter in trainable_parameters(model))
        if weights != declared.weights:
            raise ValueError(f"Expected weights={weights} of the model to be the {declared.weights} that are priced.")
        require_finite_direction_of_each_row_alone(declared.trainer.update, weights)
        if isinstance(declared.loss, CrossEntropy) and are_outputs_probabilities(model, inputs):
            print_error(
                "The outputs of this model are probabilities, as behind a softmax, and loss=cross_entropy takes the "
                "softmax of them once more, so it learns little. Let the model end without its softmax."
            )
        return cls(shape=shape, declared=declared, model=model.to(device), device=device)

    @cached_property
    def floating_point_operations_per_step(self) -> float:
        """Floating-point operations of a step of one point."""
        from dpsweep.sweeper.trial.step_work import flops_of_training_step

        return _examples_per_step(self.declared) * flops_of_training_step(self.model, self._random_model_inputs(1))

    def measure_step_and_other_run_seconds(self) -> Cost:
        """The seconds of a step and of what a run does beside its steps."""
        from dpsweep.sweeper.trial.blocks import most_stacked_points
        from dpsweep.sweeper.trial.step_work import LARGE
        from dpsweep.trainers.methods.output_perturbation import OutputPerturbation

        record = self._feature_extraction_seconds_per_record() if self.shape.extracts else None
        if isinstance(self.declared.trainer, OutputPerturbation):
            return Cost(step=self._seconds_of_convex_fit(), beside=self._seconds_of_curve_and_score(), record=record)
        most = FEW_POINTS if self.floating_point_operations_per_step >= LARGE else self.shape.points
        stacked = min(most, self.shape.points, most_stacked_points(self.shape.config))
        step = self._seconds_per_point_of_stacked_step(stacked) if stacked else self._seconds_of_single_point_step()
        return Cost(step=step, beside=self._seconds_of_curve_and_score(), record=record)

    def _feature_extraction_seconds_per_record(self) -> float | None:
        """Seconds in which the features of one record are computed; None if the records have no features."""
        import torch

        from dpsweep.trainers.features.cache import random_probe_inputs
        from dpsweep.trainers.features.extracted import Extracted

        dataset = self.declared.dataset
        if not isinstance(dataset, Extracted):
            return None
        module = dataset.extractor_module().to(self.device)
        records = random_probe_inputs(dataset.input_form).to(self.device)
        with torch.inference_mode():
            module(records[:1])
            seconds = seconds_of_one_step_call(
                lambda few: [module(one[None]) for one in records[:few]], len(records), self.device
            )
        return seconds / len(records)

    def _seconds_per_point_of_stacked_step(self, points: int) -> float:
        """Seconds per point of a step of so many points that are trained together."""
        from dpsweep.trainers.engines.stacked import Stack
        from dpsweep.trainers.training.gradient_sums import StackedSums

        records = self._random_records()
        stack = Stack.from_model(self.model, self.declared.loss)
        sums = StackedSums(stack=stack, records=records, device=self.device)
        return self._seconds_of_training_loop_step(sums, points) / points

    def _seconds_of_single_point_step(self) -> float:
        """Seconds of a step of one point: its engine's sum, by fewer examples if slow, and the noise and update."""
        import torch

        from dpsweep.sweeper.trial.spec import build_object_of_config_part
        from dpsweep.trainers.declarations.losses import label_shape
        from dpsweep.trainers.engines.interface import Minibatch, Task

        declared, engine = self.declared, build_object_of_config_part(self.shape.config["engine"], "engine")
        task = Task(transform=declared.trainer.transform, loss=declared.loss)
        batch_size = _examples_per_step(declared)
        inputs = self._random_model_inputs(batch_size)
        labels = label_shape(declared.loss, tuple(declared.dataset.shape), declared.dataset.classes)
        targets = torch.zeros(batch_size, *labels, dtype=getattr(torch, declared.loss.labels), device=self.device)
        batch = Minibatch(inputs, targets)

        def sum_gradients_of_examples(examples: int) -> None:
            engine.bounded_gradient_sum_and_norms(self.model, batch[:examples], task)

        seconds = (
            measure_step_seconds_scaled_to_batch(sum_gradients_of_examples, batch_size, self.device)
            if self.patient
            else seconds_of_one_step_call(sum_gradients_of_examples, 2, self.device)
        )
        return seconds + self._seconds_of_noise_and_update()

    def _seconds_of_noise_and_update(self) -> float:
        """Seconds of the noise, its rounding and the update of one step: those of a step that sums nothing."""
        import torch

        from dpsweep.trainers.engines.interface import trainable_parameters

        size = sum(parameter.numel() for parameter in trainable_parameters(self.model))

        def zero_gradient_sum(weights: torch.Tensor, batch: object, shrink: float = 1.0) -> torch.Tensor:
            return torch.zeros(1, size, dtype=torch.float64, device=weights.device)

        zeros: Any = SimpleNamespace(over=lambda rows, transforms: zero_gradient_sum)
        return self._seconds_of_training_loop_step(zeros, 1)

    def _seconds_of_training_loop_step(self, sums: Sums, points: int) -> float:
        """Seconds of a step of the training loop; the first step is not counted.

        Batches are drawn by Poisson sampling unless parts are taken in turn: a user's own sampler draws for paid
        attempts alone. Positions decide these parts, because the random records are all equal.
        """
        from dpsweep.accounting.guarantee import Adjacency
        from dpsweep.sweeper.trial.build import make_model, make_training_run
        from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson, Poisson
        from dpsweep.trainers.randomness import reproducible_streams
        from dpsweep.trainers.training.loop import train_together

        declared = self.declared
        noise = {"noise_multiplier": 0.0 if declared.trainer.noiseless else 1.0}
        cyclic = isinstance(declared.sampler, CyclicPoisson)
        sampler = declared.sampler if cyclic else Poisson(batch_size=declared.sampler.batch_size)
        adjacency = Adjacency.REPLACE_ONE if cyclic else declared.adjacency
        run = replace(make_training_run({"privacy": noise}, declared), sampler=sampler, adjacency=adjacency)
        models = [make_model(self.shape.config, f"estimate {place}") for place in range(points)]
        clock, ends = process_time_or_wall_clock_for_device(self.device), []

        def record_time_and_stop_if_enough(step: int) -> None:
            ends.append(clock())
            if not self.patient or ends[-1] - ends[0] > ENOUGH:
                raise _EnoughStepsTimed

        try:
            streams = [reproducible_streams(0, "estimate")] * points
            started = clock()
            train_together(
                [run] * points,
                models,
                sums,
                self._random_records(),
                streams,
                device=self.device,
                on_step=record_time_and_stop_if_enough,
            )
        except _EnoughStepsTimed:
            pass
        return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else ends[-1] - started

    def _seconds_of_convex_fit(self) -> float:
        """Seconds of a convex fit of all records; a first fit is not counted, since torch imports its solver there."""
        from dpsweep.sweeper.trial.build import make_training_run
        from dpsweep.trainers.randomness import reproducible_streams
        from dpsweep.trainers.training.convex_fit import fit_by_output_perturbation
        from dpsweep.trainers.training.run import Unrecorded

        declared = self.declared
        sampler: Any = declared.sampler
        few = min(FEW_RECORDS, declared.nominal_training_units)
        run = make_training_run({"privacy": {"noise_multiplier": 1.0}}, declared)
        run = replace(run, sampler=replace(sampler, batch_size=few), steps=1, train_records=few, ema=None)
        streams, records = reproducible_streams(0, "estimate"), self._random_records(few, varied=True)
        seconds = [
            seconds_of_one_step_call(
                lambda _: fit_by_output_perturbation(run, self.model, records, streams, Unrecorded(), self.device),
                few,
                self.device,
            )
            for _ in range(2)
        ]
        return seconds[-1] * declared.nominal_training_units / few

    def _seconds_of_curve_and_score(self) -> float:
        """Seconds of a run's curve and score: forward passes."""
        from dpsweep.trainers.data.interface import nominal_units
        from dpsweep.trainers.declarations.scores import evaluation_mode
        from dpsweep.trainers.training.learning_curves import MOST

        declared, dataset = self.declared, self.declared.dataset
        every = declared.score.every
        looks = 0 if every is None else math.ceil(declared.steps / every)
        held_out = nominal_units(dataset) - declared.nominal_training_units
        read = looks * min(MOST, dataset.test_records) + max(held_out, 0 if held_out else dataset.test_records)
        if declared.dataset.public:
            read += looks * min(MOST, dataset.records)
        examples = EXAMPLES if self.floating_point_operations_per_step > 1e10 else _SCORED
        inputs = self._random_model_inputs(min(_SCORED, examples))
        with evaluation_mode(self.model):
            self.model(inputs[:2])
            seconds = seconds_of_one_step_call(lambda many: self.model(inputs[:many]), len(inputs), self.device)
        return seconds * read / len(inputs)

    def _random_model_inputs(self, count: int) -> torch.Tensor:
        import torch

        generator = torch.Generator().manual_seed(0)
        return torch.rand(count, *self.declared.dataset.shape, generator=generator).to(self.device)

    def _random_records(self, count: int | None = None, *, varied: bool = False) -> Any:
        """Random records, or counts with ones if inputs are sparse; one record in the memory of all, or `varied`."""
        import torch

        from dpsweep.trainers.data.records import Records
        from dpsweep.trainers.declarations.losses import label_shape

        declared = self.declared
        sizes = label_shape(declared.loss, tuple(declared.dataset.shape), declared.dataset.classes)
        count = self.declared.nominal_training_units if count is None else count
        nonzero = declared.dataset.nonzero
        features = self._random_model_inputs(count if varied else 1).cpu()
        if nonzero is not None:
            features = (features.argsort(dim=1).argsort(dim=1) < nonzero).to(torch.uint8)
        labels = torch.zeros(count, *sizes)
        if varied and not sizes:
            labels = torch.arange(count) % max(1, declared.dataset.classes)
        return Records(
            features=features if varied else features.expand(count, *features.shape[1:]),
            labels=labels.to(getattr(torch, self.declared.loss.labels)),
            nonzero=nonzero,
        )


def _examples_per_step(declared: Declaration, deviations: int = 0) -> int:
    """The examples in a step, from the mean number that joins and so many standard deviations of it.

    They are more than the step's places if a unit has several records or augmented copies.
    """
    from dpsweep.trainers.data.interface import nominal_units
    from dpsweep.trainers.data.places import number_of_places

    dataset, records = declared.dataset, declared.records
    copies = 1 if declared.augmentation is None else declared.augmentation.multiplicity
    joining = declared.sampler.batch_size * records.most_training_units() / records.nominal_training_units
    places = number_of_places(round(max(0.0, joining + deviations * math.sqrt(joining))))
    return max(1, round(copies * places * dataset.records / nominal_units(dataset)))


def main() -> None:
    """Answers the question on standard input, and leaves what torch holds to the operating system.

    Python would take a third of torch's import to give back its objects one by one.
    """
    question = json.load(sys.stdin)
    set_folder_of_user_modules(Path.cwd(), question.pop("trusted"))
    question["shapes"] = [Shape(**shape) for shape in question["shapes"]]
    question["known"] = [None if cost is None else Cost(**cost) for cost in question["known"]]
    try:
        answer = asdict(time_training_steps_of_shapes(**question))
    except (ValueError, TypeError, RuntimeError) as cause:
        answer = {"refusal": str(cause)}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
