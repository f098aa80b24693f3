"""Privacy accounting: events, upper bounds on epsilon, selection rules, plans, the ledger. Neither torch nor hydra.

The price of a search in four lines; docs/library.md has more:

>>> from dpsweep.accounting import Composition, poisson_gaussian, price, repeat
>>> run = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000)
>>> one, grid = (price(Composition().search(run, points=points), delta=1e-5).epsilon for points in (1, 35))
>>> f"one run {one:.2f}, the search {grid:.2f}"
'one run 3.21, the search 28.25'
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "accountants.interface": "Accountant",
    "lower_bounds.lower_bound": "lower_bound",
    "lower_bounds.selection_attack": "chance_to_draw_best_share",
    "pricing.calibration": "calibrate_noise largest_affordable_count",
    "events.build": "PlanEvent above_threshold adadp black_box compose gaussian mixture noisy_count noisy_max "
    "non_private no_access output_perturbation poisson_gaussian random_stopping repeat poisson_sampled best_of_tries "
    "random_allocation step_on_shared_subsample shuffled_gaussian truncated_poisson_gaussian "
    "without_replacement_gaussian worst_of_events",
    "events.dp_accounting_events": "from_dp_accounting",
    "guarantee": "Adjacency Guarantee",
    "ledger.ledger": "Ledger",
    "accountants.pld": "Pld",
    "pricing.panel": "Panel Quote",
    "pricing.price": "EventPrice gaussian_mu price",
    "pricing.rule_prices": "Offer cheapest_offer_showing_results offer_of_each_rule",
    "accountants.prv": "Prv",
    "profiles.selection_envelope": "profile_of_best_try",
    "accountants.rdp": "Conversion Rdp",
    "events.trial_counts": "Capped EachPoint NegativeBinomial Poisson Stopping",
    "selection.rules": "BestOfGrid Composition Final MedianOfRepeats NoisyMax PoissonSelection PrivateSelection Public "
    "RandomStopping Subsampled Threshold",
    "upper_bounds": "upper_bound",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Loads a public name from its module on first use, so that `import accounting` itself stays fast."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
