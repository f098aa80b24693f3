"""Tuning by private selection (the papers' "PS"): the best of a secret random number of tries is all that is seen."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.accounting import numbers
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.selection.hidden_search import HiddenSearch, HiddenSearchRule


@dataclass(frozen=True, kw_only=True)
class PrivateSelection(HiddenSearchRule):
    """The best of K tries, K truncated negative binomial: geometric at `eta` 1, logarithmic at 0.

    *Guarantee*: about 2 + eta times the epsilon of one run where that is pure, less where it is Gaussian. Points come
    from a list made beforehand, independently and with replacement; K is secret. Shown may be the winner and its score.
    Either `mean`, E[K], or `gamma` fixes the law; the mean is the number of points where both are None. `limit` ends
    the search early, at a price. With the mean fixed a smaller eta costs less and is less lucky: compare rules at equal
    `chance_of_best`.
    *Source*: Papernot and Steinke 2022 (Hyperparameter Tuning with Renyi Differential Privacy), Theorem 2; Koskela,
    Redberg, Wang 2024 (Privacy Profiles for Private Selection), Theorem 7.
    """

    eta: float = 1.0
    mean: float | None = None
    gamma: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        numbers.between("eta", self.eta, above=-1)
        if self.mean is not None and self.gamma is not None:
            raise ValueError(f"Expected either mean={self.mean} or gamma={self.gamma}: one decides the other.")
        if self.mean is not None:
            numbers.between("mean", self.mean, above=0)
        if self.gamma is not None:
            numbers.share("gamma", self.gamma)
        if self.limit is not None:
            numbers.positive_int("limit", self.limit)
        self.search(1)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "private_selection"

    def search(self, n_points: int) -> HiddenSearch:
        """The best of K tries."""
        if self.gamma is not None:
            law = NegativeBinomial(eta=float(self.eta), gamma=float(self.gamma))
        else:
            law = NegativeBinomial.with_mean(eta=self.eta, mean=n_points if self.mean is None else self.mean)
        return HiddenSearch(event=events.select(events.nothing(), law, self.limit))


@dataclass(frozen=True, kw_only=True)
class PoissonSelection(HiddenSearchRule):
    """The best of K tries, K Poisson, the law of least spread: the luckiest at equal mean, and the dearest.

    *Guarantee*: the price falls towards that of one run as its delta does. Points come from a list made beforehand,
    independently and with replacement; K is secret. Shown may be the winner and its score, or, with probability
    exp(-mean), that there is none. `mean` is the number of points where it is None. `limit` ends the search early, at
    a price.
    *Source*: Papernot and Steinke 2022, Theorem 6.
    """

    mean: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.mean is not None:
            numbers.between("mean", self.mean, above=0)
        if self.limit is not None:
            numbers.positive_int("limit", self.limit)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "poisson_selection"

    def search(self, n_points: int) -> HiddenSearch:
        """The best of K tries; perhaps none is made."""
        law = Poisson(mean=float(n_points if self.mean is None else self.mean))
        return HiddenSearch(event=events.select(events.nothing(), law, self.limit))
