"""The verb of a request, executed: the guarantee's verbs by the coordinator, `audit` by its own room."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from dpsweep.accounting.errors import ExitCode
from dpsweep.sweeper.coordinator.alternatives import print_measured_search_advice
from dpsweep.sweeper.coordinator.request import SweepRequest, Verb
from dpsweep.sweeper.coordinator.sweep_coordinator import SweepCoordinator


def execute_requested_verb(request: SweepRequest) -> None:
    """Executes the request's verb, and exits with its exit code unless it is 0."""
    coordinator = SweepCoordinator(request)
    verbs: Mapping[Verb, Callable[[], ExitCode]] = {
        Verb.RESUME: coordinator.resume,
        Verb.PLAN: coordinator.plan,
        Verb.PLAN_FOR_TRE: coordinator.print_data_management_plan,
        Verb.ADVISE: lambda: print_measured_search_advice(request),
        Verb.AUDIT: lambda: _run_canary_audit(request),
    }
    if (code := verbs.get(request.verb, coordinator.sweep)()) is not ExitCode.DONE:
        sys.exit(code)


def _run_canary_audit(request: SweepRequest) -> ExitCode:
    """Attacks what the plan would run, by canaries among generated or public records; charges nothing."""
    from dpsweep.sweeper.audit.audit_command import audit

    return audit(request)
