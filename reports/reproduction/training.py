"""The sweep behind a figure: the ordinary command, with a ledger and a key of its own beside the figure.

Why its own: the experiments run on public benchmarks, in sizes whose price no account of private records would grant,
and a ledger refuses known records under another name. What always holds: such a sweep is priced, charged against the
budget that its experiment declares and refused beyond it, like any other; the user's own ledger is never touched. What
this machine remembers of that ledger lies in the folder too, so that whoever removes the folder removes all of it.
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
"""Words by which records of somebody's could come to be charged to an account that goes with the figure's folder.

Where a published vocabulary lies is the user's to say.
"""

ACCOUNT = (
    "The data set is a public benchmark, or made up. Its runs were charged all the same, to an account in a ledger of "
    "this figure's own: that is what they would have cost somebody's records."
)


class TrainingFailed(DpsweepError):
    """The sweep behind a figure ended without results; it has said why."""

    def __init__(self, code: int, folder: Path) -> None:
        used = f" Where another plan has used the budget of {folder / LEDGER}, remove {folder} to begin anew."
        super().__init__(
            "The sweep behind this figure ended early; its own words stand above."
            + (used if code == ExitCode.BUDGET_REFUSED else "")
        )
        self.exit_code = ExitCode(code) if code in list(ExitCode) else ExitCode.BUG


def train(experiment: str, scale: str, overrides: Sequence[str], folder: Path) -> Sweep:
    """Runs what is missing of an experiment's sweep, in this folder, and reads it.

    Raises `BadInput` for an unknown scale and for words about other data, `TrainingFailed` with the sweep's own exit
    code where it gave no page.
    """
    if scale not in SCALES:
        raise BadInput(f"Expected SCALE={scale} to be one of {', '.join(SCALES)}.")
    for word in overrides:
        if _OTHER_DATA.match(word):
            raise BadInput(
                f"Expected {word} to be left to the figure, whose account is for its own public data: a sweep of other "
                f"data is python -m sweeper experiment={experiment} {word}, which charges your ledger."
            )
    folder.mkdir(parents=True, exist_ok=True)
    here = folder.resolve()
    command = (
        *(sys.executable, "-m", "sweeper", f"experiment={experiment}", f"scale={scale}"),
        *(f"hydra.sweep.dir='{here}/sweeps/${{plan.id}}'", *overrides),
    )
    with _books(here):
        page = _run(command, folder)
        return read(page.parents[1], Ledger(here / LEDGER))


@contextmanager
def _books(folder: Path) -> Iterator[None]:
    """Ledger, key and memory in this folder, for this process and those that it starts."""
    own = {
        "DPSWEEP_LEDGER": str(folder / LEDGER),
        "DPSWEEP_KEY": str(folder / KEY),
        "XDG_STATE_HOME": str(folder / STATE),
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(command: Sequence[str], folder: Path) -> Path:
    """The page of the sweep that this command makes: the last line that it prints."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    page = Path(last)
    if running.returncode not in (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES) or not page.is_file():
        raise TrainingFailed(running.returncode, folder)
    return page


def costs(sweep: Sweep) -> Sheet:
    """What one run costs as the papers count it and as we do, and what the whole search did cost."""
    whole = epsilon_up(read_bill(sweep).epsilon)
    papers = Rdp(conversion=Conversion.MIRONOV)
    dearest = sweep.table.astype({"epsilon_alone": float}).groupby("noise_multiplier")["epsilon_alone"].idxmax()
    events = {trial.id: trial.event.training for trial in sweep.plan.trials}
    rows = []
    for noise, place in dearest.items():
        run, ours = events[sweep.table.loc[place, "trial"]], sweep.table.loc[place, "epsilon_alone"]
        try:
            counted = epsilon_up(papers.epsilon(run, sweep.plan.delta, sweep.plan.adjacency))
        except UnsupportedEvent:
            counted = "no bound"
        rows.append((noise, counted, epsilon_up(ours), whole))
    return sheet(
        f"What it costs: epsilon at delta {delta_up(sweep.plan.delta)}",
        ("noise multiplier", "one run, as the papers count", "one run, ours", "the whole search"),
        rows,
    )
