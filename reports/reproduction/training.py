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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.errors import BadInput, DpsweepError, ExitCode, UnsupportedEvent
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.reports.content.charges import read_bill
from dpsweep.reports.content.sweep_table import Sweep, read
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.reproduction.finding import sheet

SCALES = ("full", "small", "smoke")
LEDGER, KEY, STATE = "ledger.sqlite", "fingerprint.key", "state"
_OTHER_DATA = re.compile(r"[+~]*(dataset(?!\.vocabulary\.(file|sha256)=)|experiment|scale|hydra)\b")
"""Overrides that could charge a user's records to the account in the figure's folder, which may be deleted.

The file of a published vocabulary is no such override.
"""

ACCOUNT = (
    "The data set is a public benchmark, or made up. Its runs were charged to an account in a separate ledger of this "
    "figure: the price is what the same runs would cost on private records."
)


class TrainingFailed(DpsweepError):
    """The sweep behind a figure ended without results; it has printed the reason."""

    def __init__(self, code: int, folder: Path) -> None:
        advice = f" If another plan used the budget of {folder / LEDGER}, delete {folder} and run the command again."
        super().__init__(
            "The sweep behind this figure ended early; its message is above."
            + (advice if code == ExitCode.BUDGET_REFUSED else "")
        )
        self.exit_code = ExitCode(code) if code in list(ExitCode) else ExitCode.BUG


def train(experiment: str, scale: str, overrides: Sequence[str], folder: Path) -> Sweep:
    """Runs the missing part of an experiment's sweep in this folder and reads the sweep.

    Raises `BadInput` for an unknown scale and for overrides of the data, `TrainingFailed` with the sweep's exit code
    if it wrote no page.
    """
    if scale not in SCALES:
        raise BadInput(f"Expected SCALE={scale} to be one of {', '.join(SCALES)}.")
    for word in overrides:
        if _OTHER_DATA.match(word):
            raise BadInput(
                f"Expected no override {word}: the figure's account is for its own public data. To sweep other data, "
                f"run dpsweep sweep experiment={experiment} {word}, which charges your ledger."
            )
    folder.mkdir(parents=True, exist_ok=True)
    here = folder.resolve()
    command = (
        *(sys.executable, "-m", "sweeper", f"experiment={experiment}", f"scale={scale}"),
        *(f"hydra.sweep.dir='{here}/sweeps/${{plan.id}}'", *overrides),
    )
    with _separate_ledger(here):
        page = _run(command, folder)
        return read(page.parents[1], Ledger(here / LEDGER))


@contextmanager
def _separate_ledger(folder: Path) -> Iterator[None]:
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


def _run(command: Sequence[str], folder: Path) -> Path:
    """Runs the command and returns the path of the sweep's page, which is the last line that it prints."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    page = Path(last)
    if process.returncode not in (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES) or not page.is_file():
        raise TrainingFailed(process.returncode, folder)
    return page


def costs(sweep: Sweep) -> Sheet:
    """Epsilon of one run by the papers' accountant and by ours, and of the whole search."""
    whole = epsilon_up(read_bill(sweep).epsilon)
    papers = Rdp(conversion=Conversion.MIRONOV)
    most_expensive = sweep.table.astype({"epsilon_alone": float}).groupby("noise_multiplier")["epsilon_alone"].idxmax()
    events = {trial.id: trial.event.training for trial in sweep.plan.trials}
    rows = []
    for noise, place in most_expensive.items():
        run, ours = events[sweep.table.loc[place, "trial"]], sweep.table.loc[place, "epsilon_alone"]
        try:
            papers_epsilon = epsilon_up(papers.epsilon(run, sweep.plan.delta, sweep.plan.adjacency))
        except UnsupportedEvent:
            papers_epsilon = "no bound"
        rows.append((noise, papers_epsilon, epsilon_up(ours), whole))
    return sheet(
        f"Price: epsilon at delta {delta_up(sweep.plan.delta)}",
        ("noise multiplier", "one run, papers' accountant", "one run, our accountant", "the whole search"),
        rows,
    )
