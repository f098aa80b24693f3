"""A user's disk with one plan's folders, copies and older copies, and what must hold on it whatever was done there."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.errors import BadInput, DpsweepError, ExitCode
from dpsweep.accounting.ledger.book import Attempts, Released
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.released_files import COVERED
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.folder_audit import chain_ends_in_receipts, verify_sweep_folder_and_describe
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import SearchRecord, StoredDraw, trials_of_draw
from dpsweep.reports.content import sweep_table
from dpsweep.sweeper.commands.hydra_app import CONF, hydra_arguments_from_command_line
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.coordinator.request import plan_settings
from dpsweep.sweeper.planning.grid import Grid, sort_overrides_into_request
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan
from dpsweep.sweeper.planning.plan_settings import PlanSettings
from tests.faults.syscalls import Fault, Stroke
from tests.fork_server import SERVER, start_server
from tests.fuzzing.commands import DEFECT, Desk, typed
from tests.fuzzing.played_training import Look, looks
from tests.waiting import HANGS

POINTS = (
    *("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1,1", "trainer.lr=2", "steps=3"),
    *("checkpoint.every=1", "checkpoint.resumes=1", "privacy.noise_multiplier=3", "score.noise_std=3"),
    *("accountant=rdp", "accountant.witnesses=[]", "budget.epsilon=40", "budget.delta=0.001"),
)
"""Two points of three steps, an attempt at one of which may lose one, and a budget of a few repetitions."""

PLANS: Mapping[str, tuple[str, ...]] = {
    "points": POINTS,
    "spares": (*POINTS, "plan.spare_attempts=1"),
    "final": (*POINTS, "final=true"),
    "proposed": (*POINTS, "search=random", "search.trials=2"),
    "selection": (*POINTS, "tuning=private_selection", "tuning.mean=2"),
    "selection with a final run": (*POINTS, "tuning=private_selection", "tuning.mean=2", "final=true"),
    "best of grid": (*POINTS, "tuning=best_of_grid"),
}


def planned(words: Sequence[str]) -> tuple[PricedPlan, PlanSettings]:
    """The plan that a command line would make, and its settings."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()
        request = sort_overrides_into_request(hydra_arguments_from_command_line(words), loader)
        config = loader.load_configuration("config", list(request.fixed), run_mode=RunMode.MULTIRUN)
        settings = plan_settings(config, request.keys, {})
        return compose_priced_plan(Grid(request, config, loader).points(), settings), settings


