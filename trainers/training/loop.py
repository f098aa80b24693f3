"""The training loop of every method: sample a batch, bound gradients, add noise, update; for one run or several.

`Outcome.event` is the realised event, counted step by step where batches are drawn and noise is added. The caller
compares it with `Run.event`, which was declared and charged beforehand. Sums are divided by the sampler's declared
batch size, never by the number of units drawn, and an empty batch is a normal step. Sampling and bounding apply to
units: single records, or patients with all of their records.

Runs that are trained together take each step at the same time and are otherwise independent, in batches and in noise,
unless `share` gives them the same batches. Exponential moving averages of the weights, which are scored and saved, are
post-processing, free of charge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import compose, repeat
from dpsweep.accounting.files import call_for_each
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import units_of_each_cyclic_part
from dpsweep.trainers.declarations.batch_sampling import check_steps_are_whole_periods, number_of_parts
from dpsweep.trainers.declarations.clip_schedules import noise_multiplier_factor_at_step
from dpsweep.trainers.engines.interface import trainable_parameters
from dpsweep.trainers.methods.named_methods import Projection
from dpsweep.trainers.methods.updates import Directions, first_state_of_update
from dpsweep.trainers.models.checks import require_separate_examples
from dpsweep.trainers.randomness import Lattices, Streams
from dpsweep.trainers.training.batch_and_noise import Batch, BatchAndNoise, NoiseRows, Tally
from dpsweep.trainers.training.gradient_sums import Sums
from dpsweep.trainers.training.learning_curves import CurveRecorder
from dpsweep.trainers.training.run import Journal, Outcome, Progress, Run, Unrecorded


class Averages:
    """The averages [K, P] of K runs, or none if the runs declare no average.

    A step sets each to d * average + (1 - d) * weights, with d = min(ema, (1 + t) / (10 + t)) after t earlier steps. So
    early weights, which are near the initial ones, soon lose their influence. The average of points in a convex set
    stays in the set.
    Source: De, Berrada, Hayes, Smith, Balle 2022, Section 3 (parameter averaging).
    """

    def __init__(self, ema: float | None, averages: Sequence[Tensor | None]) -> None:
        self._ema = ema
        self._initial = averages
        rows = [average for average in averages if average is not None]
        self._rows = torch.stack(rows) if rows else None

    def add_weights(self, weights: Tensor, step: int) -> None:
        """Adds the weights [K, P] after the step with number `step`, counted from 0."""
        if self._ema is not None and self._rows is not None:
            self._rows.lerp_(weights, 1 - min(self._ema, (1 + step) / (10 + step)))

    def __iter__(self) -> Iterator[Tensor | None]:
        """The current average of each run."""
        return iter(self._initial if self._rows is None else self._rows)


def train_together(
    runs: Sequence[Run],
    models: Sequence[nn.Module],
    sums: Sums,
    records: Records,
    streams: Sequence[Streams],
    *,
    device: torch.device | str,
    share: bool = False,
    on_step: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    journals: Sequence[Journal] | None = None,
    since: Sequence[Progress | None] | None = None,
    watch: CurveRecorder | None = None,
    observe: Callable[[Sequence[int], int, Tensor], None] | None = None,
) -> tuple[Outcome, ...]:
    """Trains models of one architecture in place on `device`, step by step together.

    A step is x <- x - lr * factor * (direction((sum_i h_i g_i + z) / batch_size) + weight_decay * x), z ~ N(0,
    (noise_multiplier * bound)^2), then a projection if the method has one; `run.bounds` gives the noise multiplier and
    bound of the step.
    The noisy sum is rounded to the lattice of `dpsweep.trainers.randomness` before any other code reads it.

    The runs must be at the same step and have the same sampler, schedules and number of steps. Each has its own
    streams; adjacent runs with the same streams draw different numbers from them. With `share`, all use the batches of
    the first run. A run that diverges, whose parameters are not finite, leaves the group, and its outcome is flagged
    without an exception; the others continue. If the runs declare an average, the models end with it.

    `on_step` is called after each step with the number of steps done, `should_stop` after each step, or epoch; a stop
    saves the progress. `since` is the progress of earlier jobs: then `streams` must be new. `watch` records the
    learning curves. `observe` is called in each step with the places of the runs that take it, the number of earlier
    steps, and the noisy means [K, P] that the updates read: an attacker sees them.
    """
    require_separate_examples(models[0], records.input_shape)
    earlier = since or [None] * len(runs)
    progresses = [
        initial_progress(run, model.to(device)) if last is None else _resume_progress(last, model.to(device))
        for run, model, last in zip(runs, models, earlier, strict=True)
    ]
    run_journals = journals or [Unrecorded()] * len(runs)
    members = [_Member(*parts) for parts in zip(range(len(runs)), runs, streams, run_journals, progresses, strict=True)]
    _require_trainable_together(members)
    parts = units_of_each_cyclic_part(records, number_of_parts(runs[0].sampler), runs[0].adjacency)
    if max(map(len, parts)) > runs[0].most_train_units:
        raise ContractBroken(f"Expected about train_records={runs[0].train_records}, as charged, with equal parts.")
    group = _Group(
        sums=sums,
        parts=parts,
        begin=progresses[0].step,
        share=share,
        on_step=on_step,
        should_stop=should_stop,
        observe=observe,
        read_ahead=records.read_ahead if records.is_on_disk and len(members) == 1 else None,
    )
    while (active := [member for member in members if member.is_active]) and not group.stopping:
        remaining = _mark_next_interval_of_each_run(active)
        while active and remaining and not group.stopping:
            ahead = remaining if watch is None else min(remaining, watch.steps_to_next_point(active[0].progress.step))
            remaining -= group.take_steps(active, ahead)
            if watch is not None:
                _record_curves(watch, active, models)
            active = [member for member in active if member.is_active]
        for member in active:
            member.journal.save_progress(member.progress)
    for member, model in zip(members, models, strict=True):
        member.set_model_to_average(model)
    company = len(members) if share else 1
    return tuple(member.outcome(model, company) for member, model in zip(members, models, strict=True))


@dataclass(frozen=True, eq=False)
class _Member:
    """One run of a group, with its streams, journal and progress, and the last rows of its correlated noise."""

    place: int
    run: Run
    streams: Streams
    journal: Journal
    progress: Progress
    rows: list[Tensor] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        return self.progress.step < self.run.steps and not self.progress.diverged

    def set_model_to_average(self, model: nn.Module) -> None:
        """Sets a finished run's model to the average of the weights, if the run declares one."""
        if self.progress.average is not None and self.progress.step == self.run.steps:
            vector_to_parameters(self.progress.average, trainable_parameters(model))

    def outcome(self, model: nn.Module, company: int) -> Outcome:
        progress, parameters = self.progress, trainable_parameters(model)
        moved = () if progress.moved is None else torch.split(progress.moved, [each.numel() for each in parameters])
        return Outcome(
            event=compose(repeat(event, count) for event, count in progress.ran.items()),
            numbers=progress.weights.numel(),
            steps=progress.step,
            diverged=progress.diverged,
            stopped=self.is_active,
            seconds=progress.seconds,
            batch_sizes=progress.drawn.batch_size_statistics,
            company=company,
            curve=progress.curve,
            moved=tuple(bool(each.any()) for each in moved),
        )


