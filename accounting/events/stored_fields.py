"""The values that the fields of a stored event may have: what `build.py` would have built, and nothing else.

Somebody else may have written the event. A negative count, a noise that is no number, or a hard stop that comes before
its price allows would be priced too low, so each field is checked before the event exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpsweep.accounting import numbers
from dpsweep.accounting.events.bounded_counts import EachPoint, Stopping
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.events.types import (
    DpEvent,
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    ThresholdDpEvent,
    WorstDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency

Check = Callable[[str, Any], None]


def check_fields(kind: type, fields: Mapping[str, Any]) -> None:
    """Raises ValueError or TypeError unless an event or a law of this kind may have these decoded fields."""
    for name, value in fields.items():
        _CHECKS[name](name, value)
    if kind in _TOGETHER:
        _TOGETHER[kind](fields)


def _event(name: str, value: Any) -> None:
    if not isinstance(value, DpEvent):
        raise TypeError(f"Expected {name}={value!r} to be an event.")


def _events(name: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(one, DpEvent) for one in value):
        raise TypeError(f"Expected {name} to be a list of events.")


def _count(name: str, value: Any) -> None:
    numbers.whole(name, value)


def _positive_count(name: str, value: Any) -> None:
    numbers.whole(name, value, 1)


def _counts(name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise TypeError(f"Expected {name}={value!r} to be a list of integers.")
    for one in value:
        _positive_count(name, one)


def _limit(name: str, value: Any) -> None:
    if value is not None:
        _positive_count(name, value)


def _adjacency(name: str, value: Any) -> None:
    if value is not None:
        Adjacency(value)


def _epsilon(name: str, value: Any) -> None:
    if not numbers.real(name, value) >= 0:
        raise ValueError(f"Expected {name}={value} >= 0.")


def _delta(name: str, value: Any) -> None:
    if not 0 <= numbers.real(name, value) < 1:
        raise ValueError(f"Expected 0 <= {name}={value} < 1.")


def _tries(name: str, value: Any) -> None:
    if not isinstance(value, (NegativeBinomial, Poisson, EachPoint, Stopping)):
        raise TypeError(f"Expected {name}={value!r} to be the law of a number of tries.")


def _number(name: str, value: Any) -> None:
    numbers.number(name, value)


_CHECKS: Mapping[str, Check] = {
    "noise_multiplier": numbers.non_negative,
    "noise_scale": numbers.non_negative,
    "sampling_probability": numbers.share,
    "adjacency": _adjacency,
    "epsilon": _epsilon,
    "delta": _delta,
    "delta2": numbers.fraction,
    "event": _event,
    "events": _events,
    "count": _count,
    "counts": _counts,
    "steps": _positive_count,
    "dataset_size": _positive_count,
    "source_dataset_size": _positive_count,
    "sample_size": _positive_count,
    "truncated_batch_size": _positive_count,
    "tries": _tries,
    "limit": _limit,
    "eta": _number,
    "gamma": _number,
    "mean": _number,
}


def _sample(fields: Mapping[str, Any]) -> None:
    if fields["sample_size"] > fields["source_dataset_size"]:
        raise ValueError(f"Expected sample_size={fields['sample_size']} <= {fields['source_dataset_size']} records.")


def _stop(fields: Mapping[str, Any]) -> None:
    """The hard stop is reached with probability `delta2` at most, which is the part of delta that pays for it."""
    tries, delta2 = fields["tries"], fields["delta2"]
    if not isinstance(tries, Stopping) or tries.limit < math.log(1 / delta2) / tries.gamma:
        raise ValueError(f"Expected tries={tries!r} to reach their limit with probability delta2={delta2} at most.")


def _selection(fields: Mapping[str, Any]) -> None:
    if isinstance(fields["tries"], Stopping):
        raise TypeError(f"Expected tries={fields['tries']!r} to be the law of a search without a threshold.")


def _threshold(fields: Mapping[str, Any]) -> None:
    if not isinstance(fields["tries"], Stopping):
        raise TypeError(f"Expected tries={fields['tries']!r} to be the law of a search that stops.")


def _some(fields: Mapping[str, Any]) -> None:
    if not fields["events"]:
        raise ValueError("Expected events to be at least one.")


_TOGETHER: Mapping[type, Callable[[Mapping[str, Any]], None]] = {
    SampledWithoutReplacementDpEvent: _sample,
    RandomStoppingDpEvent: _stop,
    SelectionDpEvent: _selection,
    ThresholdDpEvent: _threshold,
    WorstDpEvent: _some,
}
