"""`sampler=auto`: the sampler at which the whole plan costs least, or needs the least noise for its epsilon.

Which one it is depends on noise, steps and epsilon, so prices are compared, never names. The plan holds the chosen
sampler as if it had been typed: it is the same plan, with the same identity, event and statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.notation import epsilon_text_rounded_up, noise_text_rounded_up
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.stored_names.stored_classes import KIND
from dpsweep.sweeper.planning.plan_settings import Point
from dpsweep.sweeper.planning.search_options import WHEN_BUDGET_SPENT

AUTO = "auto"

SAMPLERS = ("poisson", "random_allocation", "fixed_size")
"""The samplers that are compared; of equal ones the first is taken.

`shuffle` is not among them: it has the batches of random allocation, and costs no less.
"""


def plan_with_cheapest_sampler(
    points: Sequence[Point], solve: str, priced_plan_of: Callable[[Sequence[Point]], PricedPlan]
) -> PricedPlan:
    """The cheapest of the plans of these points, one with each sampler; its notes say what the others cost.

    A sampler that the plan does not allow, or that no accountant can price here, is left out; if all are, the refusal
    of the first is raised. Raises `BadInput` where steps or points are solved for, or `sampler` is an axis.
    """
    for point in points:
        if "sampler" in point.axes:
            raise BadInput(f"Expected sampler={AUTO} to be the only one: it chooses one sampler for all points.")
        if solve != "noise" or point.config["steps"] == WHEN_BUDGET_SPENT:
            raise BadInput(
                f"Expected sampler={AUTO} to be a sampler by name where the number of steps or points is solved for: "
                "prices follow from it."
            )
    plans: dict[str, PricedPlan] = {}
    refusals: list[BadInput | UnsupportedEvent] = []
    for name in SAMPLERS:
        try:
            plans[name] = priced_plan_of(
                [point.with_settings(sampler={**point.config["sampler"], KIND: name}) for point in points]
            )
        except (BadInput, UnsupportedEvent) as refusal:
            refusals.append(refusal)
    if not plans:
        raise refusals[0]
    given = {point.config["privacy"]["noise_multiplier"] for point in points}
    costs = {name: _solved_noise_or_epsilon(priced, given) for name, priced in plans.items()}
    chosen = min(costs, key=lambda name: costs[name])
    plan = plans[chosen].plan
    is_noise = plan.target_epsilon is not None
    return replace(plans[chosen], plan=replace(plan, notes=(*plan.notes, _choice_sentence(costs, chosen, is_noise))))


def _solved_noise_or_epsilon(priced: PricedPlan, given: Collection[float | None]) -> float:
    """The noise multiplier that was solved for, of the final run if there is one; the price where all were given."""
    plan = priced.plan
    if plan.target_epsilon is None:
        return priced.quote.epsilon
    noises = [run.config["privacy"]["noise_multiplier"] for run in plan.runs_that_may_be_handed_over]
    return float(min(noise for noise in noises if noise not in given))


def _choice_sentence(costs: Mapping[str, float], chosen: str, is_noise: bool) -> str:
    """The chosen sampler and the other ones, each with the noise that it needs or with its price."""

    def text(name: str) -> str:
        return (
            f"noise {noise_text_rounded_up(costs[name], 4)}"
            if is_noise
            else f"epsilon {epsilon_text_rounded_up(costs[name])}"
        )

    others = "".join(
        f"; {name} would {'need' if is_noise else 'cost'} {text(name)}" for name in costs if name != chosen
    )
    return f"sampler={AUTO} chose {chosen}: {text(chosen)}{others}."
