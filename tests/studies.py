"""The Optuna study in a sweep's folder, read with Optuna's own backend as optuna-dashboard reads it."""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


def study_in(path: Path) -> optuna.Study:
    return optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(str(path))))
