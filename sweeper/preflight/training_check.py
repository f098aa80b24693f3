"""Check that the jobs of a plan can run: files, checksums, models, shapes and the launcher, before the charge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.accounting.ledger.private_store import HOME_VARIABLE, PrivateStore
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.launchers import fork_launcher as forked_jobs
from dpsweep.sweeper.preflight.data_identity import read_contents
from dpsweep.sweeper.request.sweep_request import SweepRequest
from dpsweep.sweeper.timing.step_times import Speeds
from dpsweep.sweeper.timing.step_timing import time_steps
from dpsweep.sweeper.timing.time_estimate import Cost, configs_of, shapes_of
from dpsweep.sweeper.trial.spec import declare
from dpsweep.trainers.features.extracted import Extracted


@dataclass(frozen=True, kw_only=True)
class TrainingCheck:
    """The contents of the files with private records, the threads of a job, and the cost of each kind of step."""

    contents: tuple[Content, ...]
    threads: int
    costs: Mapping[str, Cost] | None

    @classmethod
    def of_nothing(cls, contents: tuple[Content, ...], costs: Mapping[str, Cost] | None) -> TrainingCheck:
        """The check of a plan that has nothing left to train: its files alone, and step times of earlier sweeps."""
        return cls(contents=contents, threads=1, costs=costs)


def check_training(plan: Plan, request: SweepRequest, store: PrivateStore, speeds: Speeds) -> TrainingCheck:
    """Tries everything that a user's mistake can break; raises `BadInput` if something fails.

    Steps whose `speeds` are known are tried, and not timed again.
    """
    if request.workers.elsewhere and not os.environ.get(HOME_VARIABLE):
        raise BadInput(
            f"Expected {HOME_VARIABLE} to name a folder that all machines of this sweep share, with "
            "this launcher: there every job claims its receipt."
        )
    machine = replace(request.compute.machine(request.data), threads=request.most_threads)
    request.jobs.of_plan(plan.id).try_out()
    if request.forked:
        forked_jobs.prepare(machine.device, machine.threads)
    contents = read_contents(plan, machine.data)
    _check_features(plan, store)
    kinds = shapes_of(
        configs_of(plan),
        request.workers.jobs,
        request.together,
        processes=machine.processes,
        extracts=missing_features(plan.trials[0].config, store) > 0,
    )
    shapes = {kind: shape for kind, shape in kinds.items() if shape.timeable}
    try:
        times = time_steps(
            list(shapes.values()),
            machine.device,
            request.compute.threads,
            request.most_threads,
            speeds.of_shapes(shapes),
        )
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause
    return TrainingCheck(contents=contents, threads=times.threads, costs=dict(zip(shapes, times.costs, strict=True)))


def data_in_words(plan: Plan, store: PrivateStore) -> dict[str, str]:
    """What a user should know of the plan's records beside their price: a caution, and features yet to be computed."""
    dataset, words = declare(plan.trials[0].config).dataset, {}
    if isinstance(dataset, Extracted):
        missing, dataset = dataset.missing(store.features), dataset.of
        if missing:
            words["features"] = f"of about {missing} records are computed first, once"
    if caution := getattr(dataset, "caution", None):
        words["records"] = str(caution)
    return words


def missing_features(config: Mapping[str, Any], store: PrivateStore) -> int:
    """About how many records' frozen features are computed before the first run of this configuration."""
    if not config.get("features"):
        return 0
    dataset = declare(config).dataset
    return dataset.missing(store.features) if isinstance(dataset, Extracted) else 0


def _check_features(plan: Plan, store: PrivateStore) -> None:
    """Tries the extractor of frozen features on random inputs, and checks the features that are on disk."""
    dataset = declare(plan.trials[0].config).dataset
    if not isinstance(dataset, Extracted):
        return
    from dpsweep.trainers.features.cache import FeatureCache
    from dpsweep.trainers.features.checks import check_features

    try:
        FeatureCache(root=store.features).check(dataset, check_features(dataset))
    except (ValueError, RuntimeError) as cause:
        raise BadInput(f"These features cannot be computed: {cause}") from cause
