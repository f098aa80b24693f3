"""Plans in sweep folders: the charged one that `resume` continues, and the one that the same command meant before.

The command's defaults may have changed since, and then the same command means another plan; so may prices, or the
script. `resume` reads the plan back with its price, and a notice says that a command now means another plan than
before. The sweep folders decide nothing; they only remember which command made them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Ended, Launched, Resumed, Started, Statement
from dpsweep.accounting.ledger.upkeep import writer_text
from dpsweep.accounting.missing_rights import sentence_on_rights
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.search_price import distinct_single_run_events
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import LastFolder, SweepFolder, require_sweep_folder
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.stored_classes import names_place
from dpsweep.sweeper.planning.declared_point import declared_point_of_trial
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.user_modules import CHECKSUM, FINDER, repeated_code_sentence, unrepeated_code


def read_stored_plan(folder: Path) -> Plan:
    """The plan of a sweep folder.

    Raises `BadInput` if there is none, or if it names code of the user's that the command does not name: a folder is
    data, and nothing is imported or run because a file names it.
    """
    plan = Plan.read(SweepFolder(root=require_sweep_folder(folder)).plan_path)
    names = {name.partition(CHECKSUM)[0] for name in plan.names_of_user_classes_and_scripts} - FINDER.trusted
    if plan.proposed is not None:
        names |= {*unrepeated_code([("search", plan.proposed.sampler)])}
    if names:
        raise BadInput(f"{repeated_code_sentence(sorted(names))}, or give the command that made this sweep")
    return plan


def price_stored_plan(plan: Plan, panel: Panel, accept_delta: object = None) -> PricedPlan:
    """The plan with its price under these accountants, which is that of further attempts; offers no other rule."""
    rule = rule_from_config(plan.rule)
    dearest = max(
        distinct_single_run_events(plan.trials, rule),
        key=lambda event: panel.epsilon(event, plan.delta, plan.adjacency),
    )
    return PricedPlan(
        plan=plan,
        rule=rule,
        panel=panel,
        quote=panel.quote(plan.event, plan.delta, plan.adjacency, plan.unit),
        single_run=panel.quote(dearest, plan.delta, plan.adjacency, plan.unit),
        offers=dict[str, SelectionRule],
        units=nominal_units(declared_point_of_trial(plan.trials[0]).declaration.dataset),
        run_of=declared_point_of_trial,
        accept_delta=accept_delta,
    )


RUNS = (Launched.kind, Started.kind, Resumed.kind, Ended.kind)
"""The ledger's lines of runs."""


@dataclass(frozen=True, kw_only=True)
class PlanElsewhere:
    """A plan that was run in another folder: whether it was finished there, and who ran it, when and where."""

    finished: bool
    sentence: str


def plan_run_elsewhere(priced: PricedPlan, folder: SweepFolder, statement: Statement | None) -> PlanElsewhere | None:
    """Who ran this plan in another folder that is still there; None if nobody did, or if no run of it has begun.

    The private store says where; the ledger says whether every paid attempt ended, and who wrote its last line. A
    folder without trials has no runs of its own: `dpsweep plan` may have written its plan.
    """
    plan, last = priced.plan, LastFolder.read(folder.private_store)
    if statement is None or last is None or Path(last.folder) == folder.root or folder.trials_folder.exists():
        return None
    attempts, place = statement.attempts_of_plan(plan.id), Path(last.folder)
    is_there, next_step = True, ""
    try:
        SweepFolder(root=place).plan_path.stat()
    except PermissionError:
        next_step = sentence_on_rights(place).rstrip(".")
    except OSError:
        is_there = False
    lines = [entry for entry in statement.entries if entry.kind in RUNS and entry.plan == plan.id]
    if not is_there or not attempts.started or not lines:
        return None
    finished = last.finished and not attempts.open_sessions()
    did, verb, most = ("finished", "report", "") if finished else ("left unfinished", "resume", "at most ")
    return PlanElsewhere(
        finished=finished,
        sentence=f"Plan {plan.id} on {plan.account} was {did} by {writer_text(lines[-1])} on {lines[-1].at}. It lies "
        f"in {place}: {next_step or f'dpsweep {verb} {shlex.quote(str(place))}'}. Nothing was run or charged. --again "
        f"repeats it in {folder.root} and charges {most}epsilon {epsilon_text_rounded_up(priced.quote.epsilon)} more.",
    )


_TASK = "    task:\n"
"""The line of Hydra's record after which the words of the command stand; parsing the whole file takes a tenth."""

_ITEM = "    - "


def same_command_other_plan_message(plan: Plan, folder: SweepFolder, words: Collection[str]) -> str:
    """A message that names the newest sweep of the same words with another plan; empty if there is none.

    It is also empty if this plan has been swept.
    """
    if folder.multirun_config_path.exists():
        return ""
    others = [
        path for path in folder.root.parent.glob(f"*/{folder.multirun_config_path.name}") if path.parent != folder.root
    ]
    same = [path for path in others if sorted(_read_command_overrides(path)) == sorted(words)]
    if not same:
        return ""
    former = max(same, key=lambda path: path.stat().st_mtime).parent
    has_files = any(names_place(trial.config) for trial in plan.trials)
    changed = "Files that it names or defaults have" if has_files else "Defaults have"
    on = (
        ""
        if plan.names_of_user_classes_and_scripts
        else f" The former plan goes on with: dpsweep resume {shlex.quote(str(former))}"
    )
    return (
        f"{changed} changed: this command was plan {former.name} before ({former}); now it is plan {plan.id}, with "
        f"a charge of its own.{on}"
    )


def _read_command_overrides(path: Path) -> list[str]:
    """The overrides of the command that made a sweep folder, from Hydra's record; none if it cannot be read."""
    try:
        _, _, rest = path.read_text(encoding="utf-8").partition(_TASK)
        lines = takewhile(lambda line: line.startswith(_ITEM), rest.splitlines())
        return [str(yaml.safe_load(line.removeprefix(_ITEM))) for line in lines]
    except (OSError, ValueError, yaml.YAMLError):
        return []