@dataclass(kw_only=True, eq=False)
class _Group:
    """The runs that are trained together: their common settings, and whether a stop was requested.

    `parts` are the units of each part that the sampler takes in turn; `begin` is the first step of this job.
    """

    sums: Sums
    parts: tuple[NDArray[np.int64], ...]
    begin: int
    share: bool
    on_step: Callable[[int], None] | None
    should_stop: Callable[[], bool] | None
    observe: Callable[[Sequence[int], int, Tensor], None] | None = None
    read_ahead: Callable[[NDArray[np.int64]], None] | None = None
    stopping: bool = False

    def take_steps(self, members: Sequence[_Member], steps: int) -> int:
        """Takes `steps` steps, or fewer if a run diverges or a stop is requested; returns the number taken."""
        started, runs = perf_counter(), [member.run for member in members]
        run, progresses = runs[0], [member.progress for member in members]
        check_steps_are_whole_periods(run.sampler, run.train_records, interval=steps)
        weights = _stack_vectors([progress.weights for progress in progresses])
        source = BatchAndNoise.from_streams([member.streams for member in members], run, self.parts, share=self.share)
        sums = self.sums.over([member.place for member in members], [run.trainer.transform for run in runs])
        deviations = [run.noise_std for run in runs]
        rate = _floats_as_column_vector_like([run.trainer.lr for run in runs], weights)
        lattices, scale = Lattices.from_noise_stds(deviations, weights.device), 1.0
        directions = Directions([run.trainer.update for run in runs], [progress.state for progress in progresses])
        decay = rate * _floats_as_column_vector_like([run.trainer.weight_decay for run in runs], weights)
        decays = any(run.trainer.weight_decay for run in runs)
        project = Projection([run.trainer for run in runs], weights)
        averages = Averages(run.ema, [progress.average for progress in progresses])
        first, tally, factors = progresses[0].step, Tally(len(runs)), Counter[float]()
        rows = NoiseRows(
            run.noise_coefficients, [member.rows for member in members], first - self.begin, run.steps - self.begin
        )
        batches: Iterator[Batch] = islice(source.batches_of_all_steps(), steps)
        if self.read_ahead is not None:
            batches = _draw_next_batch_ahead(batches, self.read_ahead)
        for step, batch in zip(range(first, first + steps), batches, strict=False):
            tally.add_batch_sizes(batch.sizes)
            shrink = run.bounds.factor(step, run.steps)
            factor = noise_multiplier_factor_at_step(run.bounds, step, run.steps)
            factors[factor] += 1
            if shrink * factor != scale:
                scale = shrink * factor
                lattices = Lattices.from_noise_stds([std * scale for std in deviations], weights.device)
            noisy = sums(weights, batch, shrink)
            if any(deviations):
                noisy = rows.add_noise_to_sums(noisy, source.draw_standard_normal_noise(weights), lattices)
            noise_stds = lattices.stds * rows.next_std_factor()
            means = [(values / run.sampler.batch_size).to(weights.dtype) for values in (noisy, noise_stds)]
            if self.observe is not None:
                self.observe([member.place for member in members], step, means[0])
            direction, part = directions(*means), run.schedule.factor(step, run.steps)
            if decays:
                weights *= 1 - decay * part
            weights -= rate * part * direction
            project(weights)
            averages.add_weights(weights, step)
            if self.on_step is not None:
                self.on_step(step + 1)
            if (step + 1) % run.steps_per_period:
                continue
            self.stopping = self.should_stop is not None and self.should_stop()
            if self.stopping or not all(bound.isfinite() for bound in torch.aminmax(weights)):
                break
        for member, last in zip(members, rows.history_of_each_run(), strict=False):
            member.rows[:] = last
        seconds = (perf_counter() - started) / len(runs)
        moved = weights + rate * direction != weights
        ends = zip(
            runs, progresses, weights, averages, directions.states(), tally.statistics_of_each_run(), moved, strict=True
        )
        for member_run, progress, vector, average, state, drawn, moving in ends:
            progress.ran += member_run.event_counts_for_noise_factors(factors)
            progress.moved = moving
            progress.weights.copy_(vector)
            progress.average, progress.state, progress.step = average, state, first + tally.steps
            progress.drawn += drawn
            progress.seconds += seconds
        return tally.steps


