"""What is claimed: events, upper bounds on epsilon, selection rules, plans, the ledger. Neither torch nor hydra.

A grid's price in five lines:

>>> from accounting import Adjacency, Pld, poisson_gaussian, repeat
>>> run = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000)
>>> one, grid = (Pld().epsilon(repeat(run, runs), 1e-5, Adjacency.ADD_OR_REMOVE_ONE) for runs in (1, 35))
>>> f"one run {one:.2f}, the search {grid:.2f}"
'one run 3.21, the search 28.25'
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "accountant": "Accountant",
    "attack": "lower_bound",
    "calibration": "calibrate_noise largest_count",
    "classical": "Classical",
    "composition": "Composition",
    "events": "PlanEvent above_threshold adadp black_box compose gaussian noisy_count noisy_max non_private nothing "
    "output_perturbation poisson_gaussian random_stopping repeat sampled_part select shared_subsample "
    "shuffled_gaussian truncated_poisson_gaussian without_replacement_gaussian worst",
    "final": "Final",
    "guarantee": "Adjacency Guarantee",
    "ledger": "Ledger",
    "noisy_max": "NoisyMax",
    "pld": "Pld",
    "price": "Panel Quote",
    "offers": "Offer cheapest price_list",
    "private_selection": "PoissonSelection PrivateSelection",
    "prv": "Prv",
    "public": "Public",
    "random_stopping": "RandomStopping",
    "rdp": "Conversion Rdp",
    "subsampled": "Subsampled",
    "threshold": "Threshold",
    "tries": "NegativeBinomial Poisson Stopping chance_of_best",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Loads a public name from its module when it is first asked for: `import accounting` itself stays instant."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
