"""How a score is said to a person: as a share in percent, or as an error in the unit of the target.

Invariant: a score is stored, compared, averaged and coloured as a mean quality in [0, 1], of which a larger one is
better. Only what a person or another program reads goes through a scale. An error falls as the quality rises, so the
ends of an interval change places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any, Protocol

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.reports.content.formatting import ACCURACY, percent_text

SKEWED = 0.1
"""A share of the width of an interval: a score that is farther from the middle has no single number for its error."""


UNDER_NOISE = "< noise"
"""What a cell says of an error that noise drove below 0; it says nothing of how small the error is."""

SMALLEST, LARGEST = 0.01, 1e6
"""The largest errors between which no power of ten stands in the unit."""


class _MeanError(Protocol):
    """What a loss of numbers has."""

    def mean_error(self, quality: float) -> float:
        """The mean error of predictions with this mean quality."""


@dataclass(frozen=True, kw_only=True)
class ScoreScale:
    """How scores in [0, 1] are said: as shares in percent, or as mean errors by a `loss`, of which a smaller is better.

    `name` is the name of the number where it is another one than the mean quality, and `quality_text` then says what
    the quality is. `unit` stands behind a number, and `in_words` is what the numbers of a table are. Texts and axes
    show a number times `factor`, with so many `decimals`. `gap_title` heads the differences from the best score, and
    `narrower` is a setting that makes intervals narrower. `width` is that of the declared range of the targets, which
    are scaled to [0, 1]; 1 if they are not scaled.
    """

    name: str = ""
    quality_text: str = ""
    unit: str = "%"
    in_words: str = "in percent"
    factor: float = 100.0
    decimals: int = 1
    gap_title: str = "below best"
    narrower: str = "another metric"
    width: float = 1.0
    loss: _MeanError | None = None
    is_noisy: bool = False

    def number(self, score: float) -> float:
        """The score as a share, or as a mean error in the unit of the target, without a power of ten."""
        return score if self.loss is None else self.width * self.loss.mean_error(min(max(score, 0.0), 1.0))

    def exported_number(self, score: float) -> float | None:
        """The score as other programs read it; None for an error that noise drove below 0."""
        return None if self.text(score) == UNDER_NOISE else self.number(score)

    def drawn(self, score: float) -> float:
        """The score on an axis of a chart, in `unit`."""
        return self.factor * self.number(score)

    @property
    def largest_number(self) -> float:
        """The largest number on an axis, in `unit`: 100 %, or the error from which on a prediction is as bad as any."""
        return max(self.drawn(0.0), self.drawn(1.0))

    def text(self, score: float) -> str:
        """The score without its unit; a noisy quality is stored as 1 where noise drove it above: no error of 0."""
        return UNDER_NOISE if self.is_noisy and score >= 1 else self._nearest_text(self.number(score))

    def assumed_text(self, score: float) -> str:
        """A score that a plan assumes, with its unit."""
        if self.loss is None:
            return f"a score of {100 * score:.0f} %"
        return f"a {self.name} of {self.with_unit(self._nearest_text(self.number(score)))}"

    def within_text(self, low: float, high: float) -> str:
        """How well a score with this interval is known, in percentage points or with its unit."""
        if self.loss is None:
            return f"{50 * (high - low):.1f} points"
        return self.with_unit(self.half_width_text(low, high).removeprefix("±"))

    def ends(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """The interval of a score as other programs read it, its smaller number first."""
        first, last = (None if score is None else self.number(score) for score in (low, high))
        return (first, last) if self.loss is None else (last, first)

    def interval_text(self, low: float, high: float) -> str:
        """The interval of a score without its unit, rounded outwards, its smaller number first."""
        return self.text_of_numbers(*sorted((self.number(low), self.number(high))))

    def text_of_numbers(self, low: float, high: float) -> str:
        """An interval of numbers that are shares, or errors in the unit of the target, already; rounded outwards."""
        return f"{self._rounded_text(low, ROUND_FLOOR)} to {self._rounded_text(high, ROUND_CEILING)}"

    def half_width_text(self, low: float, high: float) -> str:
        """Half the width of the interval of a score, rounded up."""
        return f"±{self._rounded_text(abs(self.number(high) - self.number(low)) / 2, ROUND_CEILING)}"

    def spread_text(self, score: float, low: float, high: float) -> str:
        """Half the width of the interval of a score, or the interval where the score is far from its middle."""
        off_middle = abs(self.number(score) - (self.number(low) + self.number(high)) / 2)
        if off_middle > SKEWED * abs(self.number(high) - self.number(low)):
            return self.interval_text(low, high).replace(" to ", "\N{EN DASH}")
        return self.half_width_text(low, high)

    def with_unit(self, text: str) -> str:
        """A text of numbers with their unit behind it, or that there is no number."""
        return "an error below the noise" if text == UNDER_NOISE else f"{text} {self.unit}".rstrip()

    def heading(self, label: str) -> str:
        """The name of a score with its unit, for a column or an axis."""
        return f"{label}, {self.unit}" if self.unit else label

    def gap(self, score: float, gap: float) -> float:
        """How far a score is from the best one, which is larger by `gap`, as other programs read it."""
        return gap if self.loss is None else abs(self.number(score) - self.number(min(score + gap, 1.0)))

    def gap_text(self, score: float, gap: float) -> str:
        """How far a score is from the best one, which is larger by `gap`; of shares, in percentage points."""
        return self._nearest_text(self.gap(score, gap))

    def _nearest_text(self, number: float) -> str:
        return percent_text(number) if self.loss is None else self._rounded_text(number, ROUND_HALF_EVEN)

    def _rounded_text(self, number: float, rounding: str) -> str:
        exact = Decimal(repr(float(self.factor * number))).quantize(Decimal(1).scaleb(-self.decimals - 8))
        return f"{exact.quantize(Decimal(1).scaleb(-self.decimals), rounding=rounding):f}"


PERCENT = ScoreScale()


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
    width = float(high) - float(low)
    largest = width * loss.mean_error(0.0)
    power = 0 if SMALLEST <= largest < LARGEST else 3 * math.floor(math.log10(largest) / 3)
    times = f"\N{MULTIPLICATION SIGN}1e{power}" if power else ""
    unit = " ".join(filter(None, (times, str(dataset.get("target_unit") or ""))))
    return ScoreScale(
        name=loss.error_name,
        quality_text=loss.quality_name.replace("cap", f"{loss.cap:g}"),
        unit=unit,
        in_words=f"in {unit}" if unit else "in the target's unit",
        factor=10.0**-power,
        decimals=max(0, 3 - math.floor(math.log10(largest * 10.0**-power))),  # about three digits remain
        gap_title="above best",
        narrower="a smaller loss.cap",
        width=width,
        loss=loss,
        is_noisy=bool(config.get("score", {}).get("noise_std")),
    )