def _draw_next_batch_ahead(
    batches: Iterator[Batch], read_ahead: Callable[[NDArray[np.int64]], None]
) -> Iterator[Batch]:
    """The same batches, each given out when the next one is drawn and begins to be read from disk.

    For one run alone: if it ends early, no other run is left whose next draw would differ.
    """
    batch = next(batches, None)
    while batch is not None:
        following = next(batches, None)
        if following is not None:
            read_ahead(following.units)
        yield batch
        batch = following


def _record_curves(watch: CurveRecorder, members: Sequence[_Member], models: Sequence[nn.Module]) -> None:
    """Adds a point to the curve of each run at a step where one is due."""
    for member in members:
        run, progress = member.run, member.progress
        if watch.is_point_due(progress.step, run.steps) and not progress.diverged:
            transform = run.trainer.transform.with_smaller_bound(run.bounds.factor(progress.step - 1, run.steps))
            with _temporarily_averaged_weights(progress):
                progress.curve += ({"step": progress.step, **watch.look(models[member.place], transform)},)


@contextmanager
def _temporarily_averaged_weights(progress: Progress) -> Iterator[None]:
    """The model with the average of its weights, if the run has one; restores the weights at the end."""
    if progress.average is None:
        yield
        return
    current = progress.weights.clone()
    progress.weights.copy_(progress.average)
    try:
        yield
    finally:
        progress.weights.copy_(current)


