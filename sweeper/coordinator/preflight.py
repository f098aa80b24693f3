"""Checks before the charge: the files are the data of their account, and the jobs of the plan can run.

Files are the same data whatever their names. The ledger decides in `record_data` and records
the decision. This module provides the inputs, which are the contents of the files and the key, and a preview of the
decision that opens no account and creates no key. Invariant: a key is created only for a ledger without data sets,
since a new key recognises none of the known data sets.

Jobs can run if their files, checksums, models, shapes and the launcher are as the plan needs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import (
    Content,
    Key,
    known_data,
    missing_key_error,
    new_data_message,
)
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import HOME_VARIABLE, PrivateStore
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import FEATURES, RECORD_HASHES, shared_folder
from dpsweep.accounting.rehearsal import GENERATED
from dpsweep.accounting.stored_names.stored_classes import KIND
from dpsweep.sweeper.coordinator.request import SweepRequest
from dpsweep.sweeper.job.devices import is_torch_built_for_cuda
from dpsweep.sweeper.launchers import fork_launcher as forked_jobs
from dpsweep.sweeper.timing.step_timing import time_training_steps_in_new_process, time_training_steps_of_shapes
from dpsweep.sweeper.timing.time_estimate import (
    FIRST_STEP_FAILED,
    Cost,
    Speeds,
    configs_of_plan_runs,
    step_shapes_by_timing_key,
)
from dpsweep.sweeper.trial.spec import dataset_from_config, declaration_from_config
from dpsweep.trainers.data.doors import inspect_records
from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.declarations.batch_sampling import number_of_parts
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation
from dpsweep.trainers.methods.script import Script
from dpsweep.trainers.training.run_records import RecordStore

GB = 10**9

GROUPS = Path("/sys/fs/cgroup")
"""The folder of control groups on Linux."""

_SECOND_VERSION = ("memory.max", "memory.current", "inactive_file")
_FIRST_VERSION = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
"""A control group's files for its limit and for what it holds, and the line for files that the system may drop."""


def read_verified_private_contents(plan: Plan, folder: Path | None, cache: Path | None = None) -> tuple[Content, ...]:
    """The contents of the plan's files with private records, located and verified.

    In `cache` lies what an earlier pass over large files found.
    """
    return inspect_records(dataset_from_config(plan.trials[0].config), folder, cache)


