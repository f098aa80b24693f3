"""How a score is said to a person: as a share in percent, or as an error in the unit of the target.

Invariant: a score is stored, compared, averaged and coloured as a mean quality in [0, 1], of which a larger one is
better. Only what a person or another program reads goes through a scale. An error falls as the quality rises, so the
ends of an interval change places.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any, ClassVar, Protocol

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.formatting import ACCURACY

SKEWED = 0.1
"""A share of the width of an interval: a score that is farther from the middle has no single number for its error."""


class ScoreScale(ABC):
    """How scores in [0, 1] are said.

    `unit` stands behind a number, and `gap_title` heads the differences from the best score, and `narrower` is a
    setting that makes intervals narrower. `name` is the name of the number where it is another one than the mean
    quality, and `quality_text` then says what the quality is.
    """

    name: str = ""
    quality_text: str = ""
    gap_title: ClassVar[str]
    narrower: ClassVar[str]

    @property
    @abstractmethod
    def unit(self) -> str:
        """What stands behind a number."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What the numbers of a table are."""

    @abstractmethod
    def number(self, score: float) -> float:
        """The score as a share, or as an error in the unit of the target."""

    def exported_number(self, score: float) -> float | None:
        """The score as other programs read it; None for an error that noise drove below 0."""
        return None if self.text(score) == UNDER_NOISE else self.number(score)

    @abstractmethod
    def drawn(self, score: float) -> float:
        """The score on an axis of a chart, in `unit`."""

    @abstractmethod
    def text(self, score: float) -> str:
        """The score without its unit."""

    @abstractmethod
    def assumed_text(self, score: float) -> str:
        """A score that a plan assumes, with its unit."""

    @abstractmethod
    def within_text(self, low: float, high: float) -> str:
        """How well a score with this interval is known, with its unit."""

    @abstractmethod
    def interval_text(self, low: float, high: float) -> str:
        """The interval of a score without its unit, rounded outwards, its smaller number first."""

    @abstractmethod
    def half_width_text(self, low: float, high: float) -> str:
        """Half the width of the interval of a score, rounded up."""

    def spread_text(self, score: float, low: float, high: float) -> str:
        """Half the width of the interval of a score, or the interval where the score is far from its middle."""
        off_middle = abs(self.number(score) - (self.number(low) + self.number(high)) / 2)
        if off_middle > SKEWED * abs(self.number(high) - self.number(low)):
            return self.interval_text(low, high).replace(" to ", "\N{EN DASH}")
        return self.half_width_text(low, high)

    @abstractmethod
    def ends(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """The interval of a score as other programs read it, its smaller number first."""

    @property
    @abstractmethod
    def largest_number(self) -> float:
        """The largest number on an axis, in `unit`."""

    def with_unit(self, text: str) -> str:
        """A text of numbers with their unit behind it."""
        return f"{text} {self.unit}" if self.unit else text

    def heading(self, label: str) -> str:
        """The name of a score with its unit, for a column or an axis."""
        return f"{label}, {self.unit}" if self.unit else label

    def gap(self, score: float, gap: float) -> float:
        """How far a score is from the best one, which is larger by `gap`, as other programs read it."""
        return abs(self.number(score) - self.number(min(score + gap, 1.0)))

    @abstractmethod
    def gap_text(self, score: float, gap: float) -> str:
        """How far a score is from the best one, which is larger by `gap`."""


@dataclass(frozen=True, kw_only=True)
class Percent(ScoreScale):
    """Shares of one, said in percent."""

    gap_title: ClassVar[str] = "below best"
    narrower: ClassVar[str] = "another metric"

    @property
    def unit(self) -> str:
        """The sign."""
        return "%"

    @property
    def in_words(self) -> str:
        """Percentages."""
        return "in percent"

    def number(self, score: float) -> float:
        """The share."""
        return score

    def drawn(self, score: float) -> float:
        """The percentage."""
        return 100 * score

    def text(self, score: float) -> str:
        """To one decimal."""
        return notation.percent_text(score)

    def assumed_text(self, score: float) -> str:
        """Without decimals."""
        return f"a score of {100 * score:.0f} %"

    def within_text(self, low: float, high: float) -> str:
        """In percentage points."""
        return f"{50 * (high - low):.1f} points"

    def interval_text(self, low: float, high: float) -> str:
        """To one decimal."""
        return notation.percent_interval_text(low, high)

    def half_width_text(self, low: float, high: float) -> str:
        """To one decimal."""
        return notation.percent_half_width_text(low, high)

    def ends(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """The same interval."""
        return low, high

    @property
    def largest_number(self) -> float:
        """A hundred."""
        return 100.0

    def gap(self, score: float, gap: float) -> float:
        """The difference of the shares."""
        return gap

    def gap_text(self, score: float, gap: float) -> str:
        """In percentage points."""
        return notation.percent_text(gap)


PERCENT = Percent()

UNDER_NOISE = "< noise"
"""What a cell says of an error that noise drove below 0; it says nothing of how small the error is."""

SMALLEST, LARGEST = 0.01, 1e6
"""The largest errors between which no power of ten stands in the unit."""


class _MeanError(Protocol):
    """What a loss of numbers has."""

    def mean_error(self, quality: float) -> float:
        """The mean error of predictions with this mean quality."""


@dataclass(frozen=True, kw_only=True)
class ErrorInUnit(ScoreScale):
    """Mean errors of predicted numbers, of which a smaller one is better.

    `width` is that of the declared range of the targets, which are scaled to [0, 1]; 1 if they are not scaled. Texts
    have so many decimals that about three digits of an error remain; of very large and small ones a power of ten stands
    in the unit, so that a number fits into a cell of a map.
    """

    name: str
    quality_text: str
    target_unit: str
    width: float
    loss: _MeanError
    is_noisy: bool = False
    gap_title: ClassVar[str] = "above best"
    narrower: ClassVar[str] = "a smaller loss.cap"

    @property
    def unit(self) -> str:
        """The unit of the target, with a power of ten."""
        power = f"\N{MULTIPLICATION SIGN}1e{self._exponent}" if self._exponent else ""
        return " ".join(filter(None, (power, self.target_unit)))

    @property
    def _exponent(self) -> int:
        largest = self.number(0.0)
        return 0 if SMALLEST <= largest < LARGEST else 3 * math.floor(math.log10(largest) / 3)

    @property
    def in_words(self) -> str:
        """The unit, or that the numbers have that of the target."""
        return f"in {self.unit}" if self.unit else "in the target's unit"

    def number(self, score: float) -> float:
        """The mean error in the unit of the target."""
        return self.width * self.loss.mean_error(min(max(score, 0.0), 1.0))

    def drawn(self, score: float) -> float:
        """The mean error."""
        return self._shown(self.number(score))

    def text(self, score: float) -> str:
        """The mean error, rounded; a noisy quality is stored as 1 where noise drove it above, and is no error of 0."""
        return UNDER_NOISE if self.is_noisy and score >= 1 else self._rounded(self.number(score), ROUND_HALF_EVEN)

    def with_unit(self, text: str) -> str:
        """A text of numbers with their unit behind it, or that there is no number."""
        return "an error below the noise" if text == UNDER_NOISE else super().with_unit(text)

    def assumed_text(self, score: float) -> str:
        """The mean error, called so."""
        return f"a {self.name} of {self.with_unit(self._rounded(self.number(score), ROUND_HALF_EVEN))}"

    def within_text(self, low: float, high: float) -> str:
        """Half the difference of the errors."""
        return self.with_unit(self.half_width_text(low, high).removeprefix("±"))

    def interval_text(self, low: float, high: float) -> str:
        """The error of the better score first."""
        return self.text_of_errors(self.number(high), self.number(low))

    def text_of_errors(self, low: float, high: float) -> str:
        """An interval of errors that are in the unit of the target already."""
        return f"{self._rounded(low, ROUND_FLOOR)} to {self._rounded(high, ROUND_CEILING)}"

    def half_width_text(self, low: float, high: float) -> str:
        """Half the difference of the errors."""
        return f"±{self._rounded((self.number(low) - self.number(high)) / 2, ROUND_CEILING)}"

    def ends(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """The error of the better score first."""
        return None if high is None else self.number(high), None if low is None else self.number(low)

    @property
    def largest_number(self) -> float:
        """The error from which on a prediction is as bad as any."""
        return self.drawn(0.0)

    def gap_text(self, score: float, gap: float) -> str:
        """The difference of the errors."""
        return self._rounded(self.gap(score, gap), ROUND_HALF_EVEN)

    def _shown(self, error: float) -> float:
        """An error in the unit with its power of ten."""
        return error * 10.0**-self._exponent

    def _rounded(self, error: float, rounding: str) -> str:
        decimals = max(0, 3 - math.floor(math.log10(self.largest_number)))
        exact = Decimal(repr(self._shown(error))).quantize(Decimal(1).scaleb(-decimals - 6), rounding=ROUND_HALF_EVEN)
        return f"{exact.quantize(Decimal(1).scaleb(-decimals), rounding=rounding):f}"


def score_scale_of_config(config: Mapping[str, Any]) -> ScoreScale:
    """How the scores of a trial with this configuration are said."""
    if config.get("score", {}).get("metric", ACCURACY) != ACCURACY:
        return PERCENT
    try:
        loss = build_from_stored_form(config.get("loss", {}), "loss")
    except (DpsweepError, ValueError, TypeError, KeyError, ImportError):
        return PERCENT
    if not hasattr(loss, "mean_error"):
        return PERCENT
    dataset = config.get("dataset", {})
    low, high = dataset.get("target") or (0.0, 1.0)
    return ErrorInUnit(
        name=loss.error_name,
        quality_text=loss.quality_name.replace("cap", f"{loss.cap:g}"),
        target_unit=str(dataset.get("target_unit") or ""),
        width=float(high) - float(low),
        loss=loss,
        is_noisy=bool(config.get("score", {}).get("noise_std")),
    )
