"""What `budget` and `plan` take on an account that many sweeps were charged to, beside the same account after its first
sweep.

    python benchmarks/many_sweeps.py [--toy] [--sweeps 200] [--rounds 5]

The first sweep is real. The others are its charge, start and settlement again, under other plans, written by the
ledger's own functions. Commands run in turn on both ledgers; printed are processor seconds of each command.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measuring.aims import Aim
from measuring.clock import children_seconds
from measuring.script import start

from dpsweep.accounting.ledger.book import Charged, Ended, read_body
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import charged_event
from tests.charges import charge_event, start_attempts

ACCOUNT, AT_MOST = "digits", 1.15
WORDS = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1", "steps=2", "accountant=rdp")
BUDGET = ("privacy.epsilon=1", "privacy.delta=1e-5", "budget.epsilon=1000", "budget.delta=0.1")
FIRST, NEXT = "trainer.lr=1,2", "trainer.lr=1,3"
COMMANDS = {"budget": ("budget",), "plan": ("plan", *WORDS, *BUDGET, NEXT)}


@dataclass(frozen=True, kw_only=True)
class Size:
    sweeps: int = 200
    rounds: int = 5


def run(home: Path, *words: str) -> float:
    """Processor seconds of a command with the ledger of this folder."""
    before = children_seconds()
    own = {
        "DPSWEEP_LEDGER": str(home / "ledger.sqlite"),
        "DPSWEEP_KEY": str(home / "key"),
        "XDG_STATE_HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "dpsweep", *words]
    done = subprocess.run(command, cwd=home, env=os.environ | own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return children_seconds() - before


def repeat_first(ledger: Ledger, sweeps: int) -> None:
    """Charges, starts and settles the account's only sweep again until it has so many of them."""
    (body,) = (read_body(entry) for entry in ledger.statement(ACCOUNT).charges)
    if not isinstance(body, Charged) or (event := charged_event(body)) is None:
        raise SystemExit("Expected the account's only charge to be that of a sweep.")
    for number in range(1, sweeps):
        plan = f"{number:012x}"
        trials = [f"{number:06x}{place:06x}" for place in range(len(body.trials))]
        charge_event(ledger, ACCOUNT, plan=plan, trials=trials, event=event, delta=body.delta)
        ledger.launch(ACCOUNT, plan=plan, nonce=plan)
        start_attempts(ledger, ACCOUNT, plan=plan, trials=trials)
        ended = [Ended(trial=trial, attempt=1, resume=0, realised={"state": "completed"}) for trial in trials]
        ledger.end(ACCOUNT, plan=plan, ended=ended)


def main(size: Size) -> list[Aim]:
    with tempfile.TemporaryDirectory() as place:
        first, many = Path(place) / "first", Path(place) / "many"
        first.mkdir()
        run(first, "sweep", *WORDS, *BUDGET, FIRST)
        run(first, *COMMANDS["plan"])  # times its step, for later plans
        shutil.copytree(first, many)
        os.environ["XDG_STATE_HOME"] = str(many)
        repeat_first(Ledger(many / "ledger.sqlite"), size.sweeps)
        aims = []
        for name, words in COMMANDS.items():
            pairs = [(run(first, *words), run(many, *words)) for _ in range(size.rounds)]
            alone, after = map(statistics.median, zip(*pairs, strict=True))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"{name:8} after 1 sweep {alone:6.2f} s, after {size.sweeps} {after:6.2f} s, ratio {ratio:.2f}")
            aims.append(Aim(name=f"{name} after {size.sweeps} sweeps over the first", measured=ratio, at_most=AT_MOST))
        return aims


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(sweeps=3, rounds=1), about=__doc__)
