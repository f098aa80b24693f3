"""The training loop of every method: draw, bound, add noise, step; for one run, or for several at once.

What it returns as `Outcome.event` is what it did, tallied step by step where batches are drawn and noise is added; the
caller compares it with `Run.event`, which was declared and charged beforehand. Sums are divided by the sampler's
declared batch size, never by the number of units drawn, and an empty batch is a step like any other. Drawn and bounded
are units: single records, or patients with all of their records.

Runs that are trained together take each step at the same time and are otherwise as if each were alone: batches and
noise are independent, unless they are told to share their batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpsweep.accounting.events.build import compose, repeat
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import check_epochs
from dpsweep.trainers.declarations.clip_schedules import noise_factor
from dpsweep.trainers.engines.gradients.parameters import trainable
from dpsweep.trainers.engines.interface import Engine
from dpsweep.trainers.methods.projection import Projection
from dpsweep.trainers.methods.updates import Directions
from dpsweep.trainers.models.checks.modules import refuse_mixing
from dpsweep.trainers.noise import Lattices
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.batch_and_noise import BatchAndNoise, Tally
from dpsweep.trainers.training.gradient_sums import EngineSums, Sums
from dpsweep.trainers.training.learning_curves import CurveRecorder
from dpsweep.trainers.training.run import Journal, Outcome, Progress, Run, Unrecorded
from dpsweep.trainers.training.weight_averaging import Averages


def train(
    run: Run,
    model: nn.Module,
    engine: Engine,
    records: Records,
    streams: Streams,
    *,
    device: torch.device | str,
    chunk: int | None = None,
    on_step: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    journal: Journal | None = None,
    since: Progress | None = None,
    watch: CurveRecorder | None = None,
) -> Outcome:
    """Trains `model` in place on `device`, calling `on_step` with the number of steps done after each.

    A step is x <- x - lr * factor * direction((sum_i h_i g_i + z) / batch_size), z ~ N(0, (noise_multiplier *
    bound)^2), and a projection where the method has one; `run.bounds` says which noise multiplier and bound it has. The
    noisy sum is rounded to the lattice of `dpsweep.trainers.noise` before anything reads it.
    Where the run wants an average, it is what `model` ends with. A run whose parameters cease to be finite stops there
    and is flagged, not raised. `should_stop` is asked after each step, or epoch; what was reached is kept then. `since`
    is where an earlier session left off: `streams` must be new.
    """
    sums = EngineSums(models=[model], engine=engine, records=records.to(device), device=device, chunk=chunk)
    (outcome,) = train_together(
        [run],
        [model],
        sums,
        records,
        [streams],
        device=device,
        on_step=on_step,
        should_stop=should_stop,
        journals=None if journal is None else [journal],
        since=[since],
        watch=watch,
    )
    return outcome


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
) -> tuple[Outcome, ...]:
    """Trains models of one architecture in place, step by step together; `train` says what a step is.

    The runs must be at the same step and have sampler, schedules and steps in common. Each has its own streams; runs in
    a row that are given the same ones draw from them side by side. With `share` all have the batches that the first
    draws. A run that diverges leaves; the others go on. `watch` looks at each model now and then.
    """
    refuse_mixing(models[0], tuple(records.features.shape[1:]))
    earlier = since or [None] * len(runs)
    places = [
        _begin(run, model.to(device)) if last is None else _go_on(last, model.to(device))
        for run, model, last in zip(runs, models, earlier, strict=True)
    ]
    written = journals or [Unrecorded()] * len(runs)
    rows = [_Row(*row) for row in zip(range(len(runs)), runs, streams, written, places, strict=True)]
    _require_alike(rows)
    session = _Session(sums=sums, available=records.available, share=share, on_step=on_step, should_stop=should_stop)
    while (going := [row for row in rows if row.goes_on]) and not session.stopping:
        left = _begin_stretch(going)
        while going and left and not session.stopping:
            left -= session.advance(going, left if watch is None else min(left, watch.ahead(going[0].progress.step)))
            if watch is not None:
                _look(watch, going, models)
            going = [row for row in going if row.goes_on]
        for row in going:
            row.journal.keep(row.progress)
    for row, model in zip(rows, models, strict=True):
        row.hand_over(model)
    return tuple(row.outcome(company=len(rows) if share else 1) for row in rows)


@dataclass(frozen=True, eq=False)
class _Row:
    """One of the runs, with all that is its own."""

    place: int
    run: Run
    streams: Streams
    journal: Journal
    progress: Progress

    @property
    def goes_on(self) -> bool:
        return self.progress.step < self.run.steps and not self.progress.diverged

    def hand_over(self, model: nn.Module) -> None:
        """Leaves a finished run's model with what is to be scored and kept."""
        if self.progress.average is not None and self.progress.step == self.run.steps:
            vector_to_parameters(self.progress.average, trainable(model))

    def outcome(self, company: int) -> Outcome:
        here = self.progress
        return Outcome(
            event=compose(repeat(event, count) for event, count in here.ran.items()),
            steps=here.step,
            diverged=here.diverged,
            stopped=self.goes_on,
            seconds=here.seconds,
            batch_sizes=here.drawn.batch_sizes,
            company=company,
            curve=here.curve,
            rounded=here.rounded,
        )


