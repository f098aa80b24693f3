"""Inside a job: from a receipt and a configuration to a result file.

The task refuses to train unless its block is in a plan that was charged and each of its trials holds an unused receipt:
`hydra.mode=RUN`, `hydra/sweeper=basic`, a stale plan and an edited point all end here with one sentence. Data are read
only after the receipt was claimed. What ran is compared with what was declared, and a difference is a failure that the
ledger keeps.

A job that is asked to stop takes nothing more up: the trial at work finishes its step, leaves a checkpoint and no
result, and another job may go on with it, on a receipt to resume. A process that dies leaves its last checkpoint; what
it did after that one is lost and counts as done.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from accounting import events
from accounting.errors import BadInput, ContractBroken, NoReceipt
from accounting.events import DpEvent
from accounting.execution import is_try
from accounting.guarantee import Adjacency
from accounting.plan import Plan, Trial
from accounting.receipt import Receipt
from accounting.result import Status, TrialResult
from accounting.steps import Steps, forget_checkpoints, go_on, is_charged, steps_spent
from sweeper.declaration import build, declare
from sweeper.folder import SweepFolder
from sweeper.interrupts import stop_requests
from sweeper.locks import working
from trainers.data.dataset import unit_column

if TYPE_CHECKING:
    from torch import nn

    from trainers.data.split import Split
    from trainers.entropy import Streams

log = logging.getLogger("dpsweep")

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a job runs; no part of any identity."""

    device: str
    threads: int
    chunk: int | None
    data: Path | None

    def __post_init__(self) -> None:
        for name, value in (("threads", self.threads), ("chunk", self.chunk)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise BadInput(f"Expected compute.{name}={value!r} to be null or an integer >= 1.")

    @classmethod
    def of(cls, config: DictConfig, workers: int = 1) -> Machine:
        """The machine that a configuration asks for; `auto` takes CUDA where there is one."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            device=resolve_device(str(config.compute.device)),
            threads=max(1, cores // max(1, workers)) if config.compute.threads is None else config.compute.threads,
            chunk=config.compute.chunk,
            data=Path(config.data).expanduser() if config.data else None,
        )


def resolve_device(name: str) -> str:
    """`auto` takes CUDA where there is one."""
    import torch

    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def run_block(config: DictConfig) -> None:
    """The Hydra task: trains the trials of one block, each on its own receipt, and writes their results."""
    if config.block is None:
        raise NoReceipt(
            "Nothing trains outside a charged sweep: start one with `python -m sweeper` "
            "(no hydra.mode=RUN, no other hydra/sweeper)."
        )
    job = HydraConfig.get()
    folder = SweepFolder(root=Path(job.runtime.cwd) / str(job.sweep.dir))
    with stop_requests(folder.stop) as should_stop:
        if not folder.plan.exists():
            raise NoReceipt(f"Nothing trains outside a charged sweep: {folder.root} holds no plan.json.")
        plan = Plan.read(folder.plan)
        workers = job.launcher.get("n_jobs", 1) or 1
        machine = Machine.of(config, workers=workers if workers > 0 else os.cpu_count() or 1)
        for trial in folder.block(plan, config.block).trials:
            if should_stop():
                return
            place = folder.trial(trial.id)
            with working(place):
                receipt = Receipt.claim(place, plan=plan.id, trial=trial.id)
                OmegaConf.save(OmegaConf.create(dict(trial.config)), place / "config.yaml")
                with _train_log(place):
                    run_trial(trial, receipt, place, machine, should_stop)


def run_trial(
    trial: Trial, receipt: Receipt, place: Path, machine: Machine, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Trains one trial and writes its result; whatever goes wrong is a result too, and stays charged.

    A trial that was stopped leaves a checkpoint and no result; a receipt to resume goes on from there.
    """
    started = _now()
    clock = time.perf_counter()
    result = TrialResult(
        trial=trial.id,
        attempt=receipt.attempt,
        status=Status.FAILED,
        score=None,
        event=None,
        steps=0,
        seconds=0.0,
        device=machine.device,
        randomness="secret" if trial.config["seed"] is None else "reproducible",
        started=started,
        ended=started,
        versions={name: version(name) for name in ("dpsweep", "torch", "opacus", "numpy")}
        | {"python": platform.python_version()},
    )
    log.info("trial %s, attempt %d, resume %d: %s", trial.id, receipt.attempt, receipt.resume, dict(trial.axes))
    try:
        ended = _train(trial, receipt, result, place, machine, should_stop)
    except Exception as error:
        log.exception("the trial failed")
        ended = replace(
            result,
            error=f"{type(error).__name__}: {error}",
            steps=steps_spent(place, trial, receipt.attempt),
            seconds=time.perf_counter() - clock,
        )
    (place / "progress").unlink(missing_ok=True)
    if ended is None:
        log.info("stopped after %.1f s", time.perf_counter() - clock)
        return
    replace(ended, ended=_now()).write(place)
    forget_checkpoints(place)
    log.info("%s after %d steps in %.1f s", ended.status, ended.steps, ended.seconds)


def _train(
    trial: Trial,
    receipt: Receipt,
    result: TrialResult,
    place: Path,
    machine: Machine,
    should_stop: Callable[[], bool],
) -> TrialResult | None:
    """The result of the attempt's last session, None where it was stopped before."""
    import torch

    from trainers.checkpoint import TrialJournal, read_checkpoint
    from trainers.loop import Run, train
    from trainers.models.store import save_model

    torch.set_num_threads(machine.threads)
    declaration = declare(trial.config)
    steps = go_on(place, trial, receipt) if receipt.resume else Steps.begin(place, trial, receipt.attempt)
    streams = make_streams(trial, receipt)
    wanted = {name: trial.config[name] for name in ("dataset", "score")} | {"adjacency": declaration.adjacency}
    data = _load(json.dumps(wanted, sort_keys=True), machine.data)
    model = make_model(trial.config, initial_identity(trial))
    run = Run(
        trainer=declaration.trainer,
        sampler=declaration.sampler,
        schedule=declaration.schedule,
        noise_multiplier=trial.config["privacy"]["noise_multiplier"],
        steps=declaration.steps,
        train_records=declaration.train_records,
    )
    journal = TrialJournal(receipt=receipt, run=run, every=declaration.stretch, steps=steps)
    outcome = train(
        run,
        model,
        build(trial.config["engine"], "engine"),
        data.train,
        streams,
        device=machine.device,
        chunk=machine.chunk,
        on_step=_progress(place, declaration.steps),
        should_stop=should_stop,
        journal=journal,
        since=read_checkpoint(steps, run, machine.device) if receipt.resume else None,
    )
    if outcome.stopped:
        return None
    result = replace(
        result,
        status=Status.DIVERGED if outcome.diverged else Status.FINISHED,
        event=events.to_json(outcome.event),
        steps=outcome.steps,
        seconds=outcome.seconds,
        curator={"batch_sizes": asdict(outcome.batch_sizes)},
    )
    try:
        check_realised(outcome.event, trial.event.training, least=0 if outcome.diverged else declaration.steps)
        if outcome.diverged:
            return replace(result, score={"value": 0.0, "low": 0.0, "high": 0.0})
        save_model(model, place)
        check_scored(declaration.score.event(), trial.event.validation)
        if trial.event.validation is not None:
            journal.score()
        score = asdict(declaration.score.measure(model, data, streams.score, machine.device))
        _check_score(score)
    except ContractBroken as broken:
        return replace(result, status=Status.FAILED, error=f"ContractBroken: {broken}")
    return replace(result, score=score)


def check_realised(realised: DpEvent, declared: DpEvent, *, least: int) -> None:
    """Raises `ContractBroken` unless what ran is `least` or more accesses, and nothing that was not charged."""
    if not is_charged(realised, declared, least=least):
        raise ContractBroken(f"Something else ran than was charged: realised {realised}, declared {declared}.")


def check_scored(measured: DpEvent | None, declared: DpEvent | None) -> None:
    """Raises `ContractBroken` unless the score about to be measured is the one that was charged."""
    same = measured is declared if measured is None or declared is None else events.same(measured, declared)
    if not same:
        raise ContractBroken(f"Another score was to be measured than was charged: {measured}, not {declared}.")


def _check_score(score: Mapping[str, float]) -> None:
    for name, value in score.items():
        if not math.isfinite(value):
            raise ContractBroken(f"Expected score.{name}={value} to be finite: it can be compared with nothing.")


def make_streams(trial: Trial, receipt: Receipt) -> Streams:
    """New streams for each session of each attempt; with a seed, an attempt's first session has the trial's own."""
    from trainers.entropy import reproducible_streams, secret_streams

    seed = trial.config["seed"]
    if seed is None:
        return secret_streams()
    session = f"{trial.id}, attempt {receipt.attempt}, resume {receipt.resume}" if receipt.resume else trial.id
    return reproducible_streams(seed, session)


def initial_identity(trial: Trial) -> str:
    """What decides the initial weights: public for a point, secret for a try.

    Theorems about hidden losers are about tries that are all alike; weights that anybody could compute from a try's
    place in the draw would make each of them another mechanism.
    """
    return secrets.token_hex() if is_try(trial) and trial.config["seed"] is None else trial.id


def make_model(config: Mapping[str, Any], identity: str) -> nn.Module:
    """The model of a configuration, with weights that depend on the trial's identity alone."""
    from hydra.utils import get_method

    from trainers.entropy import initial_seed
    from trainers.models.initialise import build as build_model

    parameters = {key: value for key, value in config["model"].items() if key != "_target_"}
    shape, classes = tuple(config["dataset"]["shape"]), config["dataset"]["classes"]
    factory = get_method(config["model"]["_target_"])
    return build_model(lambda: factory(shape, classes, **parameters), initial_seed(identity))


@lru_cache(maxsize=1)
def _load(request: str, folder: Path | None) -> Split:
    """The records of a trial, kept in memory for the next one that asks for the same; `request` is JSON."""
    config = json.loads(request)
    dataset = build(config["dataset"], "dataset")
    private, test = dataset.load(folder)
    if (private.units is None) != (unit_column(dataset) is None):
        raise ContractBroken(f"Expected the records of {dataset.name} to come by {dataset.unit}, as was charged.")
    split: Split = build(config["score"], "score").split(private, test, Adjacency(config["adjacency"]))
    return split


def _progress(place: Path, steps: int) -> Callable[[int], None]:
    """Writes how far the trial is, now and then, for the coordinator's display."""
    last = 0.0

    def on_step(done: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > PROGRESS_SECONDS:
            last = now
            (place / "progress").write_text(f"{done}/{steps}")
            log.info("step %d of %d", done, steps)

    return on_step


@contextmanager
def _train_log(place: Path) -> Iterator[None]:
    """Sends our log to the trial's own file; where the disk takes no more of it, the trial goes on without."""
    logging.raiseExceptions = False
    handler = logging.FileHandler(place / "train.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        with suppress(OSError):
            handler.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
