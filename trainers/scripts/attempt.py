"""The context in which a script of the user's own trains one model: its settings, its records, and its report.

    import dpsweep

    with dpsweep.attempt() as a:
        ...                                            # train on a.train by a.steps noisy steps
        a.report(event=accountant, predictions=predicted)

Receipt first: without the receipt of a charged attempt that a job of a sweep has claimed, the context refuses.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsweep.accounting.durable_files import PRIVATE, write_json
from dpsweep.accounting.errors import ContractBroken, DpsweepError, NoReceipt, ReceiptUsed
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.ledger.permit import claim_path
from dpsweep.accounting.printing import print_error
from dpsweep.trainers.scripts import handover_files as names
from dpsweep.trainers.scripts.handover_files import Handover, StepJournal, require_valid_predictions
from dpsweep.trainers.scripts.reported_events import check_reported_event, event_from_reported_object

STOPPED = 75
"""The exit status of a script that was asked to stop and has left a checkpoint (EX_TEMPFAIL of sysexits.h)."""

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRecords:
    """The training records: features float32 [n, *shape], labels int64 or float32 [n], and units int64 [n] or None.

    n is private: never divide by it, use `Attempt.batch_size`. `units` is the unit of each record, if one has several.
    """

    features: NDArray[np.float32]
    labels: NDArray[Any]
    units: NDArray[np.int64] | None


@dataclass(kw_only=True, eq=False)
class Attempt:
    """One claimed attempt at one point; `given` has its settings, `folder` the files that it was handed."""

    given: Handover
    folder: Path
    _stop: threading.Event = field(default_factory=threading.Event)
    _journal: StepJournal | None = None

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        """The point's hyperparameters by name: `lr`, `clip_norm`, and those of `trainer.hyperparameters`."""
        return MappingProxyType(dict(self.given.hyperparameters))

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation of the noise on the sum of clipped gradients, over `clip_norm`."""
        return self.given.noise_multiplier

    @property
    def sample_rate(self) -> float:
        """The probability with which each record joins a step, independently of all others."""
        return self.given.sample_rate

    @property
    def steps(self) -> int:
        """The number of noisy steps: exactly as many, empty batches included."""
        return self.given.steps

    @property
    def batch_size(self) -> int:
        """The declared mean batch size: the public number to divide a noisy sum by."""
        return self.given.batch_size

    @property
    def clip_norm(self) -> float:
        """The norm that each record's gradient is clipped to."""
        return self.given.clip_norm

    @property
    def classes(self) -> int:
        """The number of labels; 1 where the label is a number."""
        return self.given.classes

    @property
    def target(self) -> tuple[float, float] | None:
        """The range from which labels that are numbers were scaled to [0, 1]; predictions are scaled likewise."""
        return self.given.target

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of several labels per record, the columns of `train.labels`; empty if each record has one label."""
        return self.given.label_names

    @property
    def delta(self) -> float:
        """The delta of the whole search."""
        return self.given.delta

    @property
    def seed(self) -> int | None:
        """None: draw from the operating system's entropy. A number: the sweep is declared reproducible."""
        return self.given.seed

    @cached_property
    def event(self) -> DpEvent:
        """The declared event of all steps."""
        return events.from_json(dict(self.given.event))

    @cached_property
    def train(self) -> TrainingRecords:
        """The training records, read on first use."""
        with np.load(self.folder / names.TRAIN_FILE, allow_pickle=False) as stored:
            units = stored.get("units")
            return TrainingRecords(
                features=self._model_inputs_from_features(stored["features"]), labels=stored["labels"], units=units
            )

    @cached_property
    def score_features(self) -> NDArray[np.float32]:
        """The inputs [m, *shape] of the records whose predictions are scored, without their labels."""
        with np.load(self.folder / names.SCORE_FILE, allow_pickle=False) as stored:
            return self._model_inputs_from_features(stored["features"])

    @property
    def resumed(self) -> bytes | None:
        """The state that an earlier session of this attempt saved; None where the run begins."""
        path = self.folder / names.STATE_FILE
        return path.read_bytes() if path.exists() else None

    def should_stop(self) -> bool:
        """Whether the sweep asks this script to stop."""
        return self._stop.is_set()

    def each_step(self, save: Callable[[], bytes] | None = None) -> Iterator[int]:
        """The numbers of the missing steps, from 0; each is marked as taken before it runs.

        `save` returns the state after the last step, the accountant's history included; `resumed` gives it back. It is
        called after every `checkpoint.every` steps and where the sweep is stopped, which ends the script. Without it
        there are no checkpoints, and a script that is asked to stop runs to its end.
        """
        if self._journal is not None:
            raise ContractBroken("Expected each_step to be used once: the steps of an attempt are taken once.")
        self._journal = journal = StepJournal.from_handover(self.given)
        shown = 0.0
        while journal.done < self.steps:
            journal.mark_next_stretch_if_needed()
            yield journal.done
            over = journal.count_step_and_say_if_stretch_over()
            if (now := time.monotonic()) - shown > PROGRESS_SECONDS:
                shown = now
                self._write_progress(journal.done)
            stopping = self.should_stop() and journal.done < self.steps
            if save is not None and (over or stopping):
                journal.write_checkpoint(save())
            if save is not None and stopping:
                raise SystemExit(STOPPED)

    def report(
        self,
        *,
        event: Any,
        predictions: ArrayLike | None = None,
        files: Mapping[str, str | Path] = MappingProxyType({}),
    ) -> None:
        """Ends the attempt: what ran, what the model predicts of `score_features`, and the files to keep by name.

        `event` is Opacus' accountant or engine, a DpEvent of dp_accounting, or a `dpsweep.TrainerState`. `predictions`
        are classes [m], probabilities [m, classes], numbers [m] on the scale of the training labels where these are
        numbers, or the probability of 1 of each of several labels [m, labels]; dpsweep counts, noises and charges them.
        Raises `ContractBroken` if what ran differs from what was declared, and ValueError for predictions of another
        shape or type.
        """
        ran = event_from_reported_object(event)
        if predictions is not None:
            table = require_valid_predictions(
                np.asarray(predictions),
                len(self.score_features),
                self.given.classes,
                several_labels=bool(self.given.label_names),
            )
            np.save(self.folder / names.PREDICTIONS_FILE, table, allow_pickle=False)
        for name, path in files.items():
            shutil.copyfile(path, self.folder / names.KEPT / name)
        taken = None if self._journal is None else self._journal.done
        form = {"name": self.given.session_name, "event": events.to_json(ran), "taken": taken}
        write_json(self.folder / names.REPORT_FILE, form, mode=PRIVATE)
        check_reported_event(ran, self.event, steps=self.steps, taken=taken)

    def _model_inputs_from_features(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Stored features as the inputs that a model of dpsweep's would get."""
        scaling = self.given.scaling
        inputs = stored.astype(np.float32)
        inputs /= np.float32(scaling["scale"])
        inputs -= np.float32(scaling["mean"])
        inputs /= np.float32(scaling["std"])
        return inputs

    def _write_progress(self, done: int) -> None:
        """Writes the progress for the sweep's display."""
        with suppress(OSError):
            (Path(self.given.files) / "progress").write_text(f"step {done}/{self.steps}")


@contextmanager
def attempt(receipt: str | Path | None = None) -> Iterator[Attempt]:
    """The attempt that a job of a sweep hands to this script, once; `receipt` is the path of its `attempt.json`.

    Without it, the environment variable DPSWEEP_ATTEMPT, which the job sets, names it. Raises `NoReceipt` if there is
    none or its receipt was never claimed, and `ReceiptUsed` if the attempt was taken before.
    """
    _install_one_sentence_error_hook()
    path = receipt if receipt is not None else os.environ.get(names.VARIABLE)
    if path is None:
        raise NoReceipt(
            "Nothing trains outside a charged sweep: this script holds no receipt. Start it by `dpsweep sweep "
            "trainer=script script=FILE`."
        )
    path = Path(path)
    given = Handover.read(path)
    if not claim_path(Path(given.record), given.attempt, given.resume).exists():
        raise NoReceipt(f"Expected attempt {given.attempt} at trial {given.trial} to be claimed: nothing trains.")
    try:
        taken = Path(given.record, f"script-{given.attempt}-{given.resume}")  # not beside `path`, which can be copied
        os.close(os.open(taken, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    except FileExistsError:
        raise ReceiptUsed(f"Attempt {given.attempt} at trial {given.trial} was taken by a script before.") from None
    one = Attempt(given=given, folder=path.parent)
    with _set_stop_event_on_sigterm(one._stop):
        yield one


def _install_one_sentence_error_hook() -> None:
    """An error of dpsweep's that ends a script is printed as its sentence, without a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, DpsweepError):
            print_error(error)
        else:
            before(kind, error, trace)

    if before is sys.__excepthook__:
        sys.excepthook = hook


@contextmanager
def _set_stop_event_on_sigterm(stop: threading.Event) -> Iterator[None]:
    """SIGTERM, by which the job passes a stop request on, sets `stop`; in another thread than the main one it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # blocked so far: an earlier request comes now
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
