"""Where a job keeps frozen features, and what it does while they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.sweeper.trial.ready_session import ReadySession
from dpsweep.sweeper.trial.session import PROGRESS, log
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    from dpsweep.trainers.features.cache import FeatureCache


class Interrupted(Exception):
    """The job was asked to stop before the first step."""


def feature_cache(group: Sequence[ReadySession], device: str, should_stop: Callable[[], bool]) -> FeatureCache | None:
    """The frozen features of the user's records, which lie beside the private stores of all plans; None without any.

    Before the first one is computed, runs that have not begun get a checkpoint: whatever ends the job before their
    first step then costs nothing. While features are computed, the number of finished records is written for the
    coordinator's display, and `Interrupted` is raised if the job is asked to stop.
    """
    if not isinstance(group[0].session.declaration.dataset, Extracted):
        return None
    from dpsweep.trainers.features.cache import FeatureCache

    kept = False

    def on_rows(done: int, total: int) -> None:
        nonlocal kept
        if not kept:
            _keep_beginnings(group, device)
            kept = True
        for one in group:
            with suppress(OSError):  # a full disk must not end a job because its progress cannot be written
                (one.session.place.files / PROGRESS).write_text(f"features {done}/{total}")
        log.info("features of %d of %d records", done, total)
        if should_stop():
            raise Interrupted

    store = PrivateStore.of_record(group[0].session.place.record)
    return FeatureCache(root=store.features, device=device, on_rows=on_rows)


def _keep_beginnings(group: Sequence[ReadySession], device: str) -> None:
    """Writes checkpoints of runs that have not begun."""
    from dpsweep.trainers.training.loop import beginning

    for one in group:
        if one.since is None and not isinstance(one.run.trainer, OutputPerturbation):
            one.journal.keep(beginning(one.run, one.model.to(device)))
