"""Our events as those of dp_accounting, so that its accountants price what ours price."""

from dataclasses import fields
from typing import Any

from dp_accounting import dp_event

from dpsweep.accounting.events.types import DpEvent


def to_dp_accounting(event: DpEvent) -> Any:
    kind = getattr(dp_event, type(event).__name__)
    return kind(**{field.name: _converted(getattr(event, field.name)) for field in fields(event)})


def _converted(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(_converted, value))
    return to_dp_accounting(value) if isinstance(value, DpEvent) else value
