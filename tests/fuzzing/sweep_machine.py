"""Anything in any order, on one plan: commands, kills, late jobs, copies, older copies, edits, raises, releases."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.ledger.upkeep import charge_outside, raise_budget
from dpsweep.sweeper.searches.admission import Retry
from tests.fuzzing import commands
from tests.fuzzing.mutations import Damage, damages
from tests.fuzzing.world import PLANS, World, planned

NAMES = st.sampled_from(("a", "b"))
PLACES = st.sampled_from(("a", "b", "one backup", "another backup"))
SEEDS = st.integers(0, 99)
INSTANTS = 140
"""About as many as a command has that trains two points."""

ENDED = (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES)

priced = cache(planned)


class Sweeps(RuleBasedStateMachine):
    """One ledger, one private store, two folders of one plan and two backups; `place` holds all of them.

    `settled` are the folders whose last change was a command that ended, so that every result has its line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="fuzzing-"))
        self.settled: set[str] = set()

    @initialize(plan=st.sampled_from(sorted(PLANS)))
    def begin(self, plan: str) -> None:
        self.world = World.at(self.place, *priced(PLANS[plan]))

    @rule(name=NAMES, seed=SEEDS)
    def command(self, name: str, seed: int) -> None:
        self._command(name, Retry.KILLED, seed)

    @rule(name=NAMES, seed=SEEDS, kill_at=st.integers(1, INSTANTS))
    def killed_command(self, name: str, seed: int, kill_at: int) -> None:
        self._command(name, Retry.KILLED, seed, kill_at)

    @rule(name=NAMES, seed=SEEDS, retry=st.sampled_from(list(Retry)))
    def repetition(self, name: str, seed: int, retry: Retry) -> None:
        self._command(name, retry, seed)

    def _command(self, name: str, retry: Retry, seed: int, kill_at: int = 0) -> None:
        code = self.world.do(commands.sweep, self.world.folder(name), retry, seed, kill_at=kill_at)
        if code in ENDED and self.world.remembers(self.world.folder(name)):
            self.settled = {name}
        elif code not in (ExitCode.BAD_INPUT, ExitCode.BUDGET_REFUSED):
            self.settled.clear()

    @rule(name=NAMES, block=st.integers(0, 3), kill_at=st.integers(0, 40), seed=SEEDS)
    def late_job(self, name: str, block: int, kill_at: int, seed: int) -> None:
        if (self.world.folder(name) / "plan.json").exists():
            self.world.do(commands.late_job, self.world.folder(name), block, seed, kill_at=kill_at)
            self.settled.clear()

    @rule(block=st.integers(0, 3), kill_at=st.integers(20, 80), seed=SEEDS)
    def jobs_of_copies(self, block: int, kill_at: int, seed: int) -> None:
        """A coordinator dies while jobs wait, its folder is copied, and a queue starts the same job in both."""
        self._command("a", Retry.KILLED, seed, kill_at)
        self.copy("a", "b")
        for name in ("a", "b"):
            self.late_job(name, block, 0, seed)

    @rule(name=NAMES, kill_at=st.sampled_from((0, 0, 5, 10, 20)))
    def release(self, name: str, kill_at: int) -> None:
        folder = self.world.folder(name)
        if (folder / "plan.json").exists() and not self.world.do(commands.hand_out, folder, 0, kill_at=kill_at):
            self.world.take_down_release(folder)

    @rule(source=PLACES, copy=PLACES)
    def copy(self, source: str, copy: str) -> None:
        """Also a backup, and what is put back from one."""
        self.world.copy(self.world.folder(source), self.world.folder(copy))
        if source in self.settled:
            self.settled.add(copy)
        else:
            self.settled.discard(copy)

    @rule(way=st.sampled_from(("kept", "put back", "lost")))
    def store(self, way: str) -> None:
        """The private store is kept, it is lost, or an older copy takes its place."""
        store, kept = self.world.desk.store.root, self.place / "store"
        if way == "kept":
            self.world.copy(store, kept)
            return
        self.settled.clear()
        if way == "lost":
            shutil.rmtree(store, ignore_errors=True)
        else:
            self.world.copy(kept, store)

    @rule(name=NAMES, file=st.integers(0, 99), damage=damages())
    def edit(self, name: str, file: int, damage: Damage) -> None:
        self.settled.discard(name)
        self._edit(self.world.folder(name), file, damage)

    @rule(file=st.integers(0, 99), damage=damages())
    def edit_of_what_is_settled(self, file: int, damage: Damage) -> None:
        """`verify` finds each change of what a page would say.

        Whether a folder is settled may follow from a salt, so it is no precondition: hypothesis expects the same rules
        to be possible after the same draws.
        """
        if not self.settled:
            return
        name = min(self.settled)
        self.settled.discard(name)
        folder = self.world.folder(name)
        words = self.world.verified(folder)
        before = None if words is None else self.world.meaning(folder)
        path = self._edit(folder, file, damage)
        if words is not None and self.world.verified(folder) == words:
            assert self.world.meaning(folder) == before, f"verify did not find what changed in {path}"

    def _edit(self, folder: Path, file: int, damage: Damage) -> Path | None:
        """Damages a file; a receipt is cut or lost, since its owner who forges one is trusted."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        if not files:
            return None
        path = files[file % len(files)]
        content = damage(path.read_bytes(), forge=path.name != "receipt.json")
        path.unlink() if content is None else path.write_bytes(content)
        return path

    @rule(more=st.sampled_from((1, 10)))
    def raised_budget(self, more: float) -> None:
        account, ledger = self.world.desk.plan.account, self.world.ledger
        if account in ledger.account_names():
            budget = ledger.statement(account).budget
            raise_budget(ledger, account, replace(budget, epsilon=float(budget.epsilon) + more))

    @rule(epsilon=st.sampled_from((0.1, 5.0)))
    def spent_outside(self, epsilon: float) -> None:
        account, ledger = self.world.desk.plan.account, self.world.ledger
        if account in ledger.account_names():
            budget = ledger.statement(account).budget
            charge_outside(ledger, account, replace(budget, epsilon=epsilon, delta=1e-6), "by hand")

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