def available_bytes_of_memory_or_none(processes: Path = Path("/proc"), groups: Path = GROUPS) -> int | None:
    """The bytes of memory that new processes may take, by the system and the control groups of this process.

    None where the system does not say.
    """
    known = [_available_bytes_of_system(processes / "meminfo")]
    try:
        lines = (processes / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / "memory" if controllers else groups
        names = _FIRST_VERSION if controllers else _SECOND_VERSION
        place = root / group.lstrip("/")
        known += [_free_bytes_of_group(one, names) for one in (place, *place.parents) if one.is_relative_to(root)]
    return min((one for one in known if one is not None), default=None)


def _available_bytes_of_system(path: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def _free_bytes_of_group(folder: Path, names: tuple[str, str, str]) -> int | None:
    """The bytes between a control group's limit and what it holds, less files that the system may drop."""
    limit, held, dropped = names
    with suppress(OSError, ValueError, IndexError):
        free = int((folder / limit).read_text()) - int((folder / held).read_text())
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith(f"{dropped} "):
                free += int(line.split()[1])
        return free
    return None


def _check_records_fit_into_memory(plan: Plan, request: SweepRequest) -> None:
    """Refuses records that the jobs at work at a time cannot hold.

    A job that may run on another machine has the memory that its launcher asks for, which is not known if it asks for
    none.
    """
    elsewhere, dataset = request.workers.elsewhere, dataset_from_config(plan.trials[0].config)
    free = request.workers.memory if elsewhere else available_bytes_of_memory_or_none()
    dataset.locate(request.data)
    jobs = 1 if elsewhere else min(request.workers.jobs, len(plan.trials))
    needed = dataset.least_bytes_in_job(request.data)
    advice = "dataset=arrays reads arrays from disk"
    if plan.trials[0].config["dataset"].get(KIND) == GENERATED:
        advice = "they are generated in memory, and a smaller dataset.records rehearses as well"
    if any(_holds_all_records(trial) for trial in plan.trials):
        needed, advice = max(needed, DataSet.least_bytes_in_job(dataset, request.data)), "this method holds all of them"
    if free is None or jobs * needed <= free:
        return
    places = "a job" if jobs == 1 else f"in each of {jobs} jobs"
    raise BadInput(
        f"Expected the records of dataset.name={dataset.name} to fit into memory: they need about {needed / GB:.1f} GB "
        f"{places}, {free / GB:.1f} GB are {'what the launcher asks for' if elsewhere else 'free'}; {advice}."
    )


def _check_number_of_units(plan: Plan, store: RecordStore) -> None:
    """Refuses data with more units in a part than the plan has places for."""
    runs = map(declaration_from_config, configs_of_plan_runs(plan))
    for records, cyclic_parts in {(one.records, number_of_parts(one.sampler)) for one in runs}:
        records.require_places(store, cyclic_parts)


def _holds_all_records(trial: Trial) -> bool:
    """Whether a run needs all of its records at once, wherever they lie."""
    return isinstance(declaration_from_config(trial.config).trainer, (OutputPerturbation, Script))


def keyed_fingerprint_of_contents(contents: Sequence[Content], ledger: Ledger) -> Fingerprint:
    """The contents' fingerprint by the user's key, or a rehearsal's own; raises `BadInput` if it is lost."""
    path = Key.user_key_path() if ledger.home is None else ledger.folder_for_local_files / "fingerprint.key"
    key = Key.read(path)
    if key is None and known_data(ledger):
        raise missing_key_error(ledger.name)
    return (key or Key.read_or_create(path)).fingerprint(contents)


def missing_data_files_sentence(plan: Plan, folder: Path | None) -> str:
    """A sentence on files of the data set that are not there yet; empty if they are, or if this is not known.

    Nothing is opened or downloaded. A class of the user's is not asked: it may do either.
    """
    config = plan.trials[0].config
    if KIND not in config["dataset"]:
        return ""
    return dataset_from_config(config).missing_files(folder)


def new_data_message_that_sweep_would_give(plan: Plan, folder: Path | None, ledger: Ledger) -> str:
    """The message or refusal that a sweep would give about the data; empty if this would need a download.

    The key is read and never created.
    """
    if not known_data(ledger):
        return ""
    if not dataset_from_config(plan.trials[0].config).is_local:
        return ""
    try:
        contents = read_verified_private_contents(plan, folder)
        return new_data_message(keyed_fingerprint_of_contents(contents, ledger), plan.account, ledger)
    except BadInput as refusal:
        return " ".join(str(refusal).splitlines())


def data_changed_during_sweep_message(
    data: Fingerprint, plan: Plan, folder: Path | None, ledger: Ledger, cache: Path | None = None
) -> str:
    """A message if the files changed during the sweep; empty if they did not.

    The change is not written into the ledger, where its time would reveal when a search ended.
    """
    try:
        now = keyed_fingerprint_of_contents(read_verified_private_contents(plan, folder, cache), ledger)
    except BadInput as cause:
        return f"The data of {plan.account} can no longer be read as they were before this sweep. {cause}"
    if now == data:
        return ""
    return (
        f"The data of {plan.account} changed while this sweep ran: not all of its runs read the same records. What was "
        "charged covers the records of either."
    )


@dataclass(frozen=True, kw_only=True)
class TrainingCheck:
    """The contents of the files with private records, the threads of a job, and the cost of each kind of step."""

    contents: tuple[Content, ...]
    threads: int
    costs: Mapping[str, Cost] | None


def check_training(plan: Plan, request: SweepRequest, store: PrivateStore, speeds: Speeds) -> TrainingCheck:
    """Tries everything that a user's mistake can break; raises `BadInput` if something fails.

    Steps whose `speeds` are known are tried, and not timed again.
    """
    if request.workers.elsewhere and not os.environ.get(HOME_VARIABLE):
        raise BadInput(
            f"Expected {HOME_VARIABLE} to name a folder that all machines of this sweep share, with "
            "this launcher: there every job claims its receipt."
        )
    compute, variables = request.compute, speeds.variables
    own = replace(compute, device="cpu") if variables else compute  # the workers of a process that uses GPUs lack them
    machine = replace(own.machine_of_worker_process(request.data), threads=request.max_threads_per_job)
    if request.forked:
        forked_jobs.import_trial_modules_before_fork(machine.device, machine.threads)
    _check_records_fit_into_memory(plan, request)
    contents = read_verified_private_contents(plan, machine.data, shared_folder(store, RECORD_HASHES))
    _check_number_of_units(plan, RecordStore(folder=machine.data, private=store))
    _check_feature_extraction(plan, store)
    kinds = step_shapes_by_timing_key(
        configs_of_plan_runs(plan),
        request.workers.jobs,
        request.max_points_per_job,
        extracts=count_records_without_features(plan.trials[0].config, store) > 0,
    )
    shapes = {kind: shape for kind, shape in kinds.items() if shape.can_be_timed}
    device = compute.device if variables else machine.device
    steps = list(shapes.values()), device, compute.threads, request.max_threads_per_job
    known = list(speeds.known_costs_of_shapes(shapes).values())
    try:
        if variables or (request.forked and is_torch_built_for_cuda()):
            times = time_training_steps_in_new_process(*steps, known, variables)
        else:
            times = time_training_steps_of_shapes(*steps, known)
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"{FIRST_STEP_FAILED}: {cause}") from cause
    return TrainingCheck(contents=contents, threads=times.threads, costs=dict(zip(shapes, times.costs, strict=True)))


def data_notes_by_topic(plan: Plan, store: PrivateStore) -> dict[str, str]:
    """What a user should know of the plan's records beside their price: a caution, and features yet to be computed."""
    dataset, words = dataset_from_config(plan.trials[0].config), {}
    if isinstance(dataset, Extracted):
        missing, dataset = dataset.estimated_records_to_compute(shared_folder(store, FEATURES)), dataset.of
        if missing:
            words["features"] = f"computed once, for about {missing} records, before the runs"
    if dataset.caution:
        words["records"] = dataset.caution
    return words


def count_records_without_features(config: Mapping[str, Any], store: PrivateStore) -> int:
    """About how many records' frozen features are computed before the first run of this configuration."""
    if not config.get("features"):
        return 0
    dataset = dataset_from_config(config)
    return dataset.estimated_records_to_compute(shared_folder(store, FEATURES)) if isinstance(dataset, Extracted) else 0


def _check_feature_extraction(plan: Plan, store: PrivateStore) -> None:
    """Tries the extractor of frozen features on random inputs, and checks the features that are on disk."""
    dataset = dataset_from_config(plan.trials[0].config)
    if not isinstance(dataset, Extracted):
        return
    from dpsweep.trainers.features.cache import FeatureCache, checked_probe_features

    try:
        cache = FeatureCache(root=shared_folder(store, FEATURES))
        cache.check_stored_features(dataset, checked_probe_features(dataset))
    except (ValueError, RuntimeError) as cause:
        raise BadInput(f"These features cannot be computed: {cause}") from cause
