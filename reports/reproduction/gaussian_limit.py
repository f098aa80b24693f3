"""Values that papers quote as the epsilon of DP-SGD but that are not bounds: shown for comparison, never charged.

They are plain functions on purpose. Nothing here is an `Accountant`, so no panel, plan or ledger can use them, and a
test forbids configurations and the sweeper to name this module.
"""

from __future__ import annotations

import math

from dpsweep.accounting.accountants.interface import check_delta
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile


def dp_sgd_epsilon_by_closed_renyi_formula(
    *, sample_rate: float, noise_multiplier: float, steps: int, delta: float
) -> float:
    """Epsilon by Renyi divergences 7 q^2 a / sigma^2 at orders a <= sigma^2 / 2 ln(1 / q), and Mironov's conversion.

    Not a bound: for batches of 1000 out of 50000 records, noise multiplier 1.2 and 5000 steps it gives 30.88, but an
    explicit attack on this mechanism (fixed size without replacement, replace one) forces 33.8. It starts from the
    Gaussian divergence a / (2 sigma^2) of sums at a distance of one clip norm; replacing a record moves a sum by two.
    *Source*: Yang, Zhang, Chen, Liu 2022 (Normalized/Clipped SGD with Perturbation for DP Non-Convex Optimization),
    Proposition E.3 and the proof of Lemma 3.1.

    >>> round(dp_sgd_epsilon_by_closed_renyi_formula(sample_rate=0.02, noise_multiplier=3.6, steps=5000, delta=1e-5), 3)
    8.133
    """
    _require_valid_step_parameters(sample_rate, noise_multiplier, steps, delta)
    largest = noise_multiplier**2 / 2 * math.log(1 / sample_rate)
    if largest <= 1:
        return math.inf
    slope = 7 * steps * sample_rate**2 / noise_multiplier**2
    order = min(1 + math.sqrt(-math.log(delta) / slope), largest)
    return slope * order - math.log(delta) / (order - 1)


def dp_sgd_epsilon_by_gaussian_limit(*, sample_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Epsilon of the limit of `steps` Poisson-sampled steps, a Gaussian with mu = q sqrt(T (e^(1/sigma^2) - 1)).

    Not a bound: a limit theorem does not hold at a finite number of steps, and the value is below the true one in every
    setting of the papers (1.557 against 1.569, 6.583 against 6.756).
    *Source*: Bu, Dong, Long, Su 2020 (Deep Learning with Gaussian Differential Privacy), Theorem 5.

    >>> round(dp_sgd_epsilon_by_gaussian_limit(sample_rate=0.02, noise_multiplier=3.6, steps=5000, delta=1e-5), 3)
    1.557
    """
    _require_valid_step_parameters(sample_rate, noise_multiplier, steps, delta)
    return GaussianProfile(mu=sample_rate * math.sqrt(steps * math.expm1(noise_multiplier**-2))).epsilon(delta)


def _require_valid_step_parameters(sample_rate: float, noise_multiplier: float, steps: int, delta: float) -> None:
    if not 0 < sample_rate < 1:
        raise ValueError(f"Expected sample_rate={sample_rate} in (0, 1).")
    if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
        raise ValueError(f"Expected noise_multiplier={noise_multiplier} > 0.")
    if steps < 1:
        raise ValueError(f"Expected steps={steps} >= 1.")
    check_delta(delta)