def _mark_next_interval_of_each_run(members: Sequence[_Member]) -> int:
    """The number of steps in the next interval, after every run's journal has recorded it."""
    missing = members[0].run.steps - members[0].progress.step
    lengths = set(call_for_each(lambda member: member.journal.mark_next_interval(missing), members))
    if len(lengths) != 1:
        raise ValueError(f"Expected intervals={sorted(lengths)} of runs that are trained together to be alike.")
    return lengths.pop()


def _require_trainable_together(members: Sequence[_Member]) -> None:
    """Raises ValueError if the runs cannot be trained together."""
    runs = [member.run for member in members]
    for name, values in (
        ("sampler", [run.sampler for run in runs]),
        ("schedule", [run.schedule for run in runs]),
        ("bounds", [run.bounds for run in runs]),
        ("steps", [run.steps for run in runs]),
        ("ema", [run.ema for run in runs]),
        ("noise", [run.noise for run in runs]),
        ("adjacency", [run.adjacency for run in runs]),
        ("train_records", [run.train_records for run in runs]),
        ("step", [member.progress.step for member in members]),
    ):
        if any(value != values[0] for value in values):
            raise ValueError(f"Expected {name} of runs that are trained together to be alike.")


def initial_progress(run: Run, model: nn.Module) -> Progress:
    """The progress of a run before its first step; the model's parameters become views of its weights."""
    weights = _parameters_as_one_vector(model)
    average = None if run.ema is None else weights.clone()
    return Progress(
        weights=weights,
        fixed=_untrained_tensors(model),
        state=first_state_of_update(run.trainer.update, weights),
        average=average,
    )


def _resume_progress(since: Progress, model: nn.Module) -> Progress:
    """The earlier job's progress with this model, whose initial weights are overwritten."""
    weights, fixed = _parameters_as_one_vector(model), _untrained_tensors(model)
    for tensor, saved in zip((weights, *fixed), (since.weights, *since.fixed), strict=True):
        tensor.copy_(saved)
    return replace(since, weights=weights, fixed=fixed, ran=since.ran.copy())


def _untrained_tensors(model: nn.Module) -> tuple[Tensor, ...]:
    """The tensors that training does not change; checkpoints need them, because they may have random initial values."""
    frozen = (parameter.detach() for parameter in model.parameters() if not parameter.requires_grad)
    return *frozen, *model.buffers()


def _parameters_as_one_vector(model: nn.Module) -> Tensor:
    """The trainable parameters as one vector [P]; the parameters become views of it."""
    parameters = trainable_parameters(model)
    vector = parameters_to_vector(parameters).detach()
    vector_to_parameters(vector, parameters)
    return vector


def _stack_vectors(vectors: Sequence[Tensor]) -> Tensor:
    """The vectors as the rows of a matrix [K, P]; a single vector as a view, so that its model changes with it."""
    return vectors[0][None] if len(vectors) == 1 else torch.stack(list(vectors))


def _floats_as_column_vector_like(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None].to(like)
