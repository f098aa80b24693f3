"""What noise in floating point costs beside exact noise: a number, from the steps priced and the models' size."""

from __future__ import annotations

from dpsweep.accounting.floating_point import LOG_RATIO, excess
from dpsweep.accounting.notation import delta_up
from dpsweep.accounting.records.step_log import steps_priced
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

_BASIS = (
    "Noise is drawn in float64 by AES and added to sums in float64; the noisy sum is rounded to a lattice that the "
    f"noise alone fixes. Each number's law is within a factor of exp({LOG_RATIO:.2g}) of that of exact noise (Mironov "
    "2012 shows what other noise gives away)."
)
_ASSUMED = (
    "It is taken that the processor rounds as IEEE 754 says and that AES cannot be told from chance. Where a {unit} "
    "joins, one other {unit} has another place in the batch, and as many held-out records as it has of its own have "
    "another place in the scoring: their float32 numbers may be rounded otherwise. Sampling probabilities are right to "
    "about 1e-15."
)


def floating_point(context: Context) -> Line:
    """What the runs' noisy numbers add to the claim, all together, or each run's where their number is secret."""
    sweep, topic = context.sweep, "Floating point"
    results, assumed = _shown(context), _ASSUMED.format(unit=sweep.plan.unit)
    if sweep.plan.public:
        return Line(topic=topic, text="No private record is read, so no noise is drawn.", standing=EvidenceLevel.STATED)
    if any(result.event is not None and result.parameters is None for result in results):
        return Line(
            topic=topic,
            text="Gaussian noise in floating point is taken for exact: runs of an earlier version drew it in float32.",
            standing=EvidenceLevel.ASSUMED,
            evidence=("Which values float32 noise takes may tell who was there (Mironov 2012).",),
        )
    sizes = [result.parameters for result in results if result.parameters is not None]
    if not sizes:
        return Line(
            topic=topic,
            text=f"Each noisy number adds at most {2 * LOG_RATIO:.2g} to epsilon; no run has ended to count them by.",
            standing=EvidenceLevel.STATED,
            evidence=(_BASIS, assumed),
        )
    steps = max(max(trial.config["steps"], steps_priced(trial)) for trial in sweep.plan.trials)
    runs = 1 if context.drawn else sum(charge.runs for charge in context.bill.charges)
    numbers = runs * (max(sizes) * steps + max(result.counts for result in results))
    epsilon, delta = excess(numbers, context.bill.epsilon, context.bill.delta)
    whose = "each run" if context.drawn else "all runs together"
    return Line(
        topic=topic,
        text=(
            f"The noise's floating-point form adds at most {delta_up(epsilon)} to epsilon and "
            f"{delta_up(delta)} to delta, for {whose}: not included in the claim."
        ),
        standing=EvidenceLevel.ASSUMED,
        evidence=(
            f"{max(sizes)} numbers a step, at most {steps} steps, {notation.count(runs, 'run')}: "
            f"{numbers:.3g} noisy numbers.",
            _BASIS,
            assumed,
        ),
    )


def _shown(context: Context) -> list[TrialResult]:
    """The results that the line may depend on: of a secret draw nobody outside learns which points were tried."""
    results = context.sweep.results
    if context.drawn and context.audience is Audience.PUBLIC:
        return [result for trial, result in results.items() if trial == context.sweep.winner]
    return [*results.values()]