@dataclass(kw_only=True, eq=False)
class _Session:
    """What the runs have in common while they are trained."""

    sums: Sums
    available: int
    share: bool
    on_step: Callable[[int], None] | None
    should_stop: Callable[[], bool] | None
    stopping: bool = False

    def advance(self, rows: Sequence[_Row], steps: int) -> int:
        """Takes so many steps, fewer where one of the runs diverges or a stop is asked for; how many it took."""
        run, places, started = rows[0].run, [row.progress for row in rows], perf_counter()
        check_epochs(run.sampler, run.train_records, stretch=steps)
        weights = _stacked([here.weights for here in places])
        chance = BatchAndNoise.of([row.streams for row in rows], run, self.available, share=self.share)
        sums = self.sums.over([row.place for row in rows], [row.run.trainer.transform for row in rows])
        deviations, rate = [row.run.noise_std for row in rows], _column([row.run.trainer.lr for row in rows], weights)
        lattices, scale = Lattices.of(deviations, weights.device), 1.0
        directions = Directions([row.run.trainer.update for row in rows], [here.state for here in places])
        project = Projection([row.run.trainer for row in rows], weights)
        averages = Averages(run.ema, [here.average for here in places])
        first, tally, factors = places[0].step, Tally(len(rows)), Counter[float]()
        for step, batch in zip(range(first, first + steps), chance.batches(), strict=False):
            tally.add(batch.sizes)
            shrink, factor = run.bounds.factor(step, run.steps), noise_factor(run.bounds, step, run.steps)
            factors[factor] += 1
            if shrink * factor != scale:
                scale = shrink * factor
                lattices = Lattices.of([std * scale for std in deviations], weights.device)
            noisy = sums(weights, batch, shrink)
            if any(deviations):
                noisy = lattices.add(noisy, chance.noise(weights))
            means = ((one / run.sampler.batch_size).to(weights.dtype) for one in (noisy, lattices.stds))
            direction = directions(*means)
            weights -= rate * run.schedule.factor(step, run.steps) * direction
            project(weights)
            averages.add(weights, step)
            if self.on_step is not None:
                self.on_step(step + 1)
            if (step + 1) % run.period:
                continue
            self.stopping = self.should_stop is not None and self.should_stop()
            if self.stopping or not all(bound.isfinite() for bound in torch.aminmax(weights)):
                break
        seconds = (perf_counter() - started) / len(rows)
        ends = zip(rows, places, weights, averages, directions.states(), tally.drawn(), strict=True)
        for row, here, vector, average, state, drawn in ends:
            here.ran += row.run.ran(factors)
            here.weights.copy_(vector)
            here.average, here.state, here.step = average, state, first + tally.steps
            here.drawn += drawn
            here.seconds += seconds
        return tally.steps


def _look(watch: CurveRecorder, rows: Sequence[_Row], models: Sequence[nn.Module]) -> None:
    """Adds to the curves of runs that are at a step where that is due."""
    for row in rows:
        here = row.progress
        if watch.due(here.step, row.run.steps) and not here.diverged:
            transform = row.run.trainer.transform.shrunk(row.run.bounds.factor(here.step - 1, row.run.steps))
            with _averaged(here):
                here.curve += ({"step": here.step, **watch.look(models[row.place], transform)},)


@contextmanager
def _averaged(here: Progress) -> Iterator[None]:
    """The model as it would be handed over now: with the average of its weights, where there is one."""
    if here.average is None:
        yield
        return
    current = here.weights.clone()
    here.weights.copy_(here.average)
    try:
        yield
    finally:
        here.weights.copy_(current)


def _begin_stretch(rows: Sequence[_Row]) -> int:
    """How many steps the next stretch has, once every run's journal has it."""
    missing = rows[0].run.steps - rows[0].progress.step
    lengths = {row.journal.begin(missing) for row in rows}
    if len(lengths) != 1:
        raise ValueError(f"Expected stretches={sorted(lengths)} of runs that are trained together to be alike.")
    return lengths.pop()


def _require_alike(rows: Sequence[_Row]) -> None:
    """Raises ValueError where runs cannot take their steps together."""
    for name, values in (
        ("sampler", [row.run.sampler for row in rows]),
        ("schedule", [row.run.schedule for row in rows]),
        ("bounds", [row.run.bounds for row in rows]),
        ("steps", [row.run.steps for row in rows]),
        ("ema", [row.run.ema for row in rows]),
        ("train_records", [row.run.train_records for row in rows]),
        ("step", [row.progress.step for row in rows]),
    ):
        if any(value != values[0] for value in values):
            raise ValueError(f"Expected {name} of runs that are trained together to be alike.")


def _begin(run: Run, model: nn.Module) -> Progress:
    weights = _as_one_vector(model)
    average = None if run.ema is None else weights.clone()
    return Progress(weights=weights, fixed=_fixed(model), state=run.trainer.update.start(weights), average=average)


def _go_on(since: Progress, model: nn.Module) -> Progress:
    """The earlier session's progress with this model for its own, whose initial weights it overwrites."""
    weights, fixed = _as_one_vector(model), _fixed(model)
    for mine, kept in zip((weights, *fixed), (since.weights, *since.fixed), strict=True):
        mine.copy_(kept)
    return replace(since, weights=weights, fixed=fixed, ran=since.ran.copy())


def _fixed(model: nn.Module) -> tuple[Tensor, ...]:
    """The tensors that training leaves alone: they too may have been drawn where the model was made."""
    frozen = (parameter.detach() for parameter in model.parameters() if not parameter.requires_grad)
    return *frozen, *model.buffers()


def _as_one_vector(model: nn.Module) -> Tensor:
    """The trainable parameters as one vector [P], of which they become views that it moves."""
    parameters = trainable(model)
    vector = parameters_to_vector(parameters).detach()
    vector_to_parameters(vector, parameters)
    return vector


def _stacked(vectors: Sequence[Tensor]) -> Tensor:
    """The vectors as the rows of a matrix [K, P]; a lone one as a view, so that its model moves along."""
    return vectors[0][None] if len(vectors) == 1 else torch.stack(list(vectors))


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None].to(like)
