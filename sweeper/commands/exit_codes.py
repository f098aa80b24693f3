"""Guard of exit codes 2 and 3, which promise that nothing was charged: a refusal after a charge gets another code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import ContractBroken, DpsweepError, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan

UNCHARGED = (ExitCode.BAD_INPUT, ExitCode.BUDGET_REFUSED)


@contextmanager
def true_to_its_code(ledger: Ledger, plan: Plan) -> Iterator[None]:
    """Turns a refusal into `ContractBroken`, which states the charge, if the plan was charged within the block."""
    before = _charges(ledger, plan)
    try:
        yield
    except (DpsweepError, HydraException, OmegaConfBaseException) as cause:
        code = cause.exit_code if isinstance(cause, DpsweepError) else ExitCode.BAD_INPUT
        if code not in UNCHARGED or _charges(ledger, plan) == before:
            raise
        reason = str(cause).strip().partition("\n")[0].rstrip(".")
        raise ContractBroken(f"Plan {plan.id} was charged, and stays so, before this was refused: {reason}.") from cause


def _charges(ledger: Ledger, plan: Plan) -> int:
    """The number of the plan's charges so far."""
    if plan.account not in ledger.accounts():
        return 0
    return len(ledger.statement(plan.account, plan.id).charges)
