"""What a long ledger takes: 100,000 charges verified, one more charged, and the statement of one plan.

    python benchmarks/ledger.py [--toy] [--charges 100000] [--researchers 1 10 30 50 60] [--lines 1000] [--kept FILE]

On SQLite, and on PostgreSQL where it is installed. The lines are made by the chain's own function and stored in bulk;
each carries an event and a record as a sweep of 35 points writes them. Printed are seconds; of short ones the median.

On PostgreSQL, so many researchers then verify and charge at the same instant, each in a process that also holds a
connection as a coordinator does; all of them are on this machine. The server has 100 connections, its default. The
lines of JSON are added to the file of `--kept`; those of ledger.jsonl are the table of docs/scaling.md.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring.aims import Aim
from measuring.clock import wall_seconds
from measuring.script import start

from dpsweep.accounting.chain.hash_chain import Chain, End, new_row_with_time
from dpsweep.accounting.events.build import PlanEvent, gaussian, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Balance, Charged, ChargedPoint
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.selection.rules import Composition
from dpsweep.accounting.upper_bounds import PRICES, upper_bound
from tests.charges import charge_event, start_attempts
from tests.databases import Place, Server, in_file, programs, served

ACCOUNTS, ROUNDS, POINTS = 20, 15, 35
DEFAULT_CONNECTIONS = 100
RESULTS = Path(__file__).with_suffix(".jsonl")
VERIFIED, ONE_MORE = 10.0, 0.1
"""Aims, in seconds."""

BUDGET = Guarantee(epsilon=1e9, delta=0.5)
TRIALS = [f"{number:012x}" for number in range(POINTS)]
POINT = PlanEvent(
    training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000),
    validation=gaussian(noise_multiplier=40.0),
)
EVENT = Composition().event([POINT] * POINTS)
COST = Guarantee(epsilon=upper_bound(EVENT, 1e-9, BUDGET.adjacency), delta=1e-9)
RECORD = {"reason": "plan", "rule": {"name": "composition"}, "claimed_by": "PLD", "bounds": {"PLD": 0.1, "RDP": 0.11}}


@dataclass(frozen=True, kw_only=True)
class Size:
    charges: int = 100_000
    researchers: tuple[int, ...] = (1, 10, 30, 50, 60)
    lines: int = 1000
    """Charges in the ledger before them."""
    kept: str = os.devnull
    """The file that what the researchers took is added to."""


def fill(ledger: Ledger, place: Place, charges: int) -> None:
    """The accounts, opened as ever, and then their charges in bulk."""
    balances: dict[str, Balance] = {}
    for number in range(ACCOUNTS):
        balances[f"account{number}"] = ledger.open_account(f"account{number}", BUDGET).balance
    body = Charged(
        epsilon=COST.epsilon,
        delta=COST.delta,
        takes={"epsilon": COST.epsilon, "delta": COST.delta},
        trials=tuple(TRIALS),
        event=EVENT.to_json(),
        points=(ChargedPoint(runs=POINTS, event=POINT.to_json()),),
        prices=PRICES,
        record=RECORD,
    )
    stored = body.to_json()
    with Chain(place.address).read_transaction() as lines:
        end = End() if lines is None else lines.end()
    row: dict[str, Any] = {"seq": end.entries, "digest": end.head}
    rows = []
    for number in range(charges):
        account = f"account{number % ACCOUNTS}"
        balances[account] = balances[account].after(body)
        form = balances[account].to_json()
        row = new_row_with_time(
            seq=row["seq"] + 1,
            previous=row["digest"],
            account=account,
            kind=body.kind,
            plan=f"{number:012x}",
            body=stored,
            balance=form,
            who="role postgres" if place.mark == "%s" else "me@here",
        )
        rows.append(tuple(row.values()))
    columns, marks = ", ".join(row), ", ".join([place.mark] * len(row))
    with closing(place.connect()) as connection:
        connection.execute("BEGIN")
        connection.cursor().executemany(f"INSERT INTO entries ({columns}) VALUES ({marks})", rows)
        connection.commit()


def measure(name: str, place: Place, charges: int) -> list[Aim]:
    ledger = Ledger(place.address)
    filled = wall_seconds(lambda: fill(ledger, place, charges))
    verified = wall_seconds(partial(verify_entries, ledger.chain))

    def charge(number: int) -> None:
        charge_event(ledger, f"account{number % ACCOUNTS}", plan="more", trials=TRIALS, delta=COST.delta, event=EVENT)

    charged = statistics.median(wall_seconds(partial(charge, number)) for number in range(ROUNDS))
    started = wall_seconds(lambda: start_attempts(ledger, "account0", plan="more", trials=TRIALS))
    statement = statistics.median(wall_seconds(lambda: ledger.statement("account0", "more")) for _ in range(ROUNDS))
    print(
        f"{name:10} {charges} charges made {filled:5.1f}  verified {verified:5.2f}  one more {charged:.4f}  "
        f"{POINTS} started {started:.4f}  statement of a plan {statement:.4f}",
        flush=True,
    )
    return [
        Aim(name=f"{name}, {charges} charges verified, s", measured=verified, at_most=VERIFIED),
        Aim(name=f"{name}, one more charge, s", measured=charged, at_most=ONE_MORE),
    ]


def charge_at_instant(place: Place, number: int, gate: Any, seconds: Any) -> None:
    """One researcher: waits for the others, verifies the ledger and charges; reports seconds, None if refused."""
    ledger, times = Ledger(place.address), list[float]()
    gate.wait()
    try:
        held = place.connect()  # as a coordinator holds its lock
        times.append(wall_seconds(partial(verify_entries, ledger.chain)))
        times.append(
            wall_seconds(
                lambda: charge_event(
                    ledger,
                    f"account{number % ACCOUNTS}",
                    plan=f"{number:012x}",
                    trials=TRIALS,
                    delta=COST.delta,
                    event=EVENT,
                )
            )
        )
        seconds.put(tuple(times))
        held.close()
    except Exception as refusal:  # noqa: BLE001 - of the driver or the ledger; it is counted
        print(f"{type(refusal).__name__}: {str(refusal).splitlines()[0][:150]}", flush=True)
        seconds.put(None)


def crowd(server: Server, count: int, lines: int) -> dict[str, float]:
    """What so many researchers took who charged at the same instant, in seconds, and how many were refused."""
    place = server.place()
    ledger = Ledger(place.address)
    fill(ledger, place, lines)
    processes = multiprocessing.get_context("fork")
    gate, seconds = processes.Barrier(count), processes.Queue()
    crowd = [
        processes.Process(target=charge_at_instant, args=(place, number, gate, seconds)) for number in range(count)
    ]
    for one in crowd:
        one.start()
    ends = [seconds.get(timeout=600) for _ in crowd]
    for one in crowd:
        one.join()
    verified, charged = zip(*(end for end in ends if end is not None), strict=True)
    return {
        "researchers": count,
        "lines": lines,
        "verified": round(statistics.median(verified), 3),
        "charged": round(statistics.median(charged), 3),
        "slowest": round(max(charged), 3),
        "refused": ends.count(None),
    }


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Place]]:
    found = programs()
    with nullcontext() if found is None else served(found) as server:
        file = {"SQLite": in_file(folder / "ledger.sqlite")}
        yield file if server is None else file | {"PostgreSQL": server.place()}


def main(size: Size) -> list[Aim]:
    with tempfile.TemporaryDirectory() as folder, places(Path(folder)) as found:
        os.environ["XDG_STATE_HOME"] = folder
        aims = [aim for name, place in found.items() for aim in measure(name, place, size.charges)]
    if (installed := programs()) is not None:
        with served(installed, DEFAULT_CONNECTIONS) as server, Path(size.kept).open("a") as kept:
            for count in size.researchers:
                line = json.dumps(crowd(server, count, size.lines))
                print(line, flush=True)
                print(line, file=kept, flush=True)
    return aims


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(charges=50, researchers=(2,), lines=20), about=__doc__)
