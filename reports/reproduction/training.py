"""The sweep behind a figure: an ordinary sweep with a separate ledger and key in the figure's folder.

Reason: the experiments run on public benchmarks, at a price that no account of private records would allow, and a
ledger refuses known records under another name. Invariants: the sweep is priced, charged to the budget that its
experiment declares and refused beyond it, like any other; the user's ledger is never touched. The machine's memory of
the separate ledger is in the folder too, so deleting the folder removes everything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput, DpsweepError, ExitCode
from dpsweep.accounting.files import READABLE
from dpsweep.accounting.ledger.book import Spending, body_of_kind
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import raise_budget
from dpsweep.accounting.printing import print_line
from dpsweep.reports.content.formatting import setting_text
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.reproduction.processor_time import record_processor_time
from dpsweep.reports.reproduction.results import SearchResults, results_of_sweep

SCALES = ("full", "small", "smoke")
LEDGER, KEY, STATE = "ledger.sqlite", "fingerprint.key", "state"
_OTHER_DATA = re.compile(r"[+~]*(dataset(?!\.vocabulary\.(file|sha256)=)|experiment|scale|hydra(?![/.]launcher\b))\b")
"""Overrides that could charge a user's records to the account in the figure's folder, which may be deleted.

The file of a published vocabulary is no such override, nor is the launcher of jobs.
"""

PLAN = re.compile(r"Plan ([0-9a-f]+) on (\S+)")
"""The first line of a plan's price."""


class TrainingFailed(DpsweepError):
    """The sweep behind a figure ended without results; it has printed the reason."""

    def __init__(self, code: int, folder: Path) -> None:
        advice = f" If another plan used the budget of {folder / LEDGER}, delete {folder} and run the command again."
        super().__init__(
            "The sweep behind this figure ended early; its message is above."
            + (advice if code == ExitCode.BUDGET_REFUSED else "")
        )
        self.exit_code = _exit_code_with_unknown_as_bug(code)


class NotPlanned(DpsweepError):
    """The sweep behind a figure cannot be planned here; the message is the plan's own."""

    def __init__(self, code: int, words: str) -> None:
        lines = [line.strip() for line in words.splitlines() if line.strip() and not line.startswith("(exit code")]
        super().__init__(" ".join(lines) or "its plan ended without a message.")
        self.exit_code = _exit_code_with_unknown_as_bug(code)


def run_sweep_and_read_results(experiment: str, scale: str, overrides: Sequence[str], folder: Path) -> SearchResults:
    """Runs the missing part of an experiment's sweep in this folder and reads its results.

    Raises `BadInput` for an unknown scale and for overrides of the data, `TrainingFailed` with the sweep's exit code
    if it wrote no page.
    """
    here = folder.resolve()
    command = _sweep_command(experiment, scale, overrides, here)
    make_folder_and_missing_parents(here, READABLE)
    with _use_separate_ledger(here), record_processor_time(here):
        page = _run_sweep_and_return_page(command, folder)
    return results_of_sweep(read_sweep(page.parents[1], Ledger(here / LEDGER)))


def run_plan_and_read_lines(experiment: str, scale: str, overrides: Sequence[str], folder: Path) -> list[str]:
    """The lines that the plan of an experiment prints: its identity, price and time; nothing is charged or trained."""
    with TemporaryDirectory() as empty:
        here = folder.resolve() if folder.is_dir() else Path(empty)
        command = (*_sweep_command(experiment, scale, overrides, here), "hydra.sweeper.verb=plan")
        with _use_separate_ledger(here):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPlanned(done.returncode, done.stderr)
    return done.stdout.splitlines()


def _sweep_command(experiment: str, scale: str, overrides: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The command of the sweep; raises `BadInput` as `check_known_scale_and_no_data_override` does."""
    check_known_scale_and_no_data_override(experiment, scale, overrides)
    return (
        *(sys.executable, "-P", "-m", "sweeper", f"experiment={experiment}", f"scale={scale}"),
        "hydra.sweeper.retry=killed",  # the account is the figure's own, on public data
        *(f"hydra.sweep.dir='{folder}/sweeps/${{plan.id}}'", *overrides),
    )


def check_known_scale_and_no_data_override(experiment: str, scale: str, overrides: Sequence[str]) -> None:
    """Raises `BadInput` for an unknown scale and for overrides of the data."""
    if scale not in SCALES:
        raise BadInput(f"Expected SCALE={scale} to be one of {', '.join(SCALES)}.")
    for word in overrides:
        if _OTHER_DATA.match(word):
            raise BadInput(
                f"Expected no override {word}: the figure's account is for its own public data. To sweep other data, "
                f"run dpsweep sweep experiment={experiment} {word}, which charges your ledger."
            )


def _exit_code_with_unknown_as_bug(code: int) -> ExitCode:
    return ExitCode(code) if code in list(ExitCode) else ExitCode.BUG


@contextmanager
def _use_separate_ledger(folder: Path) -> Iterator[None]:
    """Sets ledger, key and memory to this folder, for this process and its children."""
    paths = {
        "DPSWEEP_LEDGER": str(folder / LEDGER),
        "DPSWEEP_KEY": str(folder / KEY),
        "XDG_STATE_HOME": str(folder / STATE),
    }
    before = {name: os.environ.get(name) for name in paths}
    os.environ.update(paths)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run_sweep_and_return_page(command: Sequence[str], folder: Path) -> Path:
    """The path of the sweep's page; a budget that only runs lost to a kill exceed is raised once, in words."""
    code, words = _run_command_and_collect_lines(command)
    if code == ExitCode.BUDGET_REFUSED and raise_budget_if_charged_runs_were_lost(
        words, Ledger(folder.resolve() / LEDGER)
    ):
        code, words = _run_command_and_collect_lines(command)
    page = Path(words[-1] if words else "")
    if code not in (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES) or not page.is_file():
        raise TrainingFailed(code, folder)
    return page


def _run_command_and_collect_lines(command: Sequence[str]) -> tuple[int, list[str]]:
    """Runs the command, shows what it prints, and returns its exit code and its printed lines that are not empty."""
    words: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            _print_and_collect(process.stdout or (), words)
        except KeyboardInterrupt:  # the sweep is asked to stop by the same key, and says how it did
            _print_and_collect(process.stdout or (), words)
            process.wait()
            raise
    return process.returncode, words


def _print_and_collect(lines: Iterable[str], words: list[str]) -> None:
    for line in lines:
        print_line(line.rstrip("\n"), flush=True)
        words += [line.strip()] if line.strip() else []


def raise_budget_if_charged_runs_were_lost(words: Sequence[str], ledger: Ledger) -> bool:
    """Raises the figure's own budget by the plan's price, if the refused plan is one that was charged before.

    Then charged runs were lost, and are charged again. The budget of a plan that was never charged stays as declared.
    """
    plan, account = next((found.groups() for line in words if (found := PLAN.match(line))), ("", ""))
    charges = [entry for entry in ledger.statement(account).charges if entry.plan == plan] if account else []
    if not charges:
        return False
    price, budget = body_of_kind(charges[0], Spending), ledger.statement(account).budget
    higher = replace(budget, epsilon=budget.epsilon + price.epsilon, delta=budget.delta + price.delta)
    raise_budget(ledger, account, higher)
    print_line(
        "Runs of this figure that were charged were lost, so they are charged again. The figure's own account, on "
        f"public data, is raised from epsilon {setting_text(budget.epsilon)} to {setting_text(higher.epsilon)} and "
        "from delta "
        f"{setting_text(budget.delta)} to {setting_text(higher.delta)}; your ledger is not touched.",
        flush=True,
    )
    return True
