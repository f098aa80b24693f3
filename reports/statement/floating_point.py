"""The extra epsilon and delta of floating-point noise over exact noise, from the priced steps and the model's size."""

from __future__ import annotations

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import delta_up
from dpsweep.accounting.records.step_log import steps_priced
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.rounded_noise_price import LOG_RATIO, excess
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

UNITS = 46_340
"""The square root of 2**31: the largest sum whose rounding the margin of `trainers/methods/transforms.py` covers."""

RESOLVED = 1e-15
TINY = "; a claim at a delta below that takes them, and the secret number of tries, as exact"
"""The smallest delta that draws of 53 random bits resolve, and what a smaller one assumes."""

_BASIS = (
    "Noise is drawn in float64 by AES and added to sums in float64; the noisy sum is rounded to a lattice whose "
    f"spacing depends on the noise alone. The probability of each noisy number is within a factor of "
    f"exp({LOG_RATIO:.2g}) of its probability under exact noise (Mironov 2012 shows how other floating-point noise "
    "leaks)."
)
_ASSUMED = (
    "This assumes that the processor rounds as IEEE 754 requires and that the output of AES cannot be distinguished "
    "from random bits. When a {unit} is added, one other {unit} changes its place in the batch, and as many held-out "
    "records as the added {unit} has change their place in the scoring: their float32 numbers may be rounded "
    "differently. Sampling probabilities are exact to about 1e-15{tiny}. Sums of more than {units:,} {unit}s a step "
    "may round by more than the margin by which contributions are shortened."
)


def floating_point(context: Context) -> Line:
    """The line on floating point: the cost over all runs, or per run where the number of runs is secret."""
    sweep, topic = context.sweep, "Floating point"
    results, assumed = _shown(context), _assumed(context)
    if sweep.plan.public:
        return Line(topic=topic, text="No private record is read, so no noise is drawn.", level=EvidenceLevel.STATED)
    if any(result.event is not None and result.parameters is None for result in results):
        raise BadInput("Expected each result of a run to say how many noisy numbers a step has.")
    sizes = [result.parameters for result in results if result.parameters is not None]
    if not sizes:
        return Line(
            topic=topic,
            text=f"Each noisy number adds at most {2 * LOG_RATIO:.2g} to epsilon; no run has ended yet.",
            level=EvidenceLevel.STATED,
            evidence=(_BASIS, assumed),
        )
    steps = max(max(trial.config["steps"], steps_priced(trial)) for trial in sweep.plan.trials + sweep.plan.finals)
    runs = 1 if context.draws_in_secret else sum(charge.runs for charge in context.bill.charges)
    numbers = runs * (max(sizes) * steps + max(result.counts for result in results))
    epsilon, delta = excess(numbers, context.bill.epsilon, context.bill.delta)
    scope = "each run" if context.draws_in_secret else "all runs together"
    return Line(
        topic=topic,
        text=(
            f"Floating-point noise adds at most {delta_up(epsilon)} to epsilon and "
            f"{delta_up(delta)} to delta, for {scope}: not included in the claim."
        ),
        level=EvidenceLevel.ASSUMED,
        evidence=(
            f"{max(sizes)} numbers a step, at most {steps} steps, {notation.count(runs, 'run')}: "
            f"{numbers:.3g} noisy numbers.",
            _BASIS,
            assumed,
        ),
    )


def _assumed(context: Context) -> str:
    """The assumptions; a delta below the resolution of uniform draws of 53 bits adds one."""
    tiny = TINY if 0 < context.bill.delta < RESOLVED else ""
    return _ASSUMED.format(unit=context.sweep.plan.unit, units=UNITS, tiny=tiny)


def _shown(context: Context) -> list[TrialResult]:
    """The results that the line may depend on: the public page of a secret draw may show the winner's only."""
    results = context.sweep.results
    if context.draws_in_secret and context.audience is Audience.PUBLIC:
        return [result for trial, result in results.items() if trial == context.sweep.winner]
    return [*results.values()]
