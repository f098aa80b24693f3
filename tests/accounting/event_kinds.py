"""An event of every kind, at small settings, and the neighbours for which they are priced."""

from __future__ import annotations

from dpsweep.accounting.events.build import (
    DpEvent,
    above_threshold,
    adadp,
    best_of_tries,
    black_box,
    compose,
    gaussian,
    noisy_count,
    noisy_max,
    output_perturbation,
    poisson_gaussian,
    poisson_sampled,
    random_allocation,
    random_stopping,
    repeat,
    shuffled_gaussian,
    step_on_shared_subsample,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
    worst_of_events,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE

DISCRETISATION = 1e-3
"""What a grid step that depends on the composition may change, relative."""


def dpsgd(steps: int, noise_multiplier: float = 1.2, sample_rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


LAW = NegativeBinomial.with_mean(eta=0.5, mean=5.0)
SEARCH = best_of_tries(dpsgd(20), LAW)
KINDS: dict[str, DpEvent] = {
    "gaussian": gaussian(noise_multiplier=3.0),
    "poisson": dpsgd(50),
    "truncated": truncated_poisson_gaussian(records=1000, sample_rate=0.02, largest_batch=60, noise_multiplier=1.2),
    "without replacement": without_replacement_gaussian(records=1000, batch_size=20, noise_multiplier=3.0),
    "random allocation": random_allocation(epochs=3, steps=50, noise_multiplier=3.0),
    "shuffled": shuffled_gaussian(epochs=3, steps=50, noise_multiplier=6.0),
    "cycles": shuffled_gaussian(epochs=10, steps=5, noise_multiplier=1.2, sample_rate=0.1),
    "shared": repeat(step_on_shared_subsample(sample_rate=0.02, noise_multipliers=[3.0, 4.0]), 5),
    "adadp": adadp(sample_rate=0.02, noise_multiplier=1.5, iterations=7),
    "count": noisy_count(noise_std=4.0),
    "noisy max": noisy_max(noise_scale=2.0),
    "output, added": output_perturbation(noise_std=4.0, sensitivity=1.0, adjacency=ADD),
    "output, replaced": output_perturbation(noise_std=4.0, sensitivity=1.0, adjacency=REPLACE),
    "pure claim": black_box(epsilon=0.3, delta=0.0, adjacency=ADD),
    "claim": black_box(epsilon=0.3, delta=1e-8, adjacency=REPLACE),
    "part": poisson_sampled(SEARCH, sample_rate=0.1),
    "worst": worst_of_events([dpsgd(30), gaussian(noise_multiplier=4.0)]),
    "negative binomial": SEARCH,
    "logarithmic": best_of_tries(dpsgd(20), NegativeBinomial.with_mean(eta=0.0, mean=5.0)),
    "poisson search": best_of_tries(dpsgd(20), Poisson(mean=5.0)),
    "stopped": best_of_tries(dpsgd(20), LAW, limit=200),
    "random stopping": random_stopping(dpsgd(20), gamma=0.2, delta2=1e-9),
    "threshold": above_threshold(dpsgd(20), gamma=0.2, limit=200),
    "nested search": best_of_tries(compose([SEARCH, noisy_count(noise_std=9.0)]), LAW),
    "mixture": compose([dpsgd(10), noisy_count(noise_std=5.0), SEARCH, noisy_max(noise_scale=9.0)]),
}
