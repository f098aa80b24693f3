"""Warnings to the curator of a sweep that read no records, or whose learning rates changed no weight.

A wrong file costs budget and trains on noise.

If a record may be added or removed, the number of records is private, and nothing before the charge depends on it. The
jobs that read the records note in their results which part was empty, among the facts that never leave the curator's
folder, and the coordinator prints a warning on the terminal. Invariant: no page, ledger line or released file depends
on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsweep.accounting.records.trial_result import TrialResult

EMPTY, TRAIN, HOLDOUT = "empty", "train", "holdout"
"""The key of the fact in a result, and the parts of a split that it may name."""

UNCHANGED = "unchanged"
"""The key of the names of parameters whose updates were too small to change them."""


def warnings_of(results: Iterable[TrialResult], account: str) -> Iterator[str]:
    """Sentences for the curator alone: on each part of the data without records, and on weights that did not change."""
    results = tuple(results)
    if names := list(dict.fromkeys(str(name) for result in results for name in result.curator.get(UNCHANGED, ()))):
        runs = sum(UNCHANGED in result.curator for result in results)
        yield (
            f"The learning rate of {runs} run{'s' if runs > 1 else ''} was too small to change {', '.join(names)}: "
            "every update was below the precision of the weights. They stay charged; raise trainer.lr."
        )
    empty = {str(part) for result in results for part in result.curator.get(EMPTY, ())}
    if TRAIN in empty:
        yield (
            f"No record of {account} was there to train on, so every model of this sweep is noise alone: look at its "
            "file. Keep this to yourself, since how many records there are is private."
        )
    if HOLDOUT in empty:
        yield (
            f"No record of {account} is held out, so every score of this sweep is noise alone. Keep this to yourself: "
            "how many records there are is private."
        )
