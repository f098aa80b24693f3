"""Blocks of points that may be trained together, and their division into jobs.

Points that differ in numbers only (learning rate, clip norm, noise, ...) form one block. If their models can be
stacked, a job trains many of them at once; otherwise each point is a separate job, unless the user asks for more in
one. The division of a block changes its running time only, since every point has separate batches and noise. Points
with shared subsamples are one job, whatever their model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import REPEAT, Block, Trial
from dpsweep.sweeper.trial.spec import ADAPTER, FEATURES, build_object_of_config_part, dataset_from_config
from dpsweep.trainers.methods.script import is_script_config

MOST = 256
"""Largest number of points that a job trains at once: each has an open lock and log, and open files are limited."""

FLOATS = 2**25
"""Largest total number of parameters of stacked models."""

_FREE = ("trainer", "privacy")
"""The parts of a configuration in which the points of a block may differ in their numbers."""


def group_points_into_blocks(trials: Sequence[Trial], *, shared: bool) -> tuple[Block, ...]:
    """The blocks of a plan, in the order of their first points; raises `BadInput` if shared ones are several."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(json.dumps(_config_without_numbers(trial.config), sort_keys=True), []).append(trial)
    if shared and len(groups) > 1:
        raise BadInput(
            "Expected subsample=shared to have points of one method that differ in its numbers and their noise only; "
            f"these differ in {', '.join(_settings_preventing_one_block(trials))}. Run a separate sweep for each, with "
            "its own charge."
        )
    if shared and len(trials) > MOST:
        raise BadInput(f"Expected subsample=shared to have at most {MOST} points, got {len(trials)}.")
    return tuple(Block(trials=tuple(group), shared=shared) for group in groups.values())


TRIES = "tries"
"""The word in place of a block's id for jobs that take the due runs of a secret draw in turn."""

CARD = "card"
"""The word in place of a block's id for the job that reads the sealed part with the number `part`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One of `parts` equal parts of the block with this id, with those of its points that are due.

    Jobs with `TRIES` in place of a block share what is due.
    """

    block: str
    part: int
    parts: int
    due: tuple[Trial, ...]


def points_in_part_of_block(block: Block, part: int, parts: int) -> tuple[Trial, ...]:
    """The points of one part of a block; a block with shared subsamples is never divided."""
    if block.shared:
        return block.trials
    points = len(block.trials)
    return block.trials[points * part // parts : points * (part + 1) // parts]


def jobs_with_due_points(
    blocks: Iterable[Block], due: Iterable[Trial], *, workers: int, together: int | None, least: int = 1
) -> Iterator[Job]:
    """The jobs of these blocks, without those that have no due point.

    `together` is the largest number of points of a job; None stacks as many as possible while every worker has some,
    and at least `least` where a block has as many.
    """
    due_ids = {trial.id for trial in due}
    for block in blocks:
        parts = _number_of_parts(block, workers, together, least)
        for part in range(parts):
            points = tuple(trial for trial in points_in_part_of_block(block, part, parts) if trial.id in due_ids)
            if points:
                yield Job(block=block.id, part=part, parts=parts, due=points)


def most_stacked_points(config: Mapping[str, Any]) -> int:
    """The largest number of points with this configuration that a job stacks; 0 if their models cannot be stacked."""
    if config.get("augmentation") or config.get(ADAPTER) or is_script_config(config):
        return 0
    if build_object_of_config_part(config["loss"], "loss").several_labels:
        return 0
    parts = {name: config[name] for name in ("dataset", "model", "engine", FEATURES) if name in config}
    most = _cached_most_stacked_points(json.dumps(parts, sort_keys=True))
    return most and max(1, most // config.get("noise", {}).get("bands", 1))  # each model keeps bands - 1 rows of noise


@lru_cache(maxsize=64)
def _cached_most_stacked_points(parts: str) -> int:
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.trainers.engines.stacked import Stack

    config = json.loads(parts)
    if (
        not build_object_of_config_part(config["engine"], "engine").stacks
        or dataset_from_config(config).unit_column is not None
    ):
        return 0
    try:
        model = make_model(config, "any")
        Stack.from_model(model)
    except ValueError:
        return 0
    return min(MOST, max(1, FLOATS // sum(parameter.numel() for parameter in model.parameters())))


def _number_of_parts(block: Block, workers: int, together: int | None, least: int) -> int:
    points = len(block.trials)
    if block.shared or points == 1:
        return 1
    if together is not None:
        return math.ceil(points / together)
    most = math.ceil(points / least)
    if not (stack_size := most_stacked_points(block.trials[0].config)):
        return most
    return min(points, max(min(workers, most), math.ceil(points / stack_size)))


def _config_without_numbers(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the numbers in which the points of a block may differ."""
    form = {key: value for key, value in config.items() if key != REPEAT}
    for name in _FREE:
        form[name] = _replace_numbers_by_word(form[name])
    return form


def _replace_numbers_by_word(value: Any) -> Any:
    """A part of a configuration with a word in place of each number, also below: a transform's bound, say."""
    if isinstance(value, Mapping):
        return {key: _replace_numbers_by_word(one) for key, one in value.items()}
    return "any" if _is_number(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _settings_preventing_one_block(trials: Sequence[Trial]) -> list[str]:
    """The parts of the configurations that prevent the points from being one block."""
    forms = [_config_without_numbers(trial.config) for trial in trials]
    keys = {key for form in forms for key in form}
    return sorted(key for key in keys if any(form.get(key) != forms[0].get(key) for form in forms))
