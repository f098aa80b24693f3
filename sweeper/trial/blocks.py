"""Which points may be trained together, and how many jobs they are divided among.

Points that differ in numbers alone (learning rate, clip norm, noise, ...) make one block. Where their models can be
stacked, a job trains many of them at once; elsewhere each is a job of its own, unless the user asks for more in one.
How a block is divided changes nothing but the time that it takes, since every point has batches and noise of its own.
Points with shared subsamples are one job, whatever their model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.typed_names import typed_key
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.sweeper.trial.spec import build
from dpsweep.trainers.data.interface import unit_column

MOST = 256
"""Points that a job has in work at once at most: each holds a lock and a log, and files that may be open are few."""

FLOATS = 2**25
"""Parameters that stacked models have together at most."""

_FREE = ("trainer", "privacy")
"""The parts of a configuration in which points of a block may have different numbers."""


def blocks_of(trials: Sequence[Trial], *, shared: bool) -> tuple[Block, ...]:
    """The blocks of a plan, in the order of their first points; raises `BadInput` where shared ones are not one."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(json.dumps(_form(trial.config), sort_keys=True), []).append(trial)
    if shared and len(groups) > 1:
        raise BadInput(
            "Expected subsample=shared to have points of one method that differ in its numbers and in their noise "
            f"alone; these differ in {', '.join(_differences(trials))}. A sweep for each is a charge for each."
        )
    if shared and len(trials) > MOST:
        raise BadInput(f"Expected subsample=shared to have at most {MOST} points, got {len(trials)}.")
    return tuple(Block(trials=tuple(group), shared=shared) for group in groups.values())


def could_share(plan: Plan, discloses: Collection[Disclosure]) -> bool:
    """Whether a plan's points, of which these facts may be shown, could have the same subsamples at every step."""
    if plan.shared:
        return True
    every = plan.trials[0].config["checkpoint"]["every"]
    if plan.spares or plan.proposed is not None or every is not None or len(plan.trials) == 1:
        return False
    try:
        blocks_of(plan.trials, shared=True)
    except BadInput:
        return False
    return Disclosure.ALL_SCORES in discloses


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One of `parts` equal parts of a block, and which of its points are due."""

    block: Block
    part: int
    parts: int
    due: tuple[Trial, ...]


def part_of(block: Block, part: int, parts: int) -> tuple[Trial, ...]:
    """The points of one of the parts that a block is divided into; one with shared subsamples is never divided."""
    if block.shared:
        return block.trials
    points = len(block.trials)
    return block.trials[points * part // parts : points * (part + 1) // parts]


def jobs_of(blocks: Iterable[Block], due: Iterable[Trial], *, workers: int, together: int | None) -> Iterator[Job]:
    """The jobs that these blocks are divided into, those without a due point left out.

    `together` is the most points of a job, None for what suits: as many as can be stacked while every worker has some.
    """
    wanted = {trial.id for trial in due}
    for block in blocks:
        parts = _parts(block, workers, together)
        for part in range(parts):
            points = tuple(trial for trial in part_of(block, part, parts) if trial.id in wanted)
            if points:
                yield Job(block=block, part=part, parts=parts, due=points)


def stacks(config: Mapping[str, Any]) -> bool:
    """Whether models of this configuration can be stacked."""
    return at_once(config) > 0


def at_once(config: Mapping[str, Any]) -> int:
    """How many points with this configuration a job stacks at most; 0 where it trains one after another."""
    if config.get("augmentation"):
        return 0
    parts = {name: config[name] for name in ("dataset", "model", "engine")}
    return _at_once(json.dumps(parts, sort_keys=True))


@lru_cache(maxsize=64)
def _at_once(parts: str) -> int:
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.trainers.engines.stacked import Stack

    config = json.loads(parts)
    if not build(config["engine"], "engine").stacks or unit_column(build(config["dataset"], "dataset")) is not None:
        return 0
    try:
        model = make_model(config, "any")
        Stack.of(model)
    except ValueError:
        return 0
    return min(MOST, max(1, FLOATS // sum(parameter.numel() for parameter in model.parameters())))


def _parts(block: Block, workers: int, together: int | None) -> int:
    points = len(block.trials)
    if block.shared or points == 1:
        return 1
    if together is not None:
        return math.ceil(points / together)
    most = at_once(block.trials[0].config)
    return min(points, max(workers, math.ceil(points / most))) if most else points


def _form(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what points of a block may have of their own."""
    form = {key: value for key, value in config.items() if key != "repeat"}
    for name in _FREE:
        form[name] = _without_numbers(form[name])
    return form


def _without_numbers(value: Any) -> Any:
    """A part of a configuration with a word in place of each number, also below: a transform's bound, say."""
    if isinstance(value, Mapping):
        return {key: _without_numbers(one) for key, one in value.items()}
    return "any" if _is_number(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _differences(trials: Sequence[Trial]) -> list[str]:
    """The parts of their configurations in which points differ too much."""
    forms = [_form(trial.config) for trial in trials]
    keys = {key for form in forms for key in form}
    return sorted(typed_key(key) for key in keys if any(form.get(key) != forms[0].get(key) for form in forms))
