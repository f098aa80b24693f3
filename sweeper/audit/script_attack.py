"""The attack on a script of the user's: it is handed records with canaries, and predicts all of them.

A script trains under a receipt. Here the receipt is of a scratch folder that is removed at the end, and the records are
those of the audit, on which nobody's privacy depends.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.audit_record import Attack, Scope
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.ledger.private_store import PrivateStore, new_nonce
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.audit.evidence import Collected, Scores
from dpsweep.sweeper.audit.record_attack import RecordAttack
from dpsweep.sweeper.trial.script_run import OUTPUT, predict
from dpsweep.sweeper.trial.session import Machine, Session
from dpsweep.sweeper.trial.spec import declare
from dpsweep.trainers.declarations.scores import scored_part

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split

AUDIT = "audit"
"""What the receipt names in place of a ledger's entries."""


def attack_script(attack: RecordAttack, alone: Trial, trainings: int) -> Collected:
    """The scores of so many trainings of the run `alone`: how well the script predicts each canary's label."""
    collected = Collected()
    for _ in range(trainings):
        drawn = attack.draw(alone)
        declaration, split = declare(alone.config), attack.background(attack.config(alone.config))
        canaries = attack.canaries_of(drawn, declaration, split)
        train = canaries.inserted(split.train, drawn.coins, attack.plan.adjacency)
        data = replace(split, train=train, holdout=canaries.records, test=canaries.records)
        if scored_part(declaration.score, data) is train:
            raise BadInput("Expected score=private or score=public with trainer=script: it predicts what is scored.")
        with tempfile.TemporaryDirectory() as scratch:
            predictions = _predicted(_session(Path(scratch), attack.plan, alone), attack.machine, data)
        collected.add(Scope.TRAINING, {Attack.LOSSES: _agreement(predictions, canaries.records)}, drawn.coins)
    return collected


def _predicted(session: Session, machine: Machine, data: Split) -> NDArray[Any]:
    """The script's predictions; a refusal has the last line that it printed, since its log is removed."""
    try:
        return predict(session, machine, data)
    except ContractBroken as broken:
        with suppress(OSError, IndexError):
            broken.args = (f"{broken} Its last line: {(session.place.files / OUTPUT).read_text().splitlines()[-1]}",)
        raise


def _session(scratch: Path, plan: Plan, trial: Trial) -> Session:
    """A session of the trial with a claimed receipt, all of it in a scratch folder."""
    folder, nonce = SweepFolder(root=scratch / "sweep"), new_nonce()
    folder.make()
    plan.write(folder.plan)
    store = PrivateStore(root=scratch / "stores" / AUDIT / plan.id)
    store.make()
    store.confirm(nonce)
    files = folder.trial(trial.id)
    make_folder(files)
    Receipt(
        account=plan.account,
        plan=plan.id,
        trial=trial.id,
        attempt=1,
        charge=AUDIT,
        entries=0,
        head=AUDIT,
        launch=nonce,
    ).write(files)
    receipt = Receipt.claim(files, store, plan=plan.id, trial=trial.id)
    return Session(trial=trial, receipt=receipt, place=store.place(files))


def _agreement(predictions: NDArray[Any], canaries: Records) -> Scores:
    """How well each prediction agrees with a canary's label: its probability, 1 if right, minus the error squared."""
    labels: NDArray[Any] = canaries.labels.numpy()
    if predictions.ndim == 2:
        return np.asarray(predictions[np.arange(len(labels)), labels], dtype=np.float64)
    if predictions.dtype.kind == "f":
        return np.asarray(-((predictions - labels) ** 2), dtype=np.float64)
    return np.asarray(predictions == labels, dtype=np.float64)
