"""What the tests of the store do to a ledger, from one process or from several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from tests.charges import charge_cost
from tests.fork_server import SERVER, start_server

BUDGET = Guarantee(epsilon=1e6, delta=0.5)
ONE = Guarantee(epsilon=1.0, delta=1e-9)


def charge(ledger: Ledger, plan: str = "p", cost: Guarantee = ONE, record: dict[str, Any] | None = None) -> int:
    return charge_cost(ledger, "digits", plan=plan, trials=["a"], cost=cost, record=record or {}).seq


def charged(ledger: Ledger) -> set[int]:
    return {entry.seq for entry in ledger.statement("digits").charges}


@contextmanager
def processes(target: Any, arguments: list[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    """One process for each, begun at once; what each says comes out of its pipe."""
    start_server()
    pipes, running = [], []
    for own in arguments:
        ours, theirs = SERVER.Pipe()
        running.append(SERVER.Process(target=target, args=(theirs, *own)))
        running[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        yield pipes
    finally:
        for process in running:
            process.kill()
            process.join()
