"""Tuning by private selection (the papers' "PS"): only the best of a secret random number of tries is released."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.codec import Positive, PositiveInt, Share
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.selection.hidden_search import HiddenSearchRule, SearchEvent


@dataclass(frozen=True, kw_only=True)
class PrivateSelection(HiddenSearchRule):
    """The best of K tries; K is truncated negative binomial: geometric at `eta` 1, logarithmic at 0.

    *Guarantee*: the envelope bound of one run's privacy profile; about 2 + eta times the epsilon of one run if that is
    pure, less if it is Gaussian. Points come from a
    list made beforehand, independently and with replacement; K is secret. The winner and its score may be released.
    Either `mean`, E[K], or `gamma` fixes the law; the mean is the number of points if both are None. `limit` ends the
    search early; min(K, limit) is what is priced. At a fixed mean a smaller eta costs less but
    lowers the chance of trying a good point: compare rules at equal `chance_of_best`.
    *Source*: the envelope bound (`selection_envelope.py`); second opinion by Papernot and Steinke 2022 (Hyperparameter
    Tuning with Renyi Differential Privacy), Theorem 2.
    """

    works: ClassVar[tuple[str, ...]] = ("liu2019private", "papernot2022hyperparameter", "koskela2024privacy")
    name: ClassVar[str] = "private_selection"

    eta: Annotated[float, partial(validation.require_number_between, above=-1)] = 1.0
    mean: Positive | None = None
    gamma: Share | None = None
    limit: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean is not None and self.gamma is not None:
            raise ValueError(f"Expected either mean={self.mean} or gamma={self.gamma}: one decides the other.")
        self.search_event(1)

    def search_event(self, n_points: int) -> SearchEvent:
        """The best of K tries."""
        if self.gamma is not None:
            law = NegativeBinomial(eta=float(self.eta), gamma=float(self.gamma))
        else:
            law = NegativeBinomial.with_mean(eta=self.eta, mean=n_points if self.mean is None else self.mean)
        return events.best_of_tries(events.no_access(), law, self.limit)


@dataclass(frozen=True, kw_only=True)
class PoissonSelection(HiddenSearchRule):
    """The best of K tries; K is Poisson, with the least spread: the best chance at equal mean, and the highest price.

    *Guarantee*: the price falls towards that of one run as the delta of one run falls. Points come from a list made
    beforehand, independently and with replacement; K is secret. The winner and its score may be released, or, with
    probability exp(-mean), that there is none. `mean` is the number of points if it is None. `limit` ends the search
    early; min(K, limit) is what is priced.
    *Source*: the envelope bound (`selection_envelope.py`); second opinion by Papernot and Steinke 2022, Theorem 6.
    """

    works: ClassVar[tuple[str, ...]] = ("papernot2022hyperparameter", "koskela2024privacy")
    name: ClassVar[str] = "poisson_selection"

    mean: Positive | None = None
    limit: PositiveInt | None = None

    def search_event(self, n_points: int) -> SearchEvent:
        """The best of K tries; K may be 0."""
        law = Poisson(mean=float(n_points if self.mean is None else self.mean))
        return events.best_of_tries(events.no_access(), law, self.limit)
