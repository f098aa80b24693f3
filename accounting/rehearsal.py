"""Rehearsals: sweeps on generated records, whose charges go to a scratch ledger and to no other.

A plan whose points declare generated records is a rehearsal, wherever its folder lies and whatever it is called.
Invariants:

* A rehearsal is charged to a ledger of its own, with a key and private stores of its own. No ledger of the user's is
  opened for it, so no bill changes.
* The plan decides, whose id is the hash of its content: a rehearsal cannot be edited into a sweep, since no ledger of
  the user's has charged it.
* The folder names its ledger by a random word. Whoever deletes the folder rehearses anew, with the whole budget.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import DAMAGE, BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import HOME_VARIABLE
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class

GENERATED = "generated"
"""The tag of generated records."""

PREFIX = "rehearsal-"
"""How the name of a rehearsal's account begins; the name of the real account follows."""

WITHOUT_SPENDING = "To try the same words on generated records, without spending: `dpsweep rehearse`."

WORD_FILE = "rehearsal.json"
_HOME = "rehearsals"
_LEDGER = "ledger.sqlite"
_WORD = re.compile(r"[0-9a-f]{32}")
_WORD_BYTES = 16


def is_rehearsal_plan(plan: Plan) -> bool:
    """Whether the plan's records are generated."""
    return any(tag_or_path_of_class(trial.config["dataset"]) == GENERATED for trial in plan.trials)


def is_rehearsal_folder(folder: Path) -> bool:
    """Whether a folder holds the plan of a rehearsal."""
    file = SweepFolder(root=folder).plan_path
    return file.is_file() and is_rehearsal_plan(Plan.read(file))


def account_without_rehearsal_prefix(plan: Plan) -> str:
    """The name of the account that a rehearsal stands for."""
    return plan.account.removeprefix(PREFIX)


def ledger_of_sweep_folder(folder: Path) -> Ledger:
    """The ledger that the sweep in a folder is charged to: the scratch ledger of a rehearsal, else the user's."""
    file = SweepFolder(root=folder).plan_path
    return existing_ledger_for_plan(Plan.read(file), folder) if file.is_file() else Ledger(user_ledger_place())


def existing_ledger_for_plan(plan: Plan, folder: Path) -> Ledger:
    """The ledger for this plan in this folder; raises `BadInput` for a rehearsal of which this machine has none."""
    return scratch_ledger_of_folder(folder) if is_rehearsal_plan(plan) else Ledger(user_ledger_place())


def find_or_create_ledger_for_plan(plan: Plan, folder: Path) -> Ledger:
    """As `existing_ledger_for_plan`, where a rehearsal that has no scratch ledger yet gets one."""
    if is_rehearsal_plan(plan) and not (folder / WORD_FILE).exists():
        SweepFolder(root=folder).create_folder()
        write_json(folder / WORD_FILE, {"ledger": secrets.token_hex(_WORD_BYTES)}, mode=0o600)
    return existing_ledger_for_plan(plan, folder)


def scratch_ledger_of_folder(folder: Path) -> Ledger:
    """The scratch ledger that a rehearsal's folder names; it lies beside the user's ledger, which is not opened."""
    home = Ledger(user_ledger_place()).folder_for_local_files / _HOME
    private = os.environ.get(HOME_VARIABLE)
    stores = Path(private).expanduser().absolute() / _HOME if private else home
    return Ledger(home / _read_random_name_of_scratch_ledger(folder) / _LEDGER, home=stores)


def _read_random_name_of_scratch_ledger(folder: Path) -> str:
    word = None
    with suppress(OSError, *DAMAGE):
        word = json.loads((folder / WORD_FILE).read_text()).get("ledger")
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        raise BadInput(f"Expected {folder / WORD_FILE} to name the scratch ledger of this rehearsal.")
    return word
