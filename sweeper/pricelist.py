"""What a plan costs, printed before anything is charged."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from accounting.ledger import Statement
from sweeper.compose import PricedPlan


def show(priced: PricedPlan, statement: Statement | None, seconds: float | None, device: str) -> None:
    """Prints the price list: the whole search first, what others would have quoted last."""
    plan, quote = priced.plan, priced.quote
    console = Console(highlight=False)
    table = Table(title=f"Plan {plan.id} on {plan.account}", show_header=False, title_justify="left", pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    methods = sorted({trial.method for trial in plan.trials})
    count = {method: sum(trial.method == method for trial in plan.trials) for method in methods}
    table.add_row("runs", f"{len(plan.trials)} ({', '.join(f'{n} {method}' for method, n in count.items())})")
    table.add_row("rule", f"{priced.rule.name}; may be shown: {', '.join(sorted(priced.rule.discloses))}")
    table.add_row(
        "the whole search",
        f"epsilon {ceil(quote.epsilon)} at delta {plan.delta:g} per {plan.unit}, {plan.adjacency.value}",
    )
    table.add_row("accountants", "; ".join(_voices(priced)))
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in plan.trials})
    table.add_row("noise multiplier", ", ".join(f"{noise:g}" for noise in noises))
    table.add_row("scores", _scores(priced))
    table.add_row("budget", _budget(priced, statement))
    table.add_row("one run alone", f"epsilon {ceil(priced.single_run.epsilon)} (not the price of this search)")
    table.add_row("time", f"about {duration(seconds)} on {device}" if seconds is not None else "unknown")
    console.print(table)
    for note in plan.notes:
        console.print(note)


def ceil(epsilon: float) -> str:
    """An upper bound in three decimals, rounded up."""
    import math

    return "infinite" if math.isinf(epsilon) else f"{math.ceil(epsilon * 1000 - 1e-9) / 1000:.3f}"


def duration(seconds: float) -> str:
    """A time in the unit that a person would use."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _voices(priced: PricedPlan) -> list[str]:
    said = [f"{name} {ceil(bound)}" for name, bound in sorted(priced.quote.bounds.items(), key=lambda item: item[1])]
    return said + [f"{name} gives no bound" for name in priced.quote.refusals]


def _scores(priced: PricedPlan) -> str:
    if priced.plan.event.validation is None:
        return "exact, on a test set declared public; not charged"
    return (
        f"noisy counts on held-out private records, epsilon {ceil(priced.quote.parts['validation'])}; "
        "those records are not trained on, so the larger part counts"
    )


def _budget(priced: PricedPlan, statement: Statement | None) -> str:
    budget = priced.plan.budget
    if statement is None:
        fits = priced.quote.guarantee.fits(budget)
        return f"the account opens with epsilon {budget.epsilon:g}, delta {budget.delta:g}: {_fits(fits)}"
    if any(entry.plan == priced.plan.id for entry in statement.charges):
        return f"already charged; epsilon {statement.left[0]:.4g} of {statement.budget.epsilon:g} is left"
    left = f"epsilon {statement.left[0]:.4g} of {statement.budget.epsilon:g}, delta {statement.left[1]:.3g} left"
    return f"{left}: {_fits(statement.admits(priced.quote.guarantee))}"


def _fits(fits: bool) -> str:
    return "it fits" if fits else "IT DOES NOT FIT"