@dataclass(kw_only=True)
class World:
    """`root` holds all that the program writes; the rest is what was seen there so far.

    `drawn` are the tries of each attempt at a hidden search, `winners` what was released on each charge.
    """

    root: Path
    desk: Desk
    entries: tuple[Entry, ...] = ()
    reserved: Mapping[str, Decimal] = field(default_factory=dict)
    drawn: dict[int, frozenset[str]] = field(default_factory=dict)
    winners: dict[str, str] = field(default_factory=dict)
    said: str = ""

    @classmethod
    def at(cls, place: Path, priced: PricedPlan, settings: PlanSettings) -> World:
        """A new one."""
        root, outside = place / "root", place / "outside"
        for path in (root / "books", outside):
            path.mkdir(parents=True)
        desk = Desk(ledger=root / "books" / "ledger.sqlite", outside=outside, priced=priced, settings=settings)
        return cls(root=root, desk=desk)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.desk.ledger)

    def folder(self, name: str) -> Path:
        return self.root / "sweeps" / name

    def do(self, command: Callable[..., ExitCode], *words: Any, kill_at: int = 0) -> int:
        """Gives a command in a process of its own, killed at that instant if not 0; its exit code."""
        start_server()
        fault = Fault(root=self.root, log=self.desk.outside / "instants", stroke=Stroke.KILL, at=kill_at)
        fault.log.unlink(missing_ok=True)
        environment = {**os.environ, "DPSWEEP_LEDGER": str(self.desk.ledger), "OMP_NUM_THREADS": "1"}
        process = SERVER.Process(target=typed, args=(self.desk, command, words, environment, fault))
        process.start()
        process.join(HANGS)
        code = process.exitcode
        process.close()
        self.said = (self.desk.outside / "said").read_text()
        assert code is not None, f"it hung: {self.said}"
        assert code != DEFECT, self.said
        assert "Traceback" not in self.said, self.said
        assert code >= 0 or (kill_at and code == -signal.SIGKILL), f"{code}: {self.said}"
        return code

    def check(self) -> None:
        """All that holds between two commands, whatever became of the folders."""
        looked = looks(self.desk.outside / "looks")
        account, plan = self.desk.plan.account, self.desk.plan
        if account not in self.ledger.account_names():
            assert not looked, "records were looked at before an account was open"
            return
        verify_entries(self.ledger.chain)
        statement = self.ledger.statement(account)
        assert statement.entries[: len(self.entries)] == self.entries, "the ledger only grows"
        self.entries = statement.entries
        for name, amount in self.reserved.items():
            assert statement.balance.reserved[name] >= amount, f"{name} fell"
        self.reserved = statement.balance.reserved
        for name, amount in self.reserved.items():
            taken = [Decimal(repr(entry.body["takes"].get(name, 0.0))) for entry in statement.charges]
            assert amount == sum(taken), f"{name} is not the sum of what was charged"
        attempts = statement.attempts_of_plan(plan.id)
        self._learn_draws(attempts)
        self._check_looks(attempts)
        releases = Counter(entry.body["charge"] for entry in self.entries if entry.kind == Released.kind)
        assert max(releases.values(), default=1) == 1, "a charge has one winner"

    def _check_looks(self, attempts: Attempts) -> None:
        plan, looked = self.desk.plan, looks(self.desk.outside / "looks")
        point = plan.trials[0]
        most = {Look.STEP: point.priced_steps, Look.SCORE: 1}
        for (trial, attempt, look), times in looked.items():
            assert times <= most[look], f"attempt {attempt} at trial {trial}: {times} looks of kind {look}"
        trained = {(trial, attempt) for trial, attempt, _ in looked}
        if search_class_for_plan(plan) is SecretDraw:
            assert attempts.started[plan.id] <= attempts.covered[plan.id]
            for trial, attempt in trained:
                assert attempt <= attempts.started[plan.id]
                assert trial in self.drawn[attempt], f"trial {trial} was not drawn for attempt {attempt}"
            return
        for trial, attempt in trained:
            assert attempt <= attempts.started[trial], f"attempt {attempt} at trial {trial} was never started"
        assert attempts.spares >= 0, "more attempts were started than were paid for"
        free = sum(body.spares for body in attempts.bodies)
        counts = Counter(trial for trial, _ in trained)
        assert sum(max(0, count - attempts.covered[trial]) for trial, count in counts.items()) <= free

    def _learn_draws(self, attempts: Attempts) -> None:
        """Takes down each draw whose digest the store has: once known, it never changes."""
        plan = self.desk.plan
        for path in self.desk.store.root.glob("search-*.json"):
            attempt, known = int(path.stem.partition("-")[2]), json.loads(path.read_text())["draw"]
            for draw in self.root.glob("sweeps/*/draw.json"):
                if sha256(draw.read_bytes()).hexdigest() != known:
                    continue
                stored = StoredDraw.read(draw)
                assert stored is not None
                points = frozenset(trial.id for trial in trials_of_draw(plan, stored.draw))
                points |= {plan.final_runs[point].id for point in stored.draw.tries if plan.final_runs}
                assert self.drawn.setdefault(attempt, points) == points

    def take_down_release(self, folder: Path) -> None:
        """Takes down what a release says, by the charge on which it was made: there is one winner for each."""
        files = {name: (folder / "release" / name) for name in COVERED}
        content = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
        salt = json.loads((folder / "release" / "winner.json").read_text())["salt"]
        digest = sha256(json.dumps([salt, content], sort_keys=True).encode()).hexdigest()
        lines = [
            entry.body for entry in self.ledger.statement(self.desk.plan.account).entries if entry.kind == Released.kind
        ]
        (charge,) = {str(body["charge"]) for body in lines if body["winner"] == digest}
        winner = json.dumps(content, sort_keys=True)
        assert self.winners.setdefault(charge, winner) == winner, f"two winners of charge {charge}"

    def remembers(self, folder: Path) -> bool:
        """Whether the digests of the folder's results are known; those of a hidden search are in the store alone.

        Those of a search whose draw is damaged are not.
        """
        if search_class_for_plan(self.desk.plan) is not SecretDraw:
            return True
        try:
            stored = StoredDraw.read(folder / "draw.json")
        except BadInput:
            return False
        return stored is not None and SearchRecord(store=self.desk.store, attempt=stored.attempt).exists

    def verified(self, folder: Path) -> str | None:
        """What `dpsweep verify` says of a folder that is what was charged and made; None for another one.

        It says how many results there are, so whoever takes one away is found by that. A refusal is one sentence.
        """
        try:
            verify_entries(self.ledger.chain, tuple(chain_ends_in_receipts(folder)))
            return verify_sweep_folder_and_describe(folder, self.ledger)
        except DpsweepError as refusal:
            assert str(refusal).strip(), "a refusal says why"
            assert "\n" not in str(refusal)
            return None

    def meaning(self, folder: Path) -> Any:
        """What a page claims of the folder: its plan, its results, and who won.

        The budget and the target that the command named, and the notes that it printed, are claimed nowhere. A field of
        a stored class that is missing has its default, so it says the same.
        """
        sweep = sweep_table.read_sweep(folder, self.ledger)
        results = {
            path.parent.name: TrialResult.read(path.parent) for path in sorted(folder.glob("trials/*/result.json"))
        }
        table = sweep.all_run_rows.astype(str).to_dict("records")
        words = ("budget", "target_epsilon", "notes")
        plan = {name: value for name, value in sweep.plan.to_json().items() if name not in words}
        plan["blocks"] = [[trial.fields_for_identity() for trial in block.trials] for block in sweep.plan.blocks]
        return plan, sweep.plan.has_public_data, results, table, sweep.winner_id, sweep.runs.over

    def copy(self, source: Path, target: Path) -> None:
        """Puts a copy of a folder in the place of another one."""
        if source.exists() and source != target:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, symlinks=True)
